"""OutputDistribution: how many of all inputs a model maps to each output, with errors and examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.notebook import Shown
from assay.omniinput.sampling.convergence import Reason
from assay.omniinput.sampling.output_bins import bin_index
from assay.omniinput.sampling.space import InputSpace
from assay.omniinput.sampling.tail import TailProbability, tail_probability
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


@storable("omniinput.Samples")
@dataclass(frozen=True, eq=False)
class Samples:
    """Representative inputs of all bins, with their outputs, bins, and log weights within the bin.

    `blocks` says which stretch of the run each is from, if that is known: those of one are not independent.
    """

    inputs: Tensor
    outputs: Array
    bins: NDArray[np.int64]
    log_weights: Array
    texts: list[str] | None = None
    blocks: NDArray[np.int64] | None = None

    def state(self) -> dict[str, Any]:
        """For storage: columns as tensors, since empty numpy arrays cannot be written."""
        return {
            "inputs": self.inputs,
            "outputs": torch.tensor(self.outputs),
            "bins": torch.tensor(self.bins),
            "log_weights": torch.tensor(self.log_weights),
            "texts": self.texts,
            "blocks": None if self.blocks is None else torch.tensor(self.blocks),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Samples":
        columns = {"outputs", "bins", "log_weights"} | (
            {"blocks"} if state.get("blocks") is not None else set()
        )
        return cls(**{name: value.numpy() if name in columns else value for name, value in state.items()})

    @classmethod
    def joined(cls, parts: "Sequence[Samples]") -> "Samples":
        """The inputs of several runs, whose blocks are different ones."""
        texts = [text for part in parts for text in part.texts or []]
        blocks = [part.blocks for part in parts if part.blocks is not None]
        first = np.cumsum([0] + [block.max(initial=-1) + 1 for block in blocks])
        return cls(
            torch.cat([part.inputs for part in parts]),
            np.concatenate([part.outputs for part in parts]),
            np.concatenate([part.bins for part in parts]),
            np.concatenate([part.log_weights for part in parts]),
            texts or None,
            np.concatenate([block + start for block, start in zip(blocks, first, strict=False)])
            if len(blocks) == len(parts)
            else None,
        )

    def rows(self, chosen: NDArray[np.int64]) -> "Samples":
        """Some of them, in this order."""
        return Samples(
            self.inputs[torch.from_numpy(chosen)],
            self.outputs[chosen],
            self.bins[chosen],
            self.log_weights[chosen],
            None if self.texts is None else [self.texts[row] for row in chosen],
            None if self.blocks is None else self.blocks[chosen],
        )

    @classmethod
    def none(cls, space: InputSpace) -> "Samples":
        empty = np.empty(0)
        inputs = torch.empty(0, *space.shape, dtype=torch.int64)
        return cls(inputs, empty, np.empty(0, dtype=np.int64), empty)


@storable("OutputDistribution")
@dataclass(frozen=True, eq=False)
class OutputDistribution(Shown):
    """The output distribution rho(z) of paper Eq. 1, in logarithms because it spans hundreds of orders.

    `log_density[b]` is the natural log of the share of all inputs whose output lies in bin b, from edges[b]
    up to but not including edges[b + 1] (the last bin includes its upper edge); NaN if no sample ever fell in
    it, which is not the same as zero. `error` is its standard error from time blocks. `resamples` are
    bootstrap resamples of it, for errors of anything computed from it. After cross-model normalisation the
    density is in units of the inputs that two models share instead of all inputs.
    """

    title: ClassVar[str] = "Output distribution over the input space"

    edges: Array
    log_density: Array
    error: Array
    space: InputSpace
    kept: Samples
    resamples: Array
    diagnostics: Mapping[str, Any]
    reasons: tuple[Reason, ...] = ()
    normalisation: str = "entire"
    output_name: str = field(default="output")

    @property
    def converged(self) -> bool:
        """Whether every check passed; `reasons` lists those that failed."""
        return not self.reasons

    @property
    def visited(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.log_density)

    @property
    def log_counts(self) -> Array:
        """The natural log of the number of inputs in each bin; NaN with a base, which does not count them."""
        size = np.nan if self.normalisation == "base" else self.space.log_size
        return self.log_density + size

    @property
    def centres(self) -> Array:
        return (self.edges[1:] + self.edges[:-1]) / 2

    def probability(
        self, *, above: float | None = None, below: float | None = None, level: float = 0.95
    ) -> "TailProbability":
        """How likely an output is to lie above, or below, an edge of the bins, down to the outermost edge.

        With a base, under the inputs of the base; without one, the share of all inputs.
        """
        return tail_probability(self, above, below, level)

    def samples(self, bin: int) -> Tensor:
        """Representative inputs of one bin, (n, *shape); weigh them by `weights(bin)`."""
        return self.kept.inputs[torch.from_numpy(self._rows(bin))]

    def outputs(self, bin: int) -> Array:
        """The outputs of `samples(bin)`."""
        return np.asarray(self.kept.outputs[self._rows(bin)])

    def weights(self, bin: int) -> Array:
        """The share of the bin's inputs that each of `samples(bin)` represents; sums to 1."""
        logs = self.kept.log_weights[self._rows(bin)]
        weights = np.exp(logs - logs.max()) if len(logs) else logs
        return np.asarray(weights / weights.sum() if len(logs) else weights)

    def texts(self, bin: int) -> list[str]:
        """`samples(bin)` as text if a decoder was given, otherwise as numbers."""
        rows = self._rows(bin)
        if self.kept.texts is not None:
            return [self.kept.texts[row] for row in rows]
        return [" ".join(map(str, row.flatten().tolist())) for row in self.samples(bin)]

    def bin_of(self, output: float) -> int:
        """The number of the bin that contains an output."""
        index = int(bin_index(np.array([float(output)]), self.edges)[0])
        if index < 0:
            raise InputError(
                f"expected an output from {self.edges[0]:g} to {self.edges[-1]:g}, got {output:g}; the bins "
                "end there"
            )
        return index

    def _rows(self, bin: int) -> NDArray[np.int64]:
        bins = len(self.log_density)
        if not isinstance(bin, int | np.integer):
            inside = self.edges[0] <= bin <= self.edges[-1]
            advice = f"the output {bin:g} lies in bin {self.bin_of(bin)}, " if inside else ""
            raise InputError(
                f"expected the number of a bin, an integer from 0 to {bins - 1}, got {bin}; {advice}see "
                "bin_of"
            )
        if not -bins <= bin < bins:
            raise InputError(
                f"expected a bin from 0 to {bins - 1}, got {bin}; the distribution has {bins} bins"
            )
        return np.flatnonzero(self.kept.bins == bin % bins)

    def summary(self) -> str:
        """The main result, its accuracy, and what to do if it has not converged."""
        if not self.visited.any():
            return f"No sampled input had an output between {self.edges[0]:.4g} and {self.edges[-1]:.4g}."
        seen = np.flatnonzero(self.visited)
        span = (np.nanmax(self.log_density) - np.nanmin(self.log_density)) / math.log(10)
        top = int(np.nanargmax(self.log_density))
        whole = f"Of all 10^{self.space.log_size / math.log(10):.1f} possible inputs"
        if self.normalisation == "base":
            whole = "Of the inputs that the base draws"
        lines = [
            f"{whole}, the largest share has an "
            f"output between {self.edges[top]:.4g} and {self.edges[top + 1]:.4g}; the shares of the "
            f"{len(seen)} visited bins span {span:.1f} orders of magnitude.",
            f"The standard error of the natural log of a share is {np.nanmedian(self.error):.2g} in the "
            f"median bin and {np.nanmax(self.error):.2g} in the worst.",
        ]
        never = len(self.log_density) - len(seen)
        if never:
            lines.append(
                f"{never} bins were never visited: such inputs are rarer than those found, if any exist."
            )
        verdict = "Every convergence check passed."
        if self.reasons:
            failed = "; ".join(map(str, self.reasons))
            verdict = f"Not converged: {failed}. Sample longer before relying on these bins."
        return " ".join([*lines, verdict])

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per bin: its edges, log density and error, log count, effective sample size, inputs kept."""
        effective = self.diagnostics.get("effective_sample_size")
        bins = len(self.log_density)
        return pd.DataFrame(
            {
                "bin": np.arange(bins),
                "lower": self.edges[:-1],
                "upper": self.edges[1:],
                "log_density": self.log_density,
                "error": self.error,
                "log_count": self.log_counts,
                "effective_sample_size": np.full(bins, np.nan) if effective is None else effective,
                "visited": self.visited,
                "samples": np.bincount(self.kept.bins, minlength=bins)[:bins],
            }
        )

    def plot(self) -> "Figure":
        """Log density over the output, with a band of two standard errors."""
        from assay.omniinput.sampling.figures import density_figure

        return density_figure(self)

    def figures(self) -> "list[Figure]":
        """The density, and a strip of representative inputs per bin."""
        from assay.omniinput.sampling.figures import density_figure, samples_figure

        return [density_figure(self), samples_figure(self)]
