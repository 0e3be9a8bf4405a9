"""Similarities against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch

from assay import Bins, Histogram, Trace, implied_kappa, kl_similarity, portion_similarity
from assay.errors import InputError


def histogram(counts, width=1.0):
    rows = np.array(counts)
    return Histogram(Bins(width=width, last=rows.shape[1] - 1), rows, 0, int(rows[0].sum()))


def test_portion_similarity_is_the_largest_difference():
    # Neuron 0: 1/4 against 3/8 and 3/4 against 5/8, 1/8 apart; neuron 1: 1/2 against 0, 1/2 apart.
    a, b = histogram([[1, 3], [2, 2]]), histogram([[3, 5], [0, 8]])
    assert portion_similarity(a, b) == 0.5
    assert portion_similarity(b, a) == 0.5
    assert portion_similarity(a, a) == 0.0


def test_portions_that_are_a_tenth_apart_are_a_tenth_apart():
    assert portion_similarity(histogram([[8, 2]]), histogram([[7, 3]])) == 0.1
    assert 0.8 - 0.7 != 0.1


def test_portions_do_not_depend_on_the_size():
    a, b = histogram([[1, 3]]), histogram([[300, 500]])
    assert portion_similarity(a, b) == 0.125


def test_kl_similarity_by_hand():
    a, b = histogram([[1, 3], [2, 2]]), histogram([[2, 2], [1, 3]])
    first = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    second = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert kl_similarity(a, b) == pytest.approx(max(first, second), rel=1e-14)


def test_empty_bins_follow_the_papers_heuristics():
    assert kl_similarity(histogram([[1, 0, 1]]), histogram([[1, 0, 1]])) == 0.0
    assert kl_similarity(histogram([[1, 1, 0]]), histogram([[2, 0, 0]])) == math.inf
    assert kl_similarity(histogram([[2, 0]]), histogram([[1, 1]])) == pytest.approx(math.log(2))


def test_overflow_counts_too():
    bins = Bins(last=0, overflow=True)

    def counted(values):
        rows = torch.tensor(values)[:, None]
        return Histogram.of(Trace(torch.zeros(len(rows), 2), {"penultimate": rows}), bins)

    assert portion_similarity(counted([0.5, 2.0]), counted([0.5, 0.5])) == 0.5


def test_the_implied_kappa_by_hand_and_as_a_limit():
    test = histogram([[5, 5], [8, 2]])
    by_hand = max(2 * 0.5 * math.log(0.5 / 0.4), 0.8 * math.log(0.8 / 0.7) + 0.2 * math.log(0.2 / 0.1))
    assert implied_kappa(test, 0.1) == pytest.approx(by_hand, rel=1e-12)
    assert implied_kappa(test, 0.2) == math.inf
    rng = np.random.default_rng(0)
    for _ in range(50):
        moved = rng.integers(-50, 51, 2)
        other = histogram([[500 + moved[0], 500 - moved[0]], [800 + moved[1], 200 - moved[1]]])
        assert portion_similarity(test, other) <= 0.1
        assert kl_similarity(test, other) <= implied_kappa(test, 0.1)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="different width"):
        portion_similarity(histogram([[1, 1]]), histogram([[1, 1]], width=2.0))
    with pytest.raises(InputError, match="empty"):
        kl_similarity(histogram([[0, 0]]), histogram([[1, 1]]))
    with pytest.raises(InputError, match="epsilon"):
        implied_kappa(histogram([[1, 1]]), 0.0)
