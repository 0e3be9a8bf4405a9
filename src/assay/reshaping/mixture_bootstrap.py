"""Both samples drawn again: the test points of every group, and operation from the fitted mixture.

A resample fits the shares again, so the draws contain everything that is random about an estimate: which test
points there were, which inputs operation saw, what the realised indicator on those inputs was, and the noise
of private counts.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from assay.reshaping.array_types import Floats
from assay.reshaping.grouped_cells import GroupedCells
from assay.reshaping.histogram import Histogram
from assay.reshaping.mixture import Mixture
from assay.reshaping.simplex import shares_fit

BLOCK = 64  # resamples at a time


@dataclass(frozen=True, eq=False)
class MixtureDraws:
    """A row per resample: fitted shares and misfit, group means of each amount, and what operation realised.

    `means` is (resamples, groups, amounts), from the test points; `realised` the same from operation, as sums
    over all its inputs divided by their number.
    """

    shares: Floats
    misfit: Floats
    means: Floats
    realised: Floats
    realised_shares: Floats


def mixture_draws(
    cells: GroupedCells,
    mixture: Mixture,
    operational: Histogram,
    amounts: Floats,
    resamples: int,
    rng: np.random.Generator,
) -> MixtureDraws:
    """`amounts` is (points, amounts): what each point adds to the numerators and denominators."""
    # Single precision adds up whole numbers exactly, and twice as fast.
    columns = np.concatenate([cells.indicators, amounts.astype(np.float32)], axis=1)
    blocks = [
        _block(cells, mixture, operational, columns, min(BLOCK, resamples - start), rng)
        for start in range(0, resamples, BLOCK)
    ]
    parts = [
        np.concatenate([getattr(block, name) for block in blocks])
        for name in MixtureDraws.__dataclass_fields__
    ]
    return MixtureDraws(*parts)


def _block(
    cells: GroupedCells,
    mixture: Mixture,
    operational: Histogram,
    columns: NDArray[np.float32],
    count: int,
    rng: np.random.Generator,
) -> MixtureDraws:
    groups, width, inputs = cells.groups, cells.patterns.cells, operational.total
    seen = rng.multinomial(inputs, mixture.shares, count)
    test, outside = (np.zeros((count, groups, columns.shape[1])) for _ in range(2))
    times = np.zeros((count if operational.privacy else 0, len(columns)), np.int64)
    for group, rows in enumerate(cells.rows):
        if not len(rows):
            continue
        number = max(len(rows) - 1, 1)  # one less than there are: the variance comes out right for few
        again = _drawn(np.full(count, number), len(rows), rng)
        live = _drawn(seen[:, group], len(rows), rng)
        drawn = np.concatenate([again, live]) @ columns[rows]
        test[:, group], outside[:, group] = drawn[:count] / number, drawn[count:] / inputs
        if operational.privacy:
            times[:, rows] = live
    portions = outside[:, :, :width].sum(axis=1)
    if operational.privacy:
        portions = np.stack([_private_portions(cells, operational, row, rng) for row in times])
    root, shares = mixture.whitening, np.empty((count, groups))
    targets = portions @ root.T
    for index in range(count):
        shares[index], _ = shares_fit(root @ test[index, :, :width].T, targets[index])
    apart = portions - np.einsum("bgc,bg->bc", test[:, :, :width], shares)
    misfit = mixture.misfit_of(apart)
    return MixtureDraws(shares, misfit, test[:, :, width:], outside[:, :, width:], seen / inputs)


def _drawn(numbers: NDArray[np.int64], points: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """(resamples, points): how often each point is drawn, so many draws with replacement per resample."""
    resample = np.repeat(np.arange(len(numbers)), numbers)
    flat = resample * points + rng.integers(0, points, len(resample))
    return np.bincount(flat, minlength=len(numbers) * points).reshape(-1, points).astype(np.float32)


def _private_portions(
    cells: GroupedCells, operational: Histogram, times: NDArray[np.int64], rng: np.random.Generator
) -> Floats:
    """Portions of points drawn so many times each, counted with the same noise as operation was."""
    drawn = torch.from_numpy(np.repeat(cells.bins, times, axis=0))
    noisy = Histogram.of_cells(drawn, operational.bins).with_noise_of(operational, rng)
    portions: Floats = cells.counts(noisy) / max(noisy.total, 1)
    return portions
