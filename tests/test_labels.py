"""Labels are the same whichever form they come in, wherever they come in."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.errors import InputError
from assay.faults import fgsm_direction, leave_out
from assay.labels import class_numbers, order_hint

NUMBERS = [2, 0, 1, 2, 1, 0] * 10
FORMS = {
    "list": NUMBERS,
    "column": torch.tensor(NUMBERS)[:, None],
    "floats": torch.tensor(NUMBERS).double(),
    "column of floats": np.array(NUMBERS, np.float32)[:, None],
    "other byte order": np.array(NUMBERS, ">i4"),
    "bytes": np.array(NUMBERS, np.uint8),
    "read-only": np.frombuffer(bytes(NUMBERS), np.uint8),
    "series": pd.Series(NUMBERS, dtype=float),
    "list of tensors": [torch.tensor(number) for number in NUMBERS],
}
WRONG = {
    "one-hot": (torch.eye(3)[NUMBERS], "one-hot"),
    "halves": (torch.tensor(NUMBERS) + 0.5, "whole class numbers, got 2.5"),
    "missing": (np.array([*NUMBERS[:-1], np.nan]), "whole class numbers, got nan"),
    "infinite": (np.array([*NUMBERS[:-1], np.inf]), "whole class numbers, got inf"),
    "words": (["cat"] * 60, "number the classes"),
    "ragged": ([[1], [2, 3]], "several lengths"),
    "single": (torch.tensor(3), "one class number per input"),
}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return assay.Network(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)))


def doors(network):
    """Every place where labels come in, as a function from labels to what was made of them."""
    inputs = torch.rand(60, 4, generator=torch.Generator().manual_seed(1))
    return {
        "observe": lambda labels: network.observe((inputs, labels)).labels,
        "trace": lambda labels: assay.Trace(torch.zeros(60, 3), labels=labels).labels,
        "scenario": lambda labels: assay.Scenario.of("x", "noise", inputs, labels, [True] * 60).labels,
        "scenarios": lambda labels: assay.build_scenarios(inputs, labels, network=network)[0].labels.sort()[
            0
        ],
        "leave out": lambda labels: leave_out(inputs, labels, [1])[1],
        "attack": lambda labels: fgsm_direction(network, inputs, labels),
    }


@pytest.mark.parametrize("door", list(doors(None)))
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_labels_is_the_same_at_every_door(network, door, form):
    enter = doors(network)[door]
    assert torch.equal(enter(FORMS[form]), enter(torch.tensor(NUMBERS)))


@pytest.mark.parametrize("door", list(doors(None)))
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_label_is_refused_at_every_door(network, door, wrong):
    labels, words = WRONG[wrong]
    with pytest.raises(InputError, match=words):
        doors(network)[door](labels)


def test_a_saved_trace_keeps_its_labels(tmp_path):
    trace = assay.Trace(torch.zeros(60, 3), labels=FORMS["column"])
    assay.save(trace, tmp_path / "trace")
    assert torch.equal(assay.load(tmp_path / "trace").labels, torch.tensor(NUMBERS))
    assert trace.correct.shape == (60,)


def test_labels_that_are_right_already_are_not_copied():
    labels = torch.tensor(NUMBERS)
    assert class_numbers(labels).data_ptr() == labels.data_ptr()


def confused(order, right, count=600, seed=0):
    """Labels, and answers that name `order[label]` in a share `right` of the rows and guess otherwise."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, len(order), count)
    sure = generator.random(count) < right
    answers = np.where(sure, np.array(order)[labels], generator.integers(0, len(order), count))
    return torch.from_numpy(labels), torch.from_numpy(answers)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_the_order_that_fits_best_is_the_best_of_all_orders(classes):
    for order in itertools.permutations(range(classes)):
        labels, answers = confused(order, 0.9)
        shares = {
            other: float((torch.tensor(other)[labels] == answers).double().mean())
            for other in itertools.permutations(range(classes))
        }
        best = max(shares, key=shares.get)
        hint = order_hint(labels, answers)
        if best == tuple(range(classes)):
            assert hint == ""
        else:
            assert f"{shares[best]:.1%} instead of {shares[tuple(range(classes))]:.1%}" in hint
            assert all(f"{label} as {place}" in hint for label, place in enumerate(best) if label != place)


@pytest.mark.parametrize(
    ("labels", "answers"),
    [
        confused(range(10), 0.9),
        confused(range(10), 0.0),
        confused([1, 0], 0.0),
        confused([1, 0, 2], 0.9, count=6),  # too few rows to say so
        (torch.tensor([0] * 10 + [1] * 90), torch.zeros(100, dtype=torch.long)),  # always the rare class
        (torch.full((100,), 3), torch.full((100,), 7)),  # one class is no order
        (torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)),
    ],
)
def test_networks_that_are_right_guess_or_always_say_the_same_give_no_hint(labels, answers):
    assert order_hint(labels, answers) == ""


def test_two_swapped_classes_of_ten_are_found():
    hint = order_hint(*confused([0, 1, 2, 3, 4, 5, 6, 8, 7, 9], 0.95))
    assert "(label 7 as 8, 8 as 7)" in hint
