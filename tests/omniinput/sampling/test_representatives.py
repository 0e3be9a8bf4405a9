"""Kept inputs stand for all that were offered."""

import numpy as np
import pytest
import torch

import assay
from assay.omniinput.sampling.representatives import Representatives, keys_of


def offered(weights, keep, repeats, bins=1):
    """Many reservoirs of the same stream; the mean total weight each item was given."""
    total = np.zeros(len(weights))
    generator = torch.Generator().manual_seed(0)
    for _ in range(repeats):
        representatives = Representatives.empty(bins, keep, 1)
        for part in np.array_split(np.arange(len(weights)), 4):
            logs = np.log(weights[part])
            sites = torch.from_numpy(part)[:, None]
            representatives.offer(
                sites, part.astype(float), logs, keys_of(logs, generator), np.zeros(len(part), dtype=np.int64)
            )
        assert len(representatives.index) == min(keep, len(weights))
        total[representatives.sites[:, 0].numpy()] += np.exp(representatives.standing_weights())
    return total / repeats


def test_every_item_is_represented_by_its_weight():
    weights = np.array([0.1, 1.0, 5.0, 0.5, 2.0, 1.0, 0.2, 3.0])
    found = offered(weights, keep=4, repeats=3000)
    # Horvitz-Thompson weights are unbiased; a tenth is over four standard errors for each item here.
    assert np.allclose(found, weights, rtol=0.1, atol=0.03)


def test_everything_is_kept_with_its_own_weight_while_there_is_room():
    weights = np.array([0.1, 1.0, 5.0])
    assert np.allclose(offered(weights, keep=10, repeats=1), weights)


def test_bins_are_apart_and_the_rest_is_ignored():
    representatives = Representatives.empty(bins=3, keep=2, sites=1)
    index = np.array([-1, 0, 0, 0, 2, 3])
    logs = np.zeros(6)
    keys = keys_of(logs, torch.Generator().manual_seed(0))
    representatives.offer(torch.arange(6)[:, None], np.arange(6.0), logs, keys, index)
    assert representatives.index.tolist() == [0, 0, 2]
    assert set(representatives.outputs[:2]) < {1.0, 2.0, 3.0}
    assert representatives.outputs[2] == pytest.approx(4.0)


def test_kept_inputs_know_the_stretch_of_the_run_they_are_from():
    """100 offers in 40 blocks: two or three offers each, in order; all of them if there are fewer."""
    for offers, blocks in ((100, 40), (7, 7)):
        kept = Representatives.empty(bins=1, keep=1000, sites=1)
        for number in range(offers):
            kept.offer(
                torch.full((3, 1), number), *np.full((3, 3), float(number)), np.zeros(3, dtype=np.int64)
            )
        found = Representatives.from_state(kept.state()).blocks()
        assert sorted(set(found)) == list(range(blocks))
        assert np.array_equal(found, kept.sites[:, 0].numpy() * blocks // offers)


def test_equal_candidates_race_without_a_key_for_each():
    """Two rows of 3 and 40 candidates with weights 5 and 1: kept as often, and weighing as much, as all."""
    log_weights, counts = np.log([5.0, 1.0]), np.array([[3.0, 0.0], [40.0, 2.0]])
    heavy, totals = [], []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        kept = Representatives.empty(bins=2, keep=6, sites=1)
        for _ in range(2):  # two offers, the second against what stands
            rows, bins, keys = kept.winners(log_weights, counts, generator)
            sites = torch.from_numpy(rows)[:, None]
            kept.offer(sites, np.zeros(len(rows)), log_weights[rows], keys, bins)
        assert np.bincount(kept.index).tolist() == [6, 4]
        weights = np.exp(kept.standing_weights())
        mine = kept.index == 0
        totals.append([weights[mine].sum(), weights[~mine].sum()])
        heavy.append(weights[mine][kept.sites[mine, 0].numpy() == 0].sum())
    # Horvitz-Thompson sums are unbiased: 2 x (3 x 5 + 40) and 2 x 2, of which 2 x 3 x 5 in the heavy row.
    errors = np.std(totals, axis=0)[0] / 20, np.std(heavy) / 20
    assert np.mean(totals, axis=0)[0] == pytest.approx(110, abs=3 * errors[0])
    assert np.mean(heavy) == pytest.approx(30, abs=3 * errors[1])
    assert np.allclose(np.array(totals)[:, 1], 4.0)


@pytest.mark.parametrize("sampler", ["tempering", "multicanonical"])
def test_a_wide_bin_is_carried_by_all_that_is_kept_of_it(sampler):
    """Twelve digits, the output their sum: counts fall by 12 nats across the bin, as a convolution tells."""
    space, edges = assay.InputSpace((12,), 10), np.array([70.5, 100.5])
    dist = assay.sample_outputs(
        lambda inputs: inputs.sum(dim=1).double(),
        space,
        bins=edges,
        budget=20_000,
        seed=0,
        sampler=sampler,
        kernel="single-site",
    )
    counts = np.ones(1)
    for _ in range(12):
        counts = np.convolve(counts, np.ones(10))
    sums = np.arange(71, 101)
    exact = sums @ counts[sums] / counts[sums].sum()
    weights = dist.weights(0)
    effective = 1 / (weights**2).sum()
    assert effective > 0.8 * len(weights)
    assert weights @ dist.samples(0).sum(dim=1).numpy() == pytest.approx(
        exact, abs=4 * 3 / np.sqrt(effective)
    )
