"""Histograms hold counts, merge in any order, and refuse what does not belong together."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import assay
from assay import Bins, Histogram, Network, Trace
from assay.errors import InputError
from assay.reshaping.privacy import Privacy, discrete_gaussian


def traced(values, **others):
    features = {"penultimate": torch.as_tensor(values, dtype=torch.float32), **others}
    return Trace(torch.zeros(len(features["penultimate"]), 2), features)


def bin_by_definition(x, c, delta, last):
    """Eq. 2, read out loud."""
    if c <= x <= c + delta:
        return 0
    return next(j for j in range(1, last + 1) if c + j * delta < x <= c + (j + 1) * delta)


@settings(max_examples=60)
@given(
    c=st.floats(-5, 5),
    delta=st.floats(0.01, 3),
    last=st.integers(0, 12),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_bins_are_those_of_equation_2(c, delta, last, shares):
    high = c + (last + 1) * delta
    values = [max(c, min(c + share * (last + 1) * delta, high)) for share in shares]
    rows = torch.tensor(values, dtype=torch.float64)[:, None]
    cells = Bins(origin=c, width=delta, last=last).cells(
        Trace(torch.zeros(len(rows), 2), {"penultimate": rows})
    )
    assert cells.flatten().tolist() == [bin_by_definition(value, c, delta, last) for value in values]


def test_edges_belong_to_the_bin_on_their_left():
    cells = Bins(origin=0.0, width=0.1, last=9).cells(
        Trace(
            torch.zeros(1, 2), {"penultimate": torch.tensor([[0.0, 0.1, 0.3, 0.7, 1.0]], dtype=torch.float64)}
        )
    )
    # 0.3 in double is below 3 * 0.1, so bin 2; 0.7 is not above 7 * 0.1, so bin 6.
    assert cells.tolist() == [[0, 0, 2, 6, 9]]


def test_counts_and_total():
    histogram = Histogram.of(traced([[0.5, 2.5], [1.5, 2.5], [0.7, 0.0]]), Bins(width=1.0, last=3))
    assert histogram.counts.tolist() == [[2, 1, 0, 0], [1, 0, 2, 0]]
    assert histogram.total == 3
    assert histogram.outside.tolist() == [[0, 0], [0, 0]]
    assert histogram.counts.sum(axis=1).tolist() == [3, 3]


@settings(max_examples=30)
@given(data=st.data())
def test_merging_in_any_order_equals_counting_at_once(data):
    values = data.draw(
        st.lists(st.lists(st.floats(-3, 9, width=32), min_size=2, max_size=2), min_size=3, max_size=20)
    )
    bins = Bins(width=0.75, last=5, overflow=True)
    whole = traced(values)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), min_size=2, max_size=2)))
    parts = [whole[: cuts[0]], whole[cuts[0] : cuts[1]], whole[cuts[1] :]]
    order = data.draw(st.permutations(range(3)))
    merged = sum(Histogram.of(parts[index], bins) for index in order)
    streamed = Histogram.of(iter(parts), bins)
    for histogram in (merged, streamed):
        assert histogram.total == len(values)
        assert np.array_equal(histogram.counts, Histogram.of(whole, bins).counts)
        assert np.array_equal(histogram.outside, Histogram.of(whole, bins).outside)


def test_what_lies_outside_is_an_error_or_is_counted():
    trace = traced([[-1.0], [0.5], [7.0], [9.0]])
    with pytest.raises(InputError, match=r"within \[0, 4\], got -1 at row 0, neuron 0 \(3 values"):
        Histogram.of(trace, Bins(last=3))
    histogram = Histogram.of(trace, Bins(last=3, overflow=True))
    assert histogram.outside.tolist() == [[1, 2]]
    assert histogram.counts.tolist() == [[1, 0, 0, 0]]
    frame = histogram.to_frame()
    assert frame["count"].tolist() == [1, 1, 2]
    assert frame["lower"].tolist() == [-math.inf, 0.0, 4.0]
    assert frame["upper"].tolist() == [0.0, 1.0, math.inf]


def test_nan_is_never_counted():
    with pytest.raises(InputError, match="NaN"):
        Histogram.of(traced([[float("nan")]]), Bins(overflow=True))


def test_neurons_of_several_layers():
    trace = traced([[0.5, 1.5, 2.5]], deep=torch.tensor([[3.5, 0.5]]))
    bins = Bins(layer=("penultimate", "deep"), neurons=((2, 0), None), last=3)
    assert bins.cells(trace).tolist() == [[2, 0, 3, 0]]
    assert Bins(neurons=[1], last=3).cells(trace).tolist() == [[1]]
    with pytest.raises(InputError, match="below 3, got 5"):
        Bins(neurons=(5,)).cells(trace)


def test_one_binning_per_neuron():
    bins = Bins(origin=(0.0, -1.0), width=(1.0, 0.5), last=(3, 1))
    histogram = Histogram.of(traced([[3.5, -0.9], [0.0, -0.2]]), bins)
    assert histogram.counts.tolist() == [[1, 0, 0, 1], [1, 1, 0, 0]]
    with pytest.raises(InputError, match=r"\[-1, 0\]"):
        Histogram.of(traced([[0.0, 0.1]]), bins)
    with pytest.raises(InputError, match="per watched neuron"):
        Histogram.of(traced([[0.0]]), bins)


def test_other_bins_and_other_networks_refuse_to_merge():
    trace = traced([[0.5]])
    ours = Histogram.of(trace, Bins(network="a"))
    with pytest.raises(InputError, match="same network"):
        ours + Histogram.of(trace, Bins(network="b"))
    with pytest.raises(InputError, match="different width"):
        ours + Histogram.of(trace, Bins(width=2.0, network="a"))
    assert ours.fingerprint != Histogram.of(trace, Bins(network="b")).fingerprint
    assert ours.fingerprint == Histogram.of(trace, Bins(network="a")).fingerprint


def test_bins_from_bounds_carry_the_fingerprint_of_the_weights():
    network = Network(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    bins = Bins.from_bounds(network)
    assert bins.network == network.fingerprint
    network.module[0].bias.data += 1
    assert Bins.from_bounds(network).network != bins.network


def test_bins_from_data_widen_by_the_margin_and_overflow():
    bins = Bins.from_data(traced([[0.0, 2.0], [1.0, 10.0]]), width=1.0, margin=0.1)
    assert (bins.origin, bins.last, bins.overflow) == (-1.0, 12, True)
    single = Bins.from_data(traced([[0.0, 2.0], [1.0, 10.0]]), width=1.0, margin=0.0, per_neuron=True)
    assert (single.origin, single.last) == ((0.0, 2.0), (1, 8))


def test_saved_compactly_and_whole(tmp_path):
    trace = traced(torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) + 1000)
    histogram = Histogram.of(trace, Bins(last=1_000_000, network="a"))
    assay.save(histogram, tmp_path / "h.assay")
    # A dense table would take 24 MB; only the columns that occur are stored.
    assert (tmp_path / "h.assay").stat().st_size < 2000
    back = assay.load(tmp_path / "h.assay")
    assert back.bins == histogram.bins
    assert np.array_equal(back.counts, histogram.counts)
    assert (back + histogram).total == 100


def test_nothing_but_counts_is_stored():
    histogram = Histogram.of(traced([[0.123456]]), Bins())
    assert set(vars(histogram)) <= {"bins", "window", "first", "total", "privacy"}
    assert histogram.window.dtype == np.int64


@pytest.mark.parametrize(
    "arguments", [{"width": 0.0}, {"width": -1.0}, {"width": math.nan}, {"last": -1}, {"origin": math.inf}]
)
def test_bins_that_make_no_sense_are_refused(arguments):
    with pytest.raises(InputError, match="expected"):
        Bins(**arguments)


@pytest.mark.parametrize(("mechanism", "delta"), [("geometric", 0.0), ("gaussian", 1e-6)])
def test_private_counts_stay_consistent_and_near(mechanism, delta):
    values = torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)) * 8
    histogram = Histogram.of(traced(values), Bins(last=7))
    noisy = histogram.private(1.0, delta=delta, mechanism=mechanism, seed=1)
    assert (noisy.counts >= 0).all()
    assert (noisy.counts.sum(axis=1) == noisy.total).all()
    # Nine cells of noise per neuron, averaged over three neurons: six deviations of a cell are ample.
    deviation = Privacy(1.0, delta, mechanism).deviation(3)
    assert abs(noisy.total - 4000) < 6 * deviation * math.sqrt(8 / 3)
    assert np.abs(noisy.counts - histogram.counts).max() < 8 * deviation
    assert not np.array_equal(noisy.counts, histogram.counts)
    assert noisy.privacy.epsilon == 1.0
    assert (noisy + noisy).privacy == noisy.privacy
    assert (noisy + histogram).privacy is None
    assert "differentially private" in noisy.summary()


def test_the_geometric_noise_has_the_stated_ratio():
    """P(k) / P(k + 1) = exp(epsilon / neurons): the definition of the mechanism, and of its privacy."""
    empty = Histogram(Bins(last=200_000), np.zeros((1, 1), np.int64), 0, 0)
    rng = np.random.default_rng(0)
    success = 1 - math.exp(-0.7)
    noise = rng.geometric(success, 200_000) - rng.geometric(success, 200_000)
    counts = np.bincount(np.abs(noise))
    # 200,000 draws: the ratio of neighbouring counts is within 3 % of e^0.7 (several standard errors).
    assert counts[1] / counts[2] == pytest.approx(math.exp(0.7), rel=0.03)
    assert noise.std() == pytest.approx(Privacy(0.7).deviation(1), rel=0.02)
    assert empty.private(0.7, seed=0).total >= 0


def test_the_discrete_gaussian_has_the_stated_distribution():
    draws = discrete_gaussian(1.7, 200_000, np.random.default_rng(0))
    grid = np.arange(-30, 31)
    expected = np.exp(-(grid**2) / (2 * 1.7**2))
    expected /= expected.sum()
    seen = np.array([(draws == value).mean() for value in grid])
    # Standard error of a share is at most 0.0011.
    assert np.abs(seen - expected).max() < 0.005


def test_gaussian_noise_reaches_its_epsilon_by_the_conversion():
    sigma = Privacy(2.0, 1e-5, "gaussian").deviation(4)
    rho = 4 / (2 * sigma**2)
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "arguments",
    [{"epsilon": 0.0}, {"epsilon": 1.0, "mechanism": "gaussian"}, {"epsilon": 1.0, "mechanism": "x"}],
)
def test_privacy_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(InputError, match="expected"):
        Histogram.of(traced([[0.5]]), Bins(last=2)).private(**arguments)
