"""A small network and labelled rows, to be observed in shards."""

import torch
from torch import nn

from assay import Network


def small_network(batch_size=16):
    torch.manual_seed(0)
    return Network(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), batch_size=batch_size)


def labelled_rows(count):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 6, generator=generator), torch.randint(3, (count,), generator=generator)


def same_rows(left, right):
    """To the last bit, with features, labels and inputs."""
    parts = [
        (trace.logits, trace.layer("penultimate"), trace.labels, trace.inputs) for trace in (left, right)
    ]
    return all(torch.equal(*pair) for pair in zip(*parts, strict=True))
