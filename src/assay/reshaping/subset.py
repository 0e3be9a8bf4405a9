"""Reshaping: the largest part of the test set whose neuron histograms are those seen in operation."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.engine import checked_engine
from assay.errors import AssayError, InputError, UndecidedError
from assay.network import Network
from assay.notebook import Shown
from assay.reshaping.array_types import Integers
from assay.reshaping.counts_estimate import counts_estimate
from assay.reshaping.estimate import LABEL_SHIFT, METHODS, IndicatorEstimate, estimated
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import Indicator, accuracy
from assay.reshaping.indicator_bootstrap import Resampling
from assay.reshaping.mismatch import mismatch
from assay.reshaping.occupied_bins import OccupiedBins
from assay.reshaping.sensitivity import checked_gamma
from assay.reshaping.similarity import portion_similarity
from assay.reshaping.solver import SubsetProblem, certificate, solved
from assay.statistics import check_level
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Reshaping")
@dataclass(frozen=True, eq=False)
class Reshaping(Shown):
    """The test points that are kept, and a proof of how good the choice is.

    `kept` is a mask over the test Trace; `bound` an upper limit on how many points any subset within
    `epsilon` can keep. `checked_bound` is the part of it whose proof was checked here, outside the solver: it
    is higher where HiGHS found whole numbers of points impossible, which is taken on its word. `cells` is the
    bin of every test point and neuron.
    """

    title = "Reshaped test set"

    kept: Tensor
    bound: int
    epsilon: float
    operational: Histogram
    cells: Tensor
    predictions: Tensor
    labels: Tensor | None
    seconds: float
    seed: int = 0
    checked_bound: int | None = None

    @property
    def number_kept(self) -> int:
        return int(self.kept.sum())

    @property
    def gap(self) -> float:
        """How far the number kept may be from the best, as a share of the bound; 0 is proven optimal."""
        return (self.bound - self.number_kept) / self.bound

    @property
    def optimal(self) -> bool:
        return self.number_kept == self.bound

    @property
    def similarity(self) -> float:
        """Portion similarity of the kept points and operation, counted again; at most `epsilon`."""
        return self._similarity(self.cells[self.kept])

    @property
    def similarity_before(self) -> float:
        """Portion similarity of the whole test set and operation."""
        return self._similarity(self.cells)

    def estimate(
        self,
        indicator: Indicator = accuracy,
        *,
        method: str = LABEL_SHIFT,
        gamma: float | None = None,
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
        time_limit: float = 300.0,
        engine: str = "here",
    ) -> IndicatorEstimate:
        """The indicator in operation, with all that these histograms say about it; see `IndicatorEstimate`.

        `indicator` is `assay.accuracy`, `assay.recall(label)`, or any function of (labels, predictions).
        `method` is "label shift", with the ends widened to odds of errors that change by a factor up to
        `gamma`, or "kept", the paper's estimate. The table has both.
        `level` is the probability with which the interval should contain the truth, from so many bootstrap
        `resamples`. `engine` is where resampling runs: "here", "processes" or "ray", with the same result.
        """
        checked_engine(engine)
        if self.labels is None:
            raise InputError("expected a test Trace with labels to estimate from, got one without")
        check_level(level)
        if resamples < 2:
            raise InputError(f"expected at least 2 resamples, got {resamples}; 1,000 are usual")
        if method not in METHODS:
            raise InputError(f"expected a method of {list(METHODS)}, got {method!r}")
        if gamma is not None:
            checked_gamma(gamma)
        counts = counts_estimate(
            self.cells.numpy(),
            self.labels.numpy(),
            self.predictions.numpy(),
            self.operational,
            indicator,
            level=level,
            resamples=resamples,
            seed=seed,
        )
        return estimated(
            self.occupied_bins,
            self.operational.total,
            self.epsilon,
            self.kept.numpy(),
            self.labels,
            self.predictions,
            indicator,
            counts=counts,
            method=method,
            gamma=gamma,
            resampling=Resampling(resamples, np.random.default_rng(seed), engine),
            time_limit=time_limit,
        )

    @cached_property
    def occupied_bins(self) -> OccupiedBins:
        return OccupiedBins.of(self.cells.numpy(), self.operational)

    def summary(self) -> str:
        """The number kept, and what it means."""
        share = self.number_kept / len(self.kept)
        trusted = self.checked_bound is not None and self.checked_bound > self.bound
        proof = (
            f"which is the most possible (up to {self.checked_bound:,} by the word of HiGHS)"
            if self.optimal and trusted
            else "which is proven to be the most possible"
            if self.optimal
            else f"and no subset can keep more than {self.bound:,} (gap {self.gap:.2%})"
        )
        return (
            f"{self.number_kept:,} of {len(self.kept):,} test points ({share:.0%}) have the neuron "
            f"histograms seen in operation, {proof}. Before, portions differed by up to "
            f"{self.similarity_before:.3f}; now by at most {self.similarity:.3f} (allowed: "
            f"{self.epsilon:g}). Measure your indicator on the kept points, and look at its range before "
            "relying on it."
        )

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per neuron and bin: operational portion, and test portion before and after."""
        everything = np.ones(len(self.kept), bool)
        return self.occupied_bins.frame(self.operational, before=everything, after=self.kept.numpy())

    @tabled
    def class_frequencies(self) -> pd.DataFrame:
        """A row per class: its share in the test set before and after (Fig. 4a)."""
        if self.labels is None:
            raise InputError("expected a test Trace with labels to count classes, got one without")
        classes = int(self.labels.max()) + 1
        columns: dict[str, Any] = {"label": np.arange(classes)}
        for name, labels in (("before", self.labels), ("after", self.labels[self.kept])):
            columns[name] = (torch.bincount(labels, minlength=classes).double() / max(len(labels), 1)).numpy()
        return pd.DataFrame(columns)

    def plot(self, neurons: int = 2) -> "Figure":
        """Histograms before, after and in operation, of the neurons that changed most (Fig. 3)."""
        from assay.reshaping.figures import shape_figure

        return shape_figure(self.to_frame(), neurons)

    def plot_classes(self, operational_labels: Tensor | None = None) -> "Figure":
        """Class frequencies before and after, and in operation where labels are known (Fig. 4a)."""
        from assay.reshaping.figures import class_figure

        return class_figure(self.class_frequencies(), operational_labels)

    def _similarity(self, cells: Tensor) -> float:
        return portion_similarity(Histogram.of_cells(cells, self.operational.bins), self.operational)

    def figures(self) -> "list[Figure]":
        return [self.plot()] if self.labels is None else [self.plot(), self.plot_classes()]


def reshape(
    test: Trace,
    operational: Histogram,
    epsilon: float = 0.01,
    *,
    candidates: Tensor | NDArray[Any] | None = None,
    network: Network | None = None,
    time_limit: float = 600.0,
    seed: int = 0,
) -> Reshaping:
    """Keep as many test points as possible such that portions differ from operation by at most epsilon.

    Definition 4 and Lemma 2 of the paper. Bins come with the histogram. `candidates` (mask or indices) are
    the points that may be removed; all others stay. With `network`, its weights must be those the histogram
    was counted with. The solver runs in its own process, which is ended when `time_limit` (seconds) is over;
    the best subset found by then is returned, with its gap. `seed` decides between subsets of equal size; the
    same seed gives the same subset unless the time limit cut a search short.

    Time grows with points x neurons^2: about a second for 20,000 points and 20 neurons, about a minute for a
    million. Raises `CannotMatchError` if no subset is similar; it says why, and which epsilon is enough.
    """
    _check_arguments(test, operational, epsilon, network, time_limit)
    start = time.monotonic()
    bins = operational.bins.cells(test)
    if bins.shape[1] != len(operational.window):
        raise InputError(
            f"expected {len(operational.window)} watched neurons as in the histogram, got {bins.shape[1]}; "
            "observe the test set with the network the histogram was counted with"
        )
    removable = _candidate_mask(candidates, len(test))
    if portion_similarity(Histogram.of_cells(bins, operational.bins), operational) <= epsilon:
        kept, bound, checked = torch.ones(len(test), dtype=torch.bool), len(test), len(test)
    else:
        kept, bound, checked = _solve(
            OccupiedBins.of(bins.numpy(), operational), operational, epsilon, removable, time_limit, seed
        )
    labels = test.labels
    result = Reshaping(
        kept,
        bound,
        epsilon,
        operational,
        _in_smallest_type(bins),
        test.predictions,
        labels,
        time.monotonic() - start,
        seed,
        checked,
    )
    if not result.similarity <= epsilon:  # counted again from the mask: never trust a solver
        raise AssayError(
            f"the solver returned points that differ by {result.similarity}, more than {epsilon}; report this"
        )
    return result


def _solve(
    bins: OccupiedBins,
    operational: Histogram,
    epsilon: float,
    removable: NDArray[np.bool_],
    time_limit: float,
    seed: int,
) -> tuple[Tensor, int, int]:
    """The mask of the kept points, the limit on their number, and the limit checked without HiGHS' word."""
    problem, member = bins.problem(operational.total, epsilon, removable)
    if certificate.single_neuron_bound(problem) < max(problem.fixed_points, 1):
        raise mismatch(bins, operational, problem, time_limit, seed)
    found = solved(problem, "keep", time_limit, seed=seed)
    bound, checked = proven_bound(problem, found), proven_bound(problem, found, trusting=False)
    if bound < max(problem.fixed_points, 1):
        raise mismatch(bins, operational, problem, time_limit, seed)
    if "kept" not in found:
        if "done" in found:
            raise mismatch(bins, operational, problem, time_limit, seed)
        raise UndecidedError(
            f"no subset was found within {time_limit:g} s, and at most {bound:,} points can be kept; "
            "raise time_limit, or epsilon"
        )
    kept = ~removable
    kept[removable] = _random_members(member, found["kept"]["counts"], seed)
    return torch.from_numpy(kept), bound, checked


def proven_bound(problem: SubsetProblem, found: dict[str, dict[str, Any]], *, trusting: bool = True) -> int:
    """The limit that the solver's multipliers prove, checked here in passes over the points.

    A small integer program that HiGHS found infeasible ("exhausted") leaves no proof that could be checked.
    `trusting` takes its word for that number of points.
    """
    bound = certificate.single_neuron_bound(problem)
    if "bound" in found:
        bound = min(bound, certificate.best_bound(problem, found["bound"]["multipliers"]))
    proofs = [found[name] for name in found if name.startswith("refuted-")]
    exhausted = {int(found[name]["number"]) for name in found if trusting and name.startswith("exhausted-")}
    kept = found["kept"]["counts"].sum() + problem.fixed_points if "kept" in found else 0
    numbers = np.arange(bound, max(int(kept), problem.fixed_points, 1) - 1, -1)
    if not len(numbers):
        return bound
    impossible = np.isin(numbers, list(exhausted))
    for proof in proofs:
        impossible |= certificate.refuted(problem, numbers, proof["cells"], float(proof["total"]))
    return int(numbers[impossible.argmin()]) if not impossible.all() else int(numbers[-1]) - 1


def _random_members(member: Integers, counts: Integers, seed: int) -> NDArray[np.bool_]:
    """So many points of each pattern, picked at random: points of one pattern may have different labels."""
    order = np.random.default_rng(seed).permutation(len(member))
    by_pattern = order[np.argsort(member[order], kind="stable")]
    sizes = np.bincount(member, minlength=len(counts))
    rank = np.arange(len(member)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.zeros(len(member), bool)
    kept[by_pattern] = rank < np.repeat(counts, sizes)
    return kept


def _in_smallest_type(bins: Tensor) -> Tensor:
    largest = int(bins.abs().max()) if len(bins) else 0
    return bins.to(torch.int16 if largest < 2**15 else torch.int32 if largest < 2**31 else torch.int64)


def _candidate_mask(candidates: Tensor | NDArray[Any] | None, points: int) -> NDArray[np.bool_]:
    if candidates is None:
        return np.ones(points, bool)
    chosen = np.asarray(candidates)
    if chosen.dtype != bool:
        if chosen.ndim != 1 or (chosen.size and (chosen.min() < 0 or chosen.max() >= points)):
            raise InputError(
                f"expected candidates as a mask or as indices from 0 to {points - 1}, got "
                f"{chosen.tolist() if chosen.size < 10 else chosen.shape}; pass rows of the test Trace"
            )
        mask = np.zeros(points, bool)
        mask[chosen] = True
        return mask
    if chosen.shape != (points,):
        raise InputError(f"expected a mask of {points} candidates, got shape {chosen.shape}")
    return chosen.copy()


def _check_arguments(
    test: Trace, operational: Histogram, epsilon: float, network: Network | None, time_limit: float
) -> None:
    if not isinstance(operational, Histogram):
        raise InputError(
            f"expected the operational Histogram, got {type(operational).__name__}; "
            "count one with Histogram.of"
        )
    if not (np.isfinite(epsilon) and 0 < epsilon <= 1):
        raise InputError(f"expected epsilon above 0 and at most 1, got {epsilon}; the paper uses 0.01")
    operational.check_usable(network)
    if not len(test):
        raise InputError("expected a test set with at least one point, got none")
    if not time_limit > 0:
        raise InputError(f"expected a time_limit above 0 seconds, got {time_limit}")
