"""What a network says with parts of it switched off by dropout."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assay.network.buffers import RowBuffer
from assay.network.taps import thinned
from assay.trace import Inputs

if TYPE_CHECKING:
    from assay.network.network import Network


def thinned_logits(network: "Network", inputs: Inputs, passes: int, seed: int) -> Tensor:
    """(passes, N, classes) of as many thinned networks, each one dropout mask from `seed`."""
    return torch.stack([_one_pass(network, inputs, seed * 10_007 + number) for number in range(passes)])


def _one_pass(network: "Network", inputs: Inputs, seed: int) -> Tensor:
    logits = RowBuffer()
    for part, _ in network.batches(inputs, allow_nonfinite=True):
        with torch.no_grad(), thinned(network.module, seed):  # every batch meets the same thinned network
            logits.add(network._batch_rows(network.embed(part), layers=()).logits)
    return logits.tensor()
