"""Labels are the same whichever form they come in, wherever they come in."""

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.errors import InputError
from assay.faults import fgsm_direction, leave_out
from assay.labels import class_numbers

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
