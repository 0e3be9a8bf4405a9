"""A guard of a network with several predictions per input judges each, and whole inputs as well."""

import pytest
import torch
from torch import nn

import assay
from assay import Guard, PixelRows, Trace
from assay.errors import InputError, UndecidedError
from assay.guard.input_verdict import input_scores
from assay.monitors import (
    ODIN,
    AnyOf,
    EnsembleDisagreement,
    InputRange,
    MaxLogit,
    MonteCarloDropout,
    Reconstruction,
    TemperatureScaled,
)


class Columns(nn.Module):
    """Logits (N, 2, 4, 4): how bright a pixel is, and how dark."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(1, 2, 1)
        with torch.no_grad():
            self.body.weight.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1, 1))
            self.body.bias.zero_()

    def forward(self, images):
        return self.body(images)


@pytest.fixture
def network():
    return assay.Network(Columns(), layers="body", rows="pixels", batch_size=8)


def drawn(count, seed):
    return torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def traced(scores, source, inputs):
    """A Trace whose MaxLogit scores are these numbers."""
    values = -torch.as_tensor(scores, dtype=torch.float64)
    return Trace(torch.stack([values, values - 1], dim=1), source=torch.as_tensor(source), input_count=inputs)


@pytest.mark.parametrize(
    ("per_input", "expected"),
    [
        ("mean", [0.5, float("nan"), 0.3, float("nan"), float("nan")]),
        ("largest", [0.9, float("nan"), 0.3, float("nan"), float("nan")]),
        ("share", [0.5, float("nan"), 0.0, 1.0, 1.0]),
    ],
)
def test_the_score_of_an_input_is_that_of_its_rows(per_input, expected):
    scores = torch.tensor([0.1, 0.9, 0.3, torch.nan, torch.inf], dtype=torch.float64)
    alarm = torch.tensor([False, True, False, True, True])
    found = input_scores(per_input, scores, alarm, torch.tensor([0, 0, 2, 3, 4]), 5)
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize("per_input", ["mean", "largest", "share"])
def test_whole_inputs_keep_the_promised_rate_however_alike_their_rows_are(network, per_input):
    """Rows of an input share most of their score; the rate of alarms on inputs is what was asked for."""
    generator = torch.Generator().manual_seed(0)

    def inputs(count):
        own = torch.randn(count, generator=generator).repeat_interleave(20)
        return traced(
            own + 0.3 * torch.randn(len(own), generator=generator),
            torch.arange(count).repeat_interleave(20),
            count,
        )

    monitor = MaxLogit().fit(inputs(5))
    rates = []
    for _ in range(200):
        guard = Guard(network, monitor, per_input=per_input).calibrate(inputs(59), 0.1)
        rates.append(float(guard.judge(inputs(100)).per_input.alarm.double().mean()))
    # 60 * 0.9 is whole, so the rate is exactly 0.1 on average where scores do not tie; 200 trials know it to
    # 0.01. Shares tie at 0 and depend on the threshold of rows, which makes alarms rarer.
    mean = sum(rates) / len(rates)
    assert mean < 0.11
    assert per_input == "share" or mean > 0.09


def test_the_verdict_has_a_row_per_pixel_and_one_per_input(network):
    trace = network.observe(drawn(40, 0), keep_inputs=True)
    guard = Guard(network, MaxLogit().fit(trace)).calibrate(network.observe(drawn(60, 1)), 0.1)
    images = drawn(3, 2)
    images[1] = 0  # no pixel is bright or dark there, which is the largest score
    verdict = guard(images)
    assert verdict.source.tolist() == [0] * 16 + [1] * 16 + [2] * 16
    assert verdict.per_input.rows.tolist() == [16, 16, 16]
    assert verdict.per_input.alarms.tolist() == verdict.alarm.view(3, 16).sum(dim=1).tolist()
    assert torch.allclose(verdict.per_input.scores, verdict.scores.view(3, 16).mean(dim=1))
    assert verdict.per_input.alarm.tolist() == [False, True, False]
    assert list(verdict.to_frame()) == ["source", "prediction", "score", "alarm", "reasons"]
    assert list(verdict.per_input.to_frame()) == ["rows", "alarms", "score", "alarm"]
    assert assay.Watch(guard)(images).per_input.alarm.tolist() == [False, True, False]


def test_an_input_without_rows_is_an_alarm_and_not_part_of_the_calibration(network):
    scores = torch.arange(19.0)
    guard = Guard(network, MaxLogit().fit(traced(scores, range(19), 19)))
    guard.calibrate(traced(scores, range(1, 20), 25), 0.05)
    assert guard.calibration["inputs"] == 19
    assert guard.input_threshold == 18.0
    found = guard.judge(traced([0.0, 20.0], [0, 2], 3)).per_input
    assert found.rows.tolist() == [1, 0, 1]
    assert found.alarm.tolist() == [False, True, True]
    with pytest.raises(UndecidedError, match=r"expected enough inputs with rows .* got 4"):
        guard.calibrate(traced(torch.arange(40.0), [n % 4 for n in range(40)], 4), 0.05)
    assert guard.input_threshold == 18.0  # as it was


def test_a_trace_without_the_rows_to_be_ignored_is_no_reference(network):
    """The guard meets those rows in operation: without them the promise would not hold."""
    images = drawn(40, 0)
    maps = torch.zeros(40, 4, 4, dtype=torch.long)
    maps[:, 0] = -100
    trace = network.observe((images, maps))
    guard = Guard(network, MaxLogit().fit(trace))
    for part in (trace, trace[:300], trace + trace):
        with pytest.raises(InputError, match=r"expected a Trace with every row.* without their labels"):
            guard.calibrate(part)
    assert guard.calibrate(network.observe(images)).calibration["inputs"] == 40


def test_what_is_not_finite_is_an_alarm_in_every_row_of_its_input(network):
    trace = network.observe(drawn(40, 0), keep_inputs=True)
    guard = Guard(network, MaxLogit().fit(trace)).calibrate(trace, 0.1)
    images = drawn(2, 3)
    expected = guard(images)
    images[0, 0, 1, 1] = torch.nan
    verdict = guard(images)
    assert verdict.alarm[:16].all()
    assert verdict.per_input.alarm[0]
    assert torch.equal(verdict.scores[16:], expected.scores[16:])


def test_the_file_of_a_guard_has_its_threshold_for_inputs(network, tmp_path):
    trace = network.observe(drawn(40, 0), keep_inputs=True)
    guard = Guard(network, MaxLogit().fit(trace), per_input="largest").calibrate(trace, 0.1)
    assay.save(guard, tmp_path / "guard.safetensors")
    again = assay.load(tmp_path / "guard.safetensors", network=network)
    assert again.fingerprint == guard.fingerprint
    verdict = guard(drawn(9, 4))
    assert torch.equal(again(drawn(9, 4)).per_input.alarm, verdict.per_input.alarm)
    assay.save(verdict, tmp_path / "verdict.safetensors")
    kept = assay.load(tmp_path / "verdict.safetensors")
    assert torch.equal(kept.per_input.scores, verdict.per_input.scores)
    other = Guard(network, guard.monitor, guard.threshold, input_threshold=0.5)
    assert other.fingerprint != guard.fingerprint
    with pytest.raises(InputError, match="one row per input to export"):
        guard.export(tmp_path / "guard.onnx")
    with pytest.raises(InputError, match="per_input to be one of"):
        Guard(network, guard.monitor, per_input="median")


def test_monitors_of_inputs_give_every_row_the_score_of_its_input(network):
    images = drawn(6, 5)
    images[2, 0, 0, 0] = 1.5
    trace = network.observe(images, keep_inputs=True)
    assert (
        InputRange(low=0.0, high=1.0).fit(trace).score(trace).tolist() == [0.0] * 32 + [0.5] * 16 + [0.0] * 48
    )
    doubt = Reconstruction(epochs=1).fit(trace)
    by_row = doubt.score(trace).view(6, 16)
    assert (by_row == by_row[:, :1]).all()
    part = doubt.score(trace[torch.tensor([0, 40, 95])])
    assert part.tolist() == [by_row[0, 0].item(), by_row[2, 0].item(), by_row[5, 0].item()]


def test_monitors_that_wrap_others_keep_the_inputs_of_the_rows_they_sample(network):
    images = drawn(12, 6)
    trace = network.observe((images, (images[:, 0] > 0.5).long()), keep_inputs=True)
    members = [InputRange(low=0.0, high=1.0), MaxLogit()]
    stream = [trace[:50], trace[50:]]
    together = AnyOf(members, limit=20).fit(stream)
    assert torch.isfinite(together.score(trace)).all()
    scaled = TemperatureScaled(InputRange(low=0.2, high=0.8), limit=30).fit(trace)
    expected = InputRange(low=0.2, high=0.8).fit(trace).score(trace)
    assert torch.equal(scaled.score(trace), expected)


def test_monitors_that_run_the_network_again_are_refused(network):
    trace = network.observe(drawn(4, 7), keep_inputs=True)
    for monitor in (ODIN(network), EnsembleDisagreement([network, network]), MonteCarloDropout(network)):
        with pytest.raises(InputError, match=r"one row per input for .* which runs the network again"):
            monitor.fit(trace)
    assert torch.isfinite(ODIN(network, magnitude=0).fit(trace).score(trace)).all()


def test_a_stride_changes_the_rows_and_not_the_inputs(network):
    coarse = assay.Network(network.module, layers="body", rows=PixelRows(2))
    trace = coarse.observe(drawn(40, 8), keep_inputs=True)
    guard = Guard(coarse, MaxLogit().fit(trace)).calibrate(trace, 0.1)
    assert len(guard(drawn(5, 9))) == 5 * 4
    assert len(guard(drawn(5, 9)).per_input) == 5
