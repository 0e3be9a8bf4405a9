"""What people are asked to judge: distinct inputs, in proportion to weight, where they move the curve."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from exact_precision import enumerated, weighted_sum, without

import assay
from assay.errors import InputError
from assay.omniinput.annotation.choice import allocation
from assay.omniinput.sampling.distribution import Samples

EDGES = np.arange(-0.5, 48.0, 3.0)
BINS = len(EDGES) - 1


@pytest.fixture(scope="module")
def dist():
    return enumerated(weighted_sum, 5, 4, EDGES)


def one_bin(inputs, weights):
    """A distribution with a single bin and given inputs."""
    base = enumerated(lambda rows: torch.zeros(len(rows)), 5, 4, np.array([-1.0, 1.0]))
    kept = Samples(inputs, np.zeros(len(inputs)), np.zeros(len(inputs), dtype=np.int64), np.log(weights))
    return without(base, kept=kept)


def test_items_are_distinct_and_as_many_as_asked_or_as_there_are(dist):
    items = assay.choose_items(dist, 20, seed=0)
    per_bin = np.bincount(items.bins, weights=items.counts, minlength=BINS)
    assert (per_bin == 20).all()  # each bin's draws, some of them the same input
    assert len({tuple(row.tolist()) for row in items.inputs}) == len(items)
    held = np.bincount(dist.kept.bins, minlength=BINS)
    assert (np.bincount(items.bins, minlength=BINS) <= np.minimum(held, 20)).all()
    assert np.array_equal(items.inputs.numpy(), dist.kept.inputs[items.rows].numpy())
    default = assay.choose_items(dist)
    assert np.bincount(default.bins, weights=default.counts).max() == 50


def test_draws_are_in_proportion_to_weight_and_duplicates_are_one_item():
    inputs = torch.tensor([[0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [2, 0, 0, 0, 0]])
    dist = one_bin(inputs, np.array([1.0, 2.0, 3.0, 4.0]))
    counts = np.zeros(3)
    for seed in range(300):
        items = assay.choose_items(dist, 7, seed=seed)
        assert len(items) <= 3
        assert items.counts.sum() == 7
        counts[items.inputs[:, 0].numpy()] += items.counts
    # Systematic draws: each count is its expectation rounded down or up.
    assert np.allclose(counts / 300, 7 * np.array([0.1, 0.5, 0.4]), atol=0.1)


def test_the_mean_over_items_estimates_that_of_the_bin(dist):
    """Averaged over choices, the weighted mean of a score is the bin's own."""
    weights = np.random.default_rng(0).gamma(0.5, size=40)
    inputs = dist.kept.inputs[:40]
    scored = inputs.double().mean(dim=1).numpy()
    uneven = one_bin(inputs, weights)
    means = []
    for seed in range(400):
        items = assay.choose_items(uneven, 10, seed=seed)
        means.append(np.average(items.inputs.double().mean(dim=1).numpy(), weights=items.counts))
    error = np.std(means) / np.sqrt(400)
    assert np.mean(means) == pytest.approx(np.average(scored, weights=weights), abs=4 * error)


def test_allocation_spends_where_the_worst_threshold_needs_it():
    """Against every other split of eight more items among three bins."""
    log_density, variance = np.log([0.02, 0.3, 0.6]), np.array([0.25, 0.2, 0.01])
    have, room = np.array([2.0, 2.0, 2.0]), np.full(3, 100)

    def mean_variance(added):
        cumulative, total = np.cumsum(np.exp(log_density)), 0.0
        for threshold in range(3):
            shares = np.exp(log_density[: threshold + 1]) / cumulative[threshold]
            total += (shares**2 * variance[: threshold + 1] / (have + added)[: threshold + 1]).sum()
        return total

    best = min(
        (np.array(split) for split in itertools.product(range(9), repeat=3) if sum(split) == 8),
        key=mean_variance,
    )
    found = allocation(log_density, variance, have, room, 8, None)
    assert mean_variance(found) == pytest.approx(mean_variance(best))


def test_within_asks_for_what_the_curve_still_needs(dist):
    wide = assay.choose_items(dist, within=0.2, confident="low")
    narrow = assay.choose_items(dist, within=0.1, confident="low")
    assert BINS <= len(wide) < len(narrow)
    assert len(np.unique(wide.bins)) == BINS  # no bin stays without
    known = pd.DataFrame({"bin": np.repeat(np.arange(BINS), 400), "score": 0.0, "annotator": "ann"})
    assert len(assay.choose_items(dist, within=0.1, annotations=known)) == 0
    never = pd.DataFrame({"bin": np.repeat(np.arange(BINS), 6), "score": 0.0})
    half = never.assign(score=np.where((never["bin"] == 5) & (never.index % 2 == 0), 1.0, 0.0))
    asked = [assay.choose_items(dist, total=60, annotations=frame) for frame in (never, half)]
    assert [items.counts.sum() for items in asked] == [60, 60]
    fewer, more = (items.counts[items.bins == 5].sum() for items in asked)
    assert more > 2 * fewer  # half right is uncertain; never right is less so


def test_more_items_join_those_there_are(dist):
    first, second = assay.choose_items(dist, 5, seed=0), assay.choose_items(dist, 5, seed=1)
    both = first.joined(second)
    assert both.counts.sum() == first.counts.sum() + second.counts.sum()
    assert both.rows[: len(first)].tolist() == first.rows.tolist()
    assert len(set(both.rows.tolist())) == len(both)
    with pytest.raises(InputError, match="another run"):
        first.joined(assay.choose_items(one_bin(dist.kept.inputs[:4], np.ones(4)), 2))


def test_items_go_through_files_and_into_tables(dist, tmp_path):
    items = assay.choose_items(dist, 5)
    assay.save(items, tmp_path / "items")
    back = assay.load(tmp_path / "items")
    assert back.to_frame().equals(items.to_frame())
    assert back.run == items.run
    assert items.text(0) == " ".join(map(str, items.inputs[0].tolist()))


def test_questions_that_make_no_sense_are_refused(dist):
    with pytest.raises(InputError, match="choose one"):
        assay.choose_items(dist, 5, total=10)
    for options in ({"per_bin": 0}, {"total": -1}, {"within": 0.0}):
        with pytest.raises(InputError, match="positive"):
            assay.choose_items(dist, **options)
    with pytest.raises(InputError, match="'low' or 'high'"):
        assay.choose_items(dist, confident="up")
