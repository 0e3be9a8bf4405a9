"""The shuffle score: does the network's own energy separate inputs from inputs with shuffled values?"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.faults.tokens import IDS, TokenRule, token_ids
from assay.mira.figures import shuffle_figure
from assay.monitors import Energy
from assay.network import Network, perturbable, replaced
from assay.statistics import auroc, check_level
from assay.storage import storable
from assay.table import tabled
from assay.trace import Inputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@storable("ShuffleScore")
@dataclass(frozen=True, eq=False)
class ShuffleScore:
    """`score` is the AUROC of Energy between inputs and shuffled ones: 0.5 is guessing, 1 is perfect."""

    title: ClassVar[str] = "Does the network notice inputs that make no sense?"

    score: float
    interval: tuple[float, float]
    level: float
    clean: Array
    """Energy of the inputs as they are."""
    shuffled: Array

    @tabled
    def to_frame(self) -> pd.DataFrame:
        low, high = self.interval
        return pd.DataFrame([{"score": self.score, "lower": low, "upper": high, "inputs": len(self.clean)}])

    def summary(self) -> str:
        low, high = self.interval
        verdict = (
            "its outputs react to inputs whose parts do not belong together, so failures tend to show"
            if low > 0.5
            else "inputs whose parts do not belong together look more normal to it than real ones: do not "
            "rely on a monitor of its outputs"
            if high < 0.5
            else "these inputs do not show whether it reacts at all"
        )
        return (
            "The network's energy separates inputs from inputs with shuffled values with an AUROC of "
            f"{self.score:.3f} ({self.level:.0%} interval {low:.3f} to {high:.3f}): {verdict}. "
            "Over 40 networks this score tracked detection better than the MIRA score (rank correlation 0.80 "
            "against 0.21)."
        )

    def plot(self) -> "Figure":
        return shuffle_figure(self.clean, self.shuffled, self.score)


def shuffle_score(
    network: Network, data: Any, *, seed: int = 0, level: float = 0.95, fixed: Collection[int] = ()
) -> ShuffleScore:
    """How monitorable a network is, from unlabelled in-distribution inputs and two forward passes.

    Every value of an input is replaced by that of another input at the same place: each value stays ordinary,
    but they no longer belong together. The score is the AUROC of `monitors.Energy` between inputs and
    shuffled inputs. It is not from the paper; over 40 networks it tracked detection better than the MIRA
    score (docs/papers/mira.md). It needs no gradients, so it works for black boxes too.

    Whole numbers (bytes, tokens) are exchanged in the same way, except for padding and special tokens, as the
    network's tokenizer or embedding has them, and the values in `fixed`.
    """
    check_level(level)
    network.expect_one_row_per_input("the shuffle score")
    known = network.observe(data, keep_inputs=True)
    if len(known) < 2:
        raise InputError(f"expected at least two inputs to shuffle, got {len(known)}; pass more")
    inputs = known.known_inputs
    mixed = network.observe(_mixed(network, inputs, seed, fixed))
    energy = Energy().fit(known)
    clean, moved = (energy.score(trace).numpy() for trace in (known, mixed))
    area = auroc(clean, moved, level)
    return ShuffleScore(area.value, (area.lower, area.upper), level, clean, moved)


def _mixed(network: Network, inputs: Inputs, seed: int, fixed: Collection[int]) -> Inputs:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    if any(tensor.is_floating_point() for tensor in tensors):
        return replaced(inputs, shuffled(perturbable(inputs), seed))
    symbols = inputs if isinstance(inputs, Tensor) else token_ids(inputs)
    free = ~torch.isin(symbols, torch.tensor(sorted(fixed), dtype=symbols.dtype))
    if symbols.ndim == 2 and symbols.dtype != torch.uint8:
        free &= TokenRule.of(network).free(inputs)
    mixed = shuffled(symbols, seed, free)
    return mixed if isinstance(inputs, Tensor) else {**inputs, IDS: mixed.to(inputs[IDS].dtype)}


def shuffled(values: Tensor, seed: int, free: Tensor | None = None) -> Tensor:
    """The rows of every place of the inputs (N, ...) permuted on their own: marginals stay as they are.

    With `free`, only among the rows that are free in that place.
    """
    flat = values.flatten(1)
    keys = torch.rand(flat.shape, generator=torch.Generator().manual_seed(seed))
    if free is None:
        return flat.gather(0, keys.argsort(dim=0)).view_as(values)
    held = ~free.flatten(1)
    # Rows that are not free come last in both orders, in their own order, and so stay where they are.
    order = keys.masked_fill(held, 2.0).argsort(dim=0, stable=True)
    places = held.int().argsort(dim=0, stable=True)
    return torch.empty_like(flat).scatter_(0, places, flat.gather(0, order)).view_as(values)
