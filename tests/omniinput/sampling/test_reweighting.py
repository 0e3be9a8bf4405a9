"""WHAM on fine bins, MBAR, pymbar and the exact answer are one."""

import numpy as np
import pytest

from assay.omniinput.sampling.density_estimate import inflation
from assay.omniinput.sampling.reweighting import Nearby, log_mixture, reweighted, summed_by
from assay.omniinput.sampling.time_blocks import TimeBlocks, burned_in, correlation_time, presence_floor


@pytest.fixture(scope="module")
def samples():
    """Outputs with a normal density of width 10 around 0: at beta they are normal around -100 beta."""
    betas = np.linspace(-0.1, 0.8, 7)
    generator = np.random.default_rng(0)
    return betas, [generator.normal(-100 * beta, 10, size=400) for beta in betas]


def free_energies(betas):
    """-ln Z(beta) of the normal density of states, beta first as reference."""
    exact = -(100 * betas**2) / 2
    return exact - exact[0]


def test_one_bin_per_sample_is_pymbar(samples):
    from pymbar import MBAR

    betas, outputs = samples
    pooled = np.concatenate(outputs)
    mine = reweighted(pooled, np.ones(len(pooled)), betas, np.full(7, 400.0))
    theirs = MBAR(betas[:, None] * pooled, np.full(7, 400), solver_protocol="robust")
    assert np.allclose(mine.free_energies, theirs.f_k - theirs.f_k[0], atol=1e-6)


def test_free_energies_are_those_of_the_closed_form(samples):
    betas, outputs = samples
    pooled = np.concatenate(outputs)
    found = reweighted(pooled, np.ones(len(pooled)), betas, np.full(7, 400.0)).free_energies
    # Six steps between neighbours, each known to about 0.1 nats from 400 samples.
    assert np.abs(found - free_energies(betas)).max() < 0.6


@pytest.mark.parametrize(("width", "tolerance"), [(0.1, 0.002), (0.3, 0.01)])
def test_fine_bins_equal_mbar(samples, width, tolerance):
    betas, outputs = samples
    pooled = np.concatenate(outputs)
    draws = np.full(7, 400.0)
    cell = np.floor(pooled / (width / 0.8)).astype(int)
    names, cell = np.unique(cell, return_inverse=True)
    counts = np.bincount(cell).astype(float)
    means = np.bincount(cell, weights=pooled) / counts
    fine = reweighted(means, counts, betas, draws)
    exact = reweighted(pooled, np.ones(len(pooled)), betas, draws)
    assert np.abs(fine.free_energies - exact.free_energies).max() < tolerance
    wide = np.floor(names * (width / 0.8) / 5).astype(int)
    wide_exact = np.floor(np.floor(pooled / (width / 0.8)) * (width / 0.8) / 5).astype(int)
    low = wide.min()
    mine = summed_by(wide - low, fine.log_counts, wide.max() - low + 1)
    theirs = summed_by(wide_exact - low, exact.log_counts, wide.max() - low + 1)
    both = np.isfinite(mine)
    assert np.abs((mine - mine[both].max()) - (theirs - theirs[both].max()))[both].max() < 2 * tolerance


def test_replicas_that_hardly_overlap_are_put_in_order():
    """36 replicas over 1,400 nats, two deviations apart: far from the solution there is no curvature."""
    betas = np.linspace(-105.0, 0.0, 36)
    generator = np.random.default_rng(0)
    pooled = np.concatenate([generator.normal(-18 - beta / 4, 0.5, size=300) for beta in betas])
    found = reweighted(pooled, np.ones(len(pooled)), betas, np.full(36, 300.0)).free_energies
    exact = -18 * betas - betas**2 / 8
    # 35 steps between neighbours, each known to about 0.3 nats from 300 samples two deviations apart.
    assert np.abs(found - (exact - exact[0])).max() < 6


@pytest.mark.parametrize("kept", [slice(0, None, 2), slice(0, 200)])
def test_solving_near_a_solution_is_solving_anew(samples, kept):
    """A bootstrap replicate, and one that is far from like the whole."""
    betas, outputs = samples
    pooled = np.concatenate(outputs)
    draws = np.full(7, 400.0)
    counts = np.concatenate([np.zeros_like(one) for one in outputs]).reshape(7, -1)
    counts[:, kept] = 2.0
    whole = reweighted(pooled, np.ones(len(pooled)), betas, draws).free_energies
    near = Nearby.of(pooled, betas, draws, whole).log_counts(counts.ravel())
    anew = reweighted(pooled, counts.ravel(), betas, draws).log_counts
    seen = np.isfinite(anew)
    assert (np.isfinite(near) == seen).all()
    assert np.ptp(near[seen] - anew[seen]) < 1e-6


def test_reported_bins_would_be_biased(samples):
    """Why reweighting on wide bins is not offered: centres of 20-nat bins miss by far more than 0.3 nats."""
    betas, outputs = samples
    pooled = np.concatenate(outputs)
    cell = np.floor(pooled / 20).astype(int)
    names, cell = np.unique(cell, return_inverse=True)
    found = reweighted(names * 20.0 + 10, np.bincount(cell).astype(float), betas, np.full(7, 400.0))
    assert np.abs(found.free_energies - free_energies(betas)).max() > 0.3


def test_the_weight_of_a_sample_is_the_inverse_mixture():
    betas, draws, energies = np.array([0.0, 1.0]), np.array([10.0, 30.0]), np.array([0.0, 2.0])
    expected = np.log(10 + 30 * np.exp(2 - 1.5))
    assert log_mixture(np.array([1.5]), betas, draws, energies) == pytest.approx(expected)


def test_sums_by_index_hold_where_no_double_could():
    found = summed_by(np.array([0, 0, 2, 9]), np.array([-2000.0, -2000.0, 1500.0, 0.0]), 3)
    assert found[0] == pytest.approx(-2000 + np.log(2))
    assert found[1] == -np.inf
    assert found[2] == 1500.0


@pytest.mark.parametrize("in_logs", [False, True])
@pytest.mark.parametrize("chunks", [1, 7, 40, 41, 199, 1000])
def test_time_blocks_keep_every_chunk(chunks, in_logs):
    blocks = TimeBlocks({}, in_logs=in_logs)
    for chunk in range(1, chunks + 1):
        value = np.array([float(chunk), 1.0])
        blocks.add({"x": np.log(value) if in_logs else value})
    whole = blocks.whole()["x"]
    total = np.exp(whole).sum(axis=0) if in_logs else whole.sum(axis=0)
    assert np.allclose(total, [chunks * (chunks + 1) / 2, chunks])
    assert len(blocks) <= 40
    assert chunks < 20 or len(whole) >= 20


def test_burn_in_is_found_in_the_data():
    generator = np.random.default_rng(0)
    settled = generator.normal(size=(30, 5))
    drifting = settled + 20 * np.exp(-np.arange(30) / 2)[:, None]
    assert burned_in(settled) <= 6
    assert 4 <= burned_in(drifting) <= 15


def test_a_bin_seen_in_few_blocks_is_never_certain():
    present = np.zeros((20, 3), dtype=bool)
    present[:, 0] = present[3, 1] = True
    floor = presence_floor(present)
    assert floor[0] == 0.0
    assert floor[1] == pytest.approx(np.sqrt(0.95))
    assert np.isnan(floor[2])


def test_errors_grow_with_the_disagreement_of_ensembles():
    same = np.array([[0.0, 1.0], [0.01, 1.01]])
    apart = np.array([[0.0, 1.0], [0.6, 1.6]])
    error = np.array([0.1, 0.1])
    assert inflation(same, error) == 1.0
    # Half of the difference is the error of the mean of two: 0.3 against the claimed 0.1.
    assert inflation(apart, error) == pytest.approx(3.0)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_the_correlation_time_is_that_of_an_autoregression(memory):
    """x_t = m x_(t-1) + noise has the variance of its mean raised by (1 + m) / (1 - m)."""
    generator = np.random.default_rng(1)
    series = generator.normal(size=(400, 20, 3))
    for block in range(1, 400):
        series[block] += memory * series[block - 1]
    found = correlation_time(series - series.mean(axis=0))
    assert found == pytest.approx((1 + memory) / (1 - memory), rel=0.2)
