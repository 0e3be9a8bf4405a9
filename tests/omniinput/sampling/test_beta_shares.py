"""Where betas count, and how many sequences they get, against what can be worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from assay.omniinput.sampling.samplers.beta_shares import (
    LEAST_SHARE,
    least_worst_shares,
    log_trust,
    needed_shares,
)

BETAS = np.array([0.0, 1.0])


@given(st.lists(st.floats(-30, 0), min_size=1, max_size=5), st.floats(-5, 5), st.integers(1, 50))
def test_betas_count_by_their_own_density_and_add_up_to_one(log_likelihood, log_total, size):
    found = np.exp(
        log_trust(np.array(log_likelihood), BETAS, np.array([0.0, log_total]), np.array([10, size]))
    )
    assert np.allclose(found.sum(axis=1), 1)
    # n_j exp(-beta_j z) / Z_j, written out for two betas.
    ratio = size / 10 * np.exp(np.array(log_likelihood) - log_total)
    assert np.allclose(found[:, 1], ratio / (1 + ratio))


def test_sequences_go_where_bins_vary():
    """Two bins, each of which belongs to one beta; their relative variances are 0.01 and 0.09."""
    logs, parts = np.log([[1.1, 1.3], [0.9, 0.7]]), np.eye(2)
    found = needed_shares(logs, parts, np.array([8, 8]))
    by_hand = LEAST_SHARE / 2 + (1 - LEAST_SHARE) * np.array([0.1, 0.9])  # so that both vary alike
    assert np.allclose(found, by_hand, atol=1e-6)
    # A bin that nothing fell in says nothing.
    with_empty = np.hstack([logs, np.full((2, 1), -np.inf)]), np.hstack([parts, np.full((2, 1), 0.5)])
    assert np.allclose(needed_shares(*with_empty, np.array([8, 8])), found)


@pytest.mark.parametrize("seed", range(6))
def test_no_other_shares_make_the_worst_bin_better_known(seed):
    """Against scipy's solver of the same problem, on variances that differ by orders of magnitude."""
    generator = np.random.default_rng(seed)
    variances = generator.random((4, 6)) ** 4 * 10 ** generator.uniform(-3, 1, 6)

    def worst(shares):
        return (variances / shares[:, None]).sum(axis=0)

    found = least_worst_shares(variances)
    scale = worst(found).max()
    solved = minimize(
        lambda x: x[-1],
        np.append(np.full(4, 0.25), worst(np.full(4, 0.25)).max() / scale),
        constraints=[
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1},
            {"type": "ineq", "fun": lambda x: x[-1] - worst(x[:-1]) / scale},
        ],
        bounds=[(1e-6, 1)] * 4 + [(0, None)],
    )
    assert solved.success
    assert solved.x[-1] == pytest.approx(1, abs=1e-3)


def test_what_never_varied_needs_no_more_than_the_rest():
    assert np.allclose(least_worst_shares(np.zeros((3, 2))), 1 / 3)
    assert np.allclose(least_worst_shares(np.array([[1.0], [0.0]])), [1, 0], atol=1e-9)
