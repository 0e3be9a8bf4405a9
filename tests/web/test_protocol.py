"""Numbers of the v2 protocol come out as they were sent, or are refused; none wraps."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay import Trace, Verdict
from assay.errors import InputError
from assay.guard import Answer, InputVerdict
from assay.web.protocol import TYPES, parse_request, response_body

WHOLE = [name for name, kind in TYPES.items() if np.dtype(kind).kind in "biu"]


def sent(datatype, *numbers):
    part = {"name": "x", "shape": [len(numbers)], "datatype": datatype, "data": list(numbers)}
    return parse_request(json.dumps({"inputs": [part]}).encode(), 256)[1]


@given(st.sampled_from(WHOLE), st.integers(-(2**65), 2**65) | st.integers(-300, 300))
def test_a_whole_number_comes_out_as_it_is_or_not_at_all(datatype, number):
    low, high = (
        (0, 1) if datatype == "BOOL" else (np.iinfo(TYPES[datatype]).min, np.iinfo(TYPES[datatype]).max)
    )
    if low <= number <= high:
        assert sent(datatype, 0, number).tolist() == [0, number]
    else:
        with pytest.raises(InputError, match=f"{datatype}"):
            sent(datatype, 0, number)


@pytest.mark.parametrize("datatype", WHOLE)
def test_the_ends_of_every_whole_type(datatype):
    low, high = (
        (0, 1) if datatype == "BOOL" else (np.iinfo(TYPES[datatype]).min, np.iinfo(TYPES[datatype]).max)
    )
    assert sent(datatype, int(low), int(high)).tolist() == [low, high]
    for beyond in (int(low) - 1, int(high) + 1):
        with pytest.raises(InputError, match=datatype):
            sent(datatype, beyond)


def test_uint8_is_taken_and_int8_300_is_not_44():
    assert sent("UINT8", 0, 255).numpy().dtype == np.uint8
    with pytest.raises(InputError, match="from -128 to 127 in 'x', the range of INT8, got 300"):
        sent("INT8", 300)


@pytest.mark.parametrize(("datatype", "number"), [("FP16", 70000), ("FP16", -7e4), ("FP32", 1e39)])
def test_a_number_does_not_become_infinite(datatype, number):
    with pytest.raises(InputError, match=f"the range of {datatype}"):
        sent(datatype, 0, number)
    assert sent(datatype, 65504.0).tolist() == [65504.0]


def test_true_and_false_are_one_and_zero():
    assert sent("BOOL", True, False, 1).tolist() == [True, False, True]


def test_nobody_multiplies_a_shape_of_huge_numbers():
    """A body of 16 MB could hold some whose product has sixteen million digits: hours of work."""
    part = {"name": "x", "shape": [10**1000] * 50, "datatype": "FP32", "data": [0]}
    with pytest.raises(InputError, match="a shape of 1 to 32 whole numbers"):
        parse_request(json.dumps({"inputs": [part]}).encode(), 256)


def test_an_answer_about_several_predictions_says_of_which_input_each_is():
    source = torch.tensor([0, 0, 2])
    scores, alarm = torch.tensor([0.5, 1.5, 0.0], dtype=torch.float64), torch.tensor([False, True, False])
    on_inputs = InputVerdict(
        torch.tensor([2, 0, 1]),
        torch.tensor([1, 0, 0]),
        torch.tensor([1.0, torch.nan, 0.0], dtype=torch.float64),
        torch.tensor([True, True, False]),
    )
    trace = Trace(torch.eye(3), source=source, input_count=3)
    dense = Answer(Verdict(trace.predictions, scores, alarm, source, on_inputs), trace, 0.0, 0.0)
    plain = Answer(Verdict(trace.predictions, scores, alarm), Trace(torch.eye(3)), 0.0, 0.0)

    def outputs(answer, *names):
        request = {"outputs": [{"name": name} for name in names]}
        body = json.loads(response_body(request, answer, "guard", "1", 10_000))
        return {output["name"]: output["data"] for output in body["outputs"]}

    assert outputs(plain).keys() == {"prediction", "score", "alarm"}
    assert outputs(dense) == {
        "prediction": [0, 1, 2],
        "score": [0.5, 1.5, 0.0],
        "alarm": [False, True, False],
        "source": [0, 0, 2],
        "input_score": [1.0, None, 0.0],
        "input_alarm": [True, True, False],
    }
    assert outputs(dense, "source", "logits")["logits"] == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    with pytest.raises(InputError, match=r"one prediction each, got \['source'\]"):
        outputs(plain, "source")
