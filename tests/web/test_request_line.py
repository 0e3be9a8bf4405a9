"""Requests computed together get the answers they would have got alone."""

import asyncio
import json

import pytest
import torch
from starlette.testclient import TestClient
from torch import nn

from assay import Guard, Network, PixelRows, Watch
from assay.errors import InputError
from assay.monitors import MaxLogit
from assay.web.answers import Answers
from assay.web.limits import Limits
from assay.web.request_line import RequestLine
from assay.web.service import Service, build_facts
from assay.web.tally import Tally


def images(count, seed=0):
    return torch.rand(count, 3, 3, generator=torch.Generator().manual_seed(seed))


def body(rows, **more):
    entry = {"name": "x", "shape": list(rows.shape), "datatype": "FP32", "data": rows.flatten().tolist()}
    return json.dumps({"inputs": [entry], **more}).encode()


@pytest.fixture(scope="module")
def guard():
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(9, 6), nn.ReLU(), nn.Linear(6, 3)))
    trace = network.observe(images(400, 1))
    return Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.2)


def answering(guard, **limits):
    tally = Tally(Watch(guard), build_facts(guard))
    return Answers(guard, tally, Limits(**limits), "guard", "1"), tally


def outputs(answer):
    return {entry["name"]: entry["data"] for entry in json.loads(answer)["outputs"]}


def test_a_batch_has_the_answers_of_its_requests_alone(guard):
    """Predictions and alarms are the same; scores to rounding, since a product of other shape may add up in
    another order: 1e-5 is a hundred roundings of single precision."""
    answers, tally = answering(guard)
    sent = [images(count, seed) for seed, count in enumerate((1, 5, 2, 40))]
    everything = [{"name": name} for name in ("prediction", "score", "alarm", "reasons", "logits")]
    found = answers([body(rows, outputs=everything) for rows in sent])
    for rows, answer in zip(sent, found, strict=True):
        (alone,) = answers([body(rows, outputs=everything)])
        one, other = outputs(answer), outputs(alone)
        for name in ("prediction", "alarm", "reasons"):
            assert one[name] == other[name]
        for name in ("score", "logits"):
            assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-6)
    assert tally.watch.state_now().predictions == 2 * 48
    assert tally.metrics.model._sum.get() > 0
    assert b"assay_model_seconds_count 5.0" in tally.text()  # one pass for all, then one for each


def test_what_is_wrong_with_one_is_not_the_others_problem(guard):
    answers, _ = answering(guard)
    guard(images(1))  # it knows the shape of its inputs now
    long = body(images(3), outputs=[{"name": "source"}])
    bodies = [
        body(images(2)),
        b"{",
        body(torch.rand(2, 3, 4)),
        long,
        body(images(1).double()),
        body(images(1)),
    ]
    found = answers(bodies)
    assert [type(one) for one in found[:4]] == [bytes, InputError, InputError, InputError]
    assert [type(one) for one in found[4:]] == [bytes, bytes]
    assert outputs(found[0])["score"] == pytest.approx(guard(images(2)).scores.tolist(), rel=1e-5)


class Stumbles(MaxLogit):
    """Fails where it sees more than two rows."""

    def _score(self, trace):
        if len(trace) > 2:
            raise ZeroDivisionError
        return super()._score(trace)


def test_a_batch_that_fails_is_computed_one_by_one(guard):
    stumbling = Guard(guard.network, Stumbles().fit(guard.network.observe(images(2))), 0.0)
    answers, tally = answering(stumbling)
    found = answers([body(images(1, 1)), body(images(3, 2)), body(images(2, 3))])
    assert [type(one) for one in found] == [bytes, ZeroDivisionError, bytes]
    assert tally.watch.state_now().predictions == 3


def test_no_pass_has_more_rows_than_a_request_may_have(guard):
    answers, tally = answering(guard, rows=6)
    assert len([one for one in answers([body(images(4, seed)) for seed in range(3)]) if one]) == 3
    assert b"assay_model_seconds_count 3.0" in tally.text()


def test_inputs_with_several_predictions_are_cut_apart_again():
    torch.manual_seed(0)
    network = Network(nn.Conv2d(1, 3, 1), layers=(), rows=PixelRows())
    inputs = torch.rand(6, 1, 2, 2)
    trace = network.observe(inputs)
    guard = Guard(network, MaxLogit().fit(trace), per_input="share").calibrate(trace, 0.3)
    whole = guard.answer(inputs)
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        part, alone = whole.of_inputs(start, stop), guard.answer(inputs[start:stop])
        assert torch.equal(part.verdict.source, alone.verdict.source)
        assert torch.equal(part.verdict.alarm, alone.verdict.alarm)
        assert torch.allclose(part.trace.logits, alone.trace.logits)
        assert torch.equal(part.verdict.per_input.rows, alone.verdict.per_input.rows)
        assert torch.equal(part.verdict.per_input.alarm, alone.verdict.per_input.alarm)
        assert torch.allclose(part.verdict.per_input.scores, alone.verdict.per_input.scores)


def test_those_who_wait_while_others_are_computed_are_taken_together():
    """With no time to wait for others a batch is what has come meanwhile, in order, and never too much."""
    taken = []

    def compute(bodies):
        taken.append([int(one) for one in bodies])
        return list(bodies)

    async def all_at_once():
        batches = RequestLine(compute, threads=1, wait=0.0, most=4)
        waiting = [batches.put(str(number).encode()) for number in range(10)]
        answers = await asyncio.gather(*waiting)
        await batches.stop()
        return answers

    assert asyncio.run(all_at_once()) == [str(number).encode() for number in range(10)]
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_waits_for_others_until_it_is_full():
    taken = []

    async def one_after_another():
        batches = RequestLine(lambda bodies: taken.append(len(bodies)) or list(bodies), 1, 3600.0, 3)
        waiting = []
        for _ in range(3):
            waiting.append(batches.put(b"x"))
            await asyncio.sleep(0)
            assert not any(one.done() for one in waiting)
        await asyncio.gather(*waiting)
        await batches.stop()

    asyncio.run(one_after_another())
    assert taken == [3]


def test_the_service_takes_the_wait_and_refuses_one_beyond_its_patience(guard):
    service = Service(Watch(guard), limits=Limits(batch_seconds=0.001))
    with TestClient(service.app) as client:
        headers = {"Content-Type": "application/json"}
        response = client.post("/v2/models/guard/infer", content=body(images(2)), headers=headers)
        assert response.json()["outputs"][1]["data"] == guard(images(2)).scores.tolist()
    with pytest.raises(InputError, match="for a batch fewer than for an answer"):
        Limits(seconds=1.0, batch_seconds=1.0)
    with pytest.raises(InputError, match="for a batch fewer than for an answer"):
        Limits(batch_seconds=-1.0)
    with pytest.raises(InputError, match="expected a Watch, got Guard"):
        Service(guard)
