"""A Trace holds rows that belong together and cannot be taken apart."""

import pickle

import pandas as pd
import pytest
import torch

import assay
from assay import Trace
from assay.errors import AssayWarning, InputError


@pytest.fixture
def trace():
    return Trace(
        logits=torch.tensor([[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]]),
        features={"penultimate": torch.arange(6.0).reshape(3, 2)},
        labels=torch.tensor([0, 0, 0]),
        inputs={"x": torch.arange(3.0).reshape(3, 1), "mask": torch.ones(3, 1)},
    )


def test_derived_parts(trace):
    assert trace.predictions.tolist() == [0, 1, 0]
    assert trace.correct.tolist() == [True, False, True]
    assert trace.probabilities[2].tolist() == [0.5, 0.5]
    assert len(trace) == 3
    assert list(trace.to_frame()) == ["prediction", "confidence", "label", "correct"]


def test_probabilities_are_stable_far_from_zero():
    probabilities = Trace(torch.tensor([[1e4, 1e4 - 1], [-1e4, -1e4 - 1]])).probabilities
    expected = torch.sigmoid(torch.tensor(1.0, dtype=torch.float64))
    assert torch.allclose(probabilities[:, 0], expected.expand(2), atol=1e-15)


@pytest.mark.parametrize(
    "rows",
    [slice(1, None), torch.tensor([False, True, True]), torch.tensor([1, 2])],
    ids=["slice", "mask", "indices"],
)
def test_indexing_takes_the_same_rows_of_every_part(trace, rows):
    part = trace[rows]
    assert part.logits.tolist() == [[0, 1], [5, 5]]
    assert part.features["penultimate"].tolist() == [[2, 3], [4, 5]]
    assert part.labels.tolist() == [0, 0]
    assert part.inputs["x"].tolist() == [[1], [2]]


def test_an_integer_gives_a_trace_of_one_row(trace):
    assert trace[-1].logits.tolist() == [[5, 5]]
    with pytest.raises(IndexError):
        trace[3]


def test_concatenation_undoes_splitting(trace, tmp_path):
    back = trace[:1] + trace[1:]
    assert torch.equal(back.logits, trace.logits)
    assert torch.equal(back.inputs["x"], trace.inputs["x"])
    assert torch.equal(back.layer("penultimate"), trace.layer("penultimate"))
    assert torch.equal(back.labels, trace.labels)


def test_traces_with_other_parts_do_not_concatenate(trace):
    with pytest.raises(InputError, match="same parts"):
        Trace.concatenate([trace, Trace(trace.logits)])
    with pytest.raises(InputError, match="at least one"):
        Trace.concatenate([])


def test_a_trace_cannot_be_changed(trace):
    with pytest.raises(AttributeError):
        trace.logits = torch.zeros(3, 2)
    with pytest.raises(TypeError):
        trace.features["penultimate"] = torch.zeros(3, 2)


def test_what_is_missing_is_said(trace):
    bare = Trace(trace.logits)
    with pytest.raises(InputError, match="labels"):
        _ = bare.correct
    with pytest.raises(InputError, match="keep_inputs=True"):
        _ = bare.known_inputs
    with pytest.raises(InputError, match=r"'conv'.*\['penultimate'\]"):
        trace.layer("conv")


@pytest.mark.parametrize(
    "parts",
    [
        {"logits": torch.zeros(3)},
        {"logits": torch.zeros(3, 2), "labels": torch.zeros(2, dtype=torch.long)},
        {"logits": torch.zeros(3, 2), "features": {"a": torch.zeros(4, 1)}},
        {"logits": torch.zeros(3, 2), "inputs": {"x": torch.zeros(1, 1)}},
    ],
)
def test_rows_that_do_not_belong_together_are_refused(parts):
    with pytest.raises(InputError, match="expected"):
        Trace(**parts)


def test_a_trace_goes_through_a_file(trace, tmp_path):
    assay.save(trace, tmp_path / "trace.safetensors")
    back = assay.load(tmp_path / "trace.safetensors")
    assert torch.equal(back.logits, trace.logits)
    assert torch.equal(back.inputs["mask"], trace.inputs["mask"])
    assert torch.equal(back.layer("penultimate"), trace.layer("penultimate"))


@pytest.mark.parametrize("label", [2, 99, -1])
def test_a_label_that_is_no_class_is_refused_where_labels_meet_logits(trace, label):
    labels = torch.tensor([0, label, 1])
    with pytest.raises(InputError, match=f"expected labels from 0 to 1, .* got .*{label}"):
        Trace(trace.logits, labels=labels)
    seen = []

    class Counting(torch.nn.Linear):
        def forward(self, rows):
            seen.append(len(rows))
            return super().forward(rows)

    network = assay.Network(torch.nn.Sequential(torch.nn.Linear(2, 2), Counting(2, 2)), batch_size=3)
    with pytest.raises(InputError, match="expected labels from 0 to 1"):
        network.observe((torch.zeros(300, 2), labels.repeat(100)))
    assert len(seen) == 1  # after the first batch that has it, not after the last


@pytest.fixture
def dense():
    """Three inputs: two rows, none, one."""
    return Trace(
        torch.tensor([[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]]),
        {"boxes": torch.arange(3.0)[:, None]},
        torch.tensor([0, 0, 0]),
        torch.tensor([[1.0], [2.0], [3.0]]),
        torch.tensor([0, 0, 2]),
        3,
    )


def test_the_source_of_a_row_survives_slices_concatenation_and_files(dense, tmp_path):
    last = dense[1:]
    assert (last.source.tolist(), last.input_count, len(last.inputs)) == ([0, 2], 3, 3)
    assert last.of_inputs(last.inputs[:, 0]).tolist() == [1, 3]
    twice = dense + last
    assert twice.source.tolist() == [0, 0, 2, 3, 5]
    assert twice.input_count == len(twice.inputs) == 6
    assert twice.inputs[twice.source][:, 0].tolist() == [1, 1, 3, 1, 3]
    assay.save(twice, tmp_path / "trace.safetensors")
    back = assay.load(tmp_path / "trace.safetensors")
    assert torch.equal(back.source, twice.source)
    assert back.input_count == 6
    assert list(dense.to_frame()) == ["source", "prediction", "confidence", "label", "correct"]
    with pytest.raises(InputError, match="same parts"):
        Trace.concatenate([dense, Trace(dense.logits, dense.features, dense.labels, dense.inputs)])


@pytest.mark.parametrize(
    ("source", "count", "words"),
    [
        (torch.tensor([0, 1]), 2, "one row of source"),
        (torch.tensor([0, 1, 2]), 2, "sources from 0 to 1"),
        (torch.tensor([0, 0, -1]), 2, "got -1 to 0"),
        (torch.tensor([0.0, 0.0, 1.0]), 2, "whole number per row"),
        (torch.tensor([0, 0, 1]), -1, "input_count"),
    ],
)
def test_sources_that_are_no_inputs_are_refused(source, count, words):
    with pytest.raises(InputError, match=words):
        Trace(torch.zeros(3, 2), source=source, input_count=count)


def probabilities_of(rows, seed=0):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed)).mul(2).softmax(dim=1)


def test_probabilities_passed_as_logits_are_recognised_and_said():
    chances = probabilities_of(30)
    with pytest.warns(AssayWarning, match=r"passed to Trace as logits are probabilities.*from_probabilities"):
        trace = Trace(chances)
    torch.testing.assert_close(trace.probabilities.float(), chances)
    parts = trace[:10] + trace[10:]  # known by now: nothing more is said
    assert torch.equal(parts.logits, trace.logits)
    assert torch.equal(Trace(chances, outputs="logits").logits, chances)
    assert torch.equal(Trace(chances, outputs="probabilities").logits, trace.logits)
    with pytest.raises(InputError, match="expected probabilities from Trace"):
        Trace(chances * 2, outputs="probabilities")


def test_logits_that_were_stated_stay_so_in_a_file(tmp_path):
    trace = Trace(probabilities_of(30), outputs="logits")
    assay.save(trace, tmp_path / "trace")
    assert torch.equal(assay.load(tmp_path / "trace").logits, trace.logits)
    assert torch.equal(trace[:25].logits, trace.logits[:25])


FORMS = {
    "tensor": lambda chances: chances,
    "half": lambda chances: chances.half(),
    "bfloat16": lambda chances: chances.bfloat16(),
    "array": lambda chances: chances.numpy(),
    "frame": lambda chances: pd.DataFrame(chances.numpy(), columns=["a", "b", "c"]),
    "list": lambda chances: chances.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_trace_of_saved_predictions_in_any_form(form):
    chances, labels = probabilities_of(30), torch.arange(30) % 3
    trace = Trace.from_probabilities(FORMS[form](chances), pd.Series(labels.numpy()))
    # Half precision keeps three digits, bfloat16 two.
    tolerance = {"half": 1e-3, "bfloat16": 1e-2}.get(form, 1e-6)
    torch.testing.assert_close(trace.probabilities.float(), chances, rtol=tolerance, atol=tolerance)
    assert torch.equal(trace.labels, labels)
    assert Trace.from_probabilities(FORMS[form](chances)).labels is None


@pytest.mark.parametrize("column", [[0.25, 1.0], [[0.25], [1.0]]])
def test_one_column_of_probabilities_is_two_classes(column):
    trace = Trace.from_probabilities(column, labels=[0, 1])
    torch.testing.assert_close(trace.probabilities, torch.tensor([[0.75, 0.25], [0.0, 1.0]]).double())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.5, 0.6]], "row 0 sums to 1.1"),
        ([[1.5, -0.5]], "contains -0.5"),
        ([[0.5, float("nan")]], "contains NaN"),
        ([1.5, 0.2], "contains -0.5"),
        ([["a", "b"]], "not a table of numbers"),
        ([[[0.5, 0.5]]], r"got \(1, 1, 2\)"),
    ],
)
def test_what_is_no_table_of_probabilities_is_refused(rows, words):
    with pytest.raises(InputError, match=words):
        Trace.from_probabilities(rows)


OF_OUTPUTS = ["MaxSoftmax", "Entropy", "GEN", "KLMatching", "MaxLogit", "OpenMax"]


@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_monitors_of_outputs_work_from_saved_predictions(name):
    logits = 2 * torch.randn(80, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = logits.log_softmax(dim=1)  # what is left of them after a softmax
    labels = logits.argmax(dim=1)
    saved = Trace.from_probabilities(logits.softmax(dim=1), labels)
    build = getattr(assay.monitors, name)
    expected = build().fit(Trace(logits, labels=labels)[:50]).score(Trace(logits, labels=labels)[50:])
    torch.testing.assert_close(build().fit(saved[:50]).score(saved[50:]), expected)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: assay.monitors.Energy(), "expected logits to fit Energy on"),
        (lambda: assay.monitors.Mahalanobis(), "expected features of layer 'penultimate', got none"),
        (lambda: assay.monitors.InputRange(low=0.0, high=1.0), "expected a Trace with inputs"),
    ],
)
def test_other_monitors_say_what_they_need(build, words):
    saved = Trace.from_probabilities(probabilities_of(80))
    with pytest.raises(InputError, match=words):
        build().fit(saved).score(saved)


def test_a_trace_travels_to_other_processes():
    trace = Trace(torch.randn(3, 2), {"a": torch.ones(3, 4)}, torch.tensor([0, 1, 0]), torch.zeros(3, 5))
    again = pickle.loads(pickle.dumps(trace[1:]))
    assert torch.equal(again.logits, trace.logits[1:])
    assert torch.equal(again.features["a"], trace.features["a"][1:])
    assert torch.equal(again.labels, trace.labels[1:])
    assert torch.equal(again.inputs, trace.inputs[1:])
