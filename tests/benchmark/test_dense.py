"""Guards of a segmentation network and of a detector, trained here on scenes of digits, meet faults."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.benchmark.measures import all_measures, counts_by_input
from assay.benchmark.oracle import specific_outcome, specific_truth
from assay.demo.dense_networks import detected_classes, detections, trained_detector, trained_segmenter
from assay.demo.networks import without
from assay.demo.scenes import scenes

SETTINGS = {"level": 0.95, "resamples": 200, "seed": 0}
FAULTS = ("gaussian", "pixel_trap", "fgsm")


@pytest.fixture(scope="module")
def data():
    train, (images, labels) = (without(part, [9]) for part in assay.data.digits(test_share=0.4))
    half = len(labels) // 2
    return (
        scenes(train, 400, classes=9),
        scenes((images[:half], labels[:half]), 60, classes=9, seed=1),
        scenes((images[half:], labels[half:]), 80, classes=9, seed=2),
    )


@pytest.fixture(scope="module")
def novel():
    """Scenes of nothing but nines."""
    images, labels = assay.data.digits()[1]
    return scenes((images[labels == 9], labels[labels == 9]), 40, seed=3).images


@pytest.fixture(scope="module")
def segmenter(data):
    module = trained_segmenter(data[0], epochs=6)
    return assay.Network(module, layers="body", rows=assay.PixelRows(stride=2), batch_size=32)


@pytest.fixture(scope="module")
def detector(data):
    rows = assay.FunctionRows(detections, labels=detected_classes)
    return assay.Network(trained_detector(data[0], epochs=10), layers="body", rows=rows, batch_size=32)


def labels_of(network, part):
    return part.maps if isinstance(network.rows, assay.PixelRows) else part.boxes


@pytest.fixture(scope="module")
def results(data, novel, segmenter, detector):
    found = {}
    for network in (segmenter, detector):
        train, held, test = data
        fitted = network.observe((train.images, labels_of(network, train)), keep_inputs=True)
        calibrating = network.observe(held.images, keep_inputs=True)
        monitors = {
            "max softmax": assay.monitors.MaxSoftmax(),
            "knn": assay.monitors.KNN(layer="body", limit=2000),
        }
        guards = {
            name: assay.Guard(network, monitor.fit(fitted)).calibrate(calibrating, 0.1)
            for name, monitor in monitors.items()
        }
        scenarios = assay.build_scenarios(
            test.images,
            labels_of(network, test),
            network=network,
            severities=(5,),
            faults=FAULTS,
            novelty={"nines": novel},
        )
        found[network] = guards, scenarios, assay.run_benchmark(guards, scenarios, resamples=200)
    return found


def test_the_networks_have_learned_their_task(data, segmenter, detector):
    test = data[2]
    pixels = segmenter.observe((test.images, test.maps))
    digits = pixels.labels != 9
    assert pixels.ignored > 0
    assert float(pixels.correct[digits].double().mean()) > 0.6  # of nine digits
    boxes = detector.observe((test.images, test.boxes))
    there = sum(len(scene["labels"]) for scene in test.boxes)
    assert 0.9 < len(boxes) / there < 1.1
    assert float((boxes.labels != 9).double().mean()) > 0.9  # nearly every box overlaps a digit by half
    assert float(boxes.correct.double().mean()) > 0.5
    assert boxes.features["boxes"].shape == (len(boxes), 4)


def test_faults_of_images_show_in_rows_and_in_whole_inputs(results, segmenter, detector):
    for network in (segmenter, detector):
        guards, scenarios, result = results[network]
        table = result.to_frame()
        assert set(table["scenario"]) == {"gaussian (5)", "pixel_trap (5)", "fgsm (5)", "nines"}
        assert (table["rows"] > 80).all()
        best = result.by_guard().set_index("guard").loc[result.best]
        assert best["specific_mcc"] > 0.1
        assert best["input_mcc"] > best["specific_mcc"]  # a whole input says more than one of its rows
        assert "on whole inputs its alarms correlate" in result.summary()
        assert (result.table["inputs"] == [len(s) for s in scenarios for _ in guards]).all()


def test_measures_are_those_of_every_row_against_the_fault_of_its_input(results, segmenter):
    guards, scenarios, result = results[segmenter]
    guard, scenario = guards["knn"], scenarios[0]
    trace = guard.observe(scenario.inputs)
    labels = segmenter.row_labels(scenario.labels, trace)
    verdict = guard.judge(trace)
    known = labels != -100
    is_fault = scenario.is_fault[trace.source][known].numpy()
    alarm, scores = verdict.alarm[known].numpy(), verdict.scores[known].numpy()
    truth = specific_truth(is_fault, is_fault, is_fault)
    expected = all_measures(
        "specific", truth, specific_outcome(is_fault, is_fault, is_fault, alarm), scores, SETTINGS
    )
    row = result.table[(result.table["guard"] == "knn") & (result.table["scenario"] == scenario.name)].iloc[0]
    for name in ("mcc", "fpr", "recall", "auroc"):
        assert row[f"specific_{name}"] == pytest.approx(expected[f"specific_{name}"])
    whole = scenario.is_fault.numpy(), verdict.per_input.alarm.numpy()
    assert row["input_fpr"] == pytest.approx(whole[1][~whole[0]].mean())
    assert row["input_recall"] == pytest.approx(whole[1][whole[0]].mean())
    assert row["accuracy"] == pytest.approx(float((verdict.predictions == labels)[known].double().mean()))
    # Pixels of one image are alike, so the interval over images is wider than one over pixels.
    width = row["specific_mcc_upper"] - row["specific_mcc_lower"]
    assert width > 1.5 * (expected["specific_mcc_upper"] - expected["specific_mcc_lower"])


def test_novelties_have_no_right_class_in_any_row(results, detector):
    _, scenarios, result = results[detector]
    scenario = scenarios[-1]
    assert scenario.is_novelty
    assert [label is None for label in scenario.labels] == scenario.is_fault.tolist()
    rows = result.table[result.table["scenario"] == "nines"]
    assert (rows["accuracy"] < 0.5).all()


def test_a_run_resumes_where_it_was_stopped(results, detector, tmp_path):
    guards, scenarios, result = results[detector]
    options = {"resamples": 200, "checkpoint": tmp_path / "cells", "readouts": tmp_path / "rows"}
    assay.run_benchmark(guards, scenarios[:2], **options)
    cell = json.loads(next((tmp_path / "cells").iterdir()).read_text())
    assert len(cell["rows_of_inputs"]) == len(scenarios[0])
    again = assay.run_benchmark(guards, scenarios, **options)
    timed = [name for name in result.table if name.endswith("seconds")]
    assert again.table.drop(columns=timed).equals(result.table.drop(columns=timed))
    assert again.errors == pytest.approx(result.errors)
    readout = pd.read_parquet(next((tmp_path / "rows").iterdir()))
    assert list(readout)[:3] == ["guard", "scenario", "source"]


def test_the_result_goes_into_a_report_with_whole_inputs(results, segmenter, tmp_path):
    assay.write_report([results[segmenter][2]], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "of whole inputs, of which each has several predictions" in page


def test_recorded_scenes_make_a_scenario(data, segmenter, results):
    guards, _, _ = results[segmenter]
    test = data[2]
    recorded = assay.Scenario.of("fog", "shift", test.images, test.maps, np.arange(80) % 2 == 0)
    found = assay.run_benchmark(guards, [recorded], resamples=50)
    assert found.table["faults"].tolist() == [40, 40]
    with pytest.raises(assay.AssayError, match="expected labels from 0 to 9 in scenario"):
        assay.run_benchmark(
            guards, [assay.Scenario.of("fog", "shift", test.images, test.maps + 9, np.arange(80) % 2 == 0)]
        )


def test_inputs_and_not_rows_are_independent_in_the_error_of_a_mean_mcc():
    """Rows that repeat those of their input add no evidence: the error is that of one row per input."""
    from assay.benchmark.mean_mcc import MeanMcc

    generator = np.random.default_rng(0)
    is_fault = generator.random(200) < 0.5
    alarm = np.where(generator.random(200) < 0.8, is_fault, ~is_fault)
    scenario = assay.Scenario.of("x", "noise", torch.zeros(200, 1), torch.zeros(200), is_fault)
    one, repeated = MeanMcc(), MeanMcc()
    one.add(scenario, alarm)
    repeated.add(scenario, alarm.repeat(7), np.arange(200).repeat(7))
    assert repeated.error == pytest.approx(one.error)
    counts = counts_by_input(np.array([0, 1, 1, 3]), 4, np.array([0, 0, 2, 2]))
    assert counts.tolist() == [[1, 1, 0, 0], [0, 1, 0, 1]]
