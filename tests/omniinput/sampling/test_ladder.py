"""Ladders reach the bins and have even rungs; swaps keep the joint target."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.omniinput.sampling.kernels import kernels_of
from assay.omniinput.sampling.kernels.chain import State
from assay.omniinput.sampling.ladder import Reach, Visit, first_ladder, next_ladder
from assay.omniinput.sampling.ladder_record import LadderRecord
from assay.omniinput.sampling.output_bins import bin_index, fine_edges
from assay.omniinput.sampling.replica_exchange import RoundTrips, swap_rejections, swapped
from assay.omniinput.sampling.turns import Turns


def normal_visit(betas, mean=0.0, deviation=10.0):
    """Outputs normal with the given width: swaps are rejected the more, the farther neighbours are."""
    rejections = 1 - np.exp(-np.abs(np.diff(betas)) * deviation / 2)
    return Visit(betas, mean - betas * deviation**2, np.zeros(len(betas)), rejections)


def test_the_first_guess_is_exact_for_normal_outputs():
    betas = first_ladder(0.0, 10.0, Reach((-52.0, -48.0), (-1.0, 0.0)), 8)
    assert betas[0] == 0.0
    assert betas[-1] == pytest.approx(0.5)


def test_both_sides_are_served_and_zero_is_a_rung():
    betas = first_ladder(0.0, 10.0, Reach((-52.0, -48.0), (48.0, 52.0)), 8)
    assert betas[0] == pytest.approx(-0.5)
    assert betas[-1] == pytest.approx(0.5)
    assert 0.0 in betas


@pytest.mark.parametrize("end", [0.1, 2.0])
def test_ends_come_to_lie_in_the_lowest_bin(end):
    betas, reach = np.linspace(0, end, 8), Reach((-52.0, -48.0), (-1.0, 0.0))
    for _ in range(12):
        betas = next_ladder(normal_visit(betas), reach, 10.0, None, 64)
    assert betas[0] == 0.0
    assert 0.47 <= betas[-1] <= 0.53
    rejections = normal_visit(betas).rejections
    assert rejections.max() < 1.5 * rejections.min()


def test_a_ladder_that_has_not_settled_does_not_grow():
    visit = normal_visit(np.linspace(0, 0.1, 4))
    drifting = Visit(visit.betas, visit.means, np.full(4, -5.0), visit.rejections)
    reach = Reach((-52.0, -48.0), (-1.0, 0.0))
    assert next_ladder(drifting, reach, 10.0, 4, 64)[-1] == pytest.approx(0.1)


def test_swaps_keep_the_joint_target_of_two_rungs():
    """Two outputs at two temperatures: shares of the four joint states stay those of the target."""
    betas = torch.tensor([0.2, 1.1], dtype=torch.float64)
    levels = torch.tensor([0.0, 1.5], dtype=torch.float64)
    weights = torch.softmax(-betas[:, None] * levels, dim=1)
    generator = torch.Generator().manual_seed(0)
    pairs = 200_000
    drawn = torch.stack(
        [torch.multinomial(w, pairs, replacement=True, generator=generator) for w in weights], 1
    )
    state = State(drawn.reshape(-1, 1), levels[drawn.flatten()])
    rejections = swap_rejections(state.outputs.numpy().reshape(pairs, 2), betas.numpy())
    after, origin = swapped(state, betas.numpy(), pairs, 0, generator)
    assert torch.equal(after.outputs, state.outputs[origin])
    found = after.outputs.reshape(-1, 2).eq(1.5).double()
    # Five binomial standard errors of 200,000 pairs.
    assert torch.allclose(found.mean(dim=0), weights[:, 1], atol=0.006)
    # Only the colder rung at the lower level and the warmer at the higher may refuse to swap.
    refused = weights[0, 1] * weights[1, 0] * (1 - torch.exp(-0.9 * levels[1]))
    assert rejections[0] == pytest.approx(float(refused), abs=0.006)
    assert (found[:, 0] * found[:, 1]).mean() == pytest.approx(
        float(weights[0, 1] * weights[1, 1]), abs=0.006
    )


def test_turns_go_to_the_kernels_that_renew_most_per_evaluation():
    """The Hamiltonian move costs four evaluations; here it goes twice as far as the redraw on both rungs."""
    kernels = kernels_of(["tilted", "hamiltonian", "crossover"])
    turns = Turns.among(kernels, 2)
    assert np.bincount([turns.next() for _ in range(6)]).tolist() == [2, 2, 2]
    for _ in range(10):
        turns.note(0, np.array([3.0, 1.0, 3.0, 1.0]))
        turns.note(1, np.array([6.0, 2.0, 6.0, 2.0]))
        turns.note(2, np.full(4, 100.0))
    after = turns.learned(5)
    spent = after.shares * after.costs
    spent /= spent.sum()
    # Per evaluation 1 against 1/2, squared 4 to 1; a tenth each beside, of two thirds of all evaluations.
    assert spent == pytest.approx([2 / 3 * (0.1 + 0.8 * 0.8), 2 / 3 * (0.1 + 0.8 * 0.2), 1 / 3])
    drawn = np.bincount([after.next() for _ in range(1000)], minlength=3) / 1000
    assert drawn == pytest.approx(after.shares, abs=2e-3)


def test_round_trips_count_there_and_back_to_each_end():
    """One walker on a ladder with home in the middle; what it did before it was home first does not count."""
    trips = RoundTrips.none(1, ends=2)
    here, away = np.array([0]), np.zeros(0, dtype=np.int64)
    places = {"home": (here, [away, away]), "first": (away, [here, away]), "last": (away, [away, here])}
    for place in ["first", "home", "last", "home", "first", "first", "home", "home", "last"]:
        trips.touch(*places[place])
    assert trips.trips.tolist() == [1, 1]
    trips.touch(*places["home"])
    assert trips.trips.tolist() == [1, 2]
    assert trips.total == 1


@given(st.lists(st.floats(-50, 50, allow_nan=False), min_size=1, max_size=40))
def test_bins_are_half_open_and_the_last_is_closed(outputs):
    edges = np.array([-10.0, -2.5, 0.0, 7.0])
    index = bin_index(np.array(outputs), edges)
    counts = np.bincount(index[index >= 0], minlength=3)
    assert counts.tolist() == np.histogram(outputs, edges)[0].tolist()


@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=8, unique=True),
    st.lists(st.integers(-60, 60), min_size=1, max_size=30),
    st.floats(0.01, 5.0),
)
def test_fine_bins_add_up_to_the_reported_ones(edges, outputs, steepest):
    edges = np.sort(np.array(edges, dtype=float))
    values = np.array(outputs, dtype=float)
    fine = fine_edges(edges, values.min(), values.max(), steepest)
    record = LadderRecord.start(edges, fine, 1, 4, 2)
    record.add(values.reshape(-1, 1, 1))
    owner, counts = record.owner, record.blocks.sums["counts"].sum(axis=(0, 1))
    found = np.bincount(owner[owner >= 0], counts[owner >= 0], minlength=len(edges) - 1)
    assert found.tolist() == np.histogram(values, edges)[0].tolist()
