"""Several predictions per input: a segmentation network and a detector, trained here on composed digits."""

from collections.abc import Iterator
from typing import Any

import torch

import assay
from assay.demo.dense_networks import detected_classes, detections, trained_detector, trained_segmenter
from assay.demo.networks import without
from assay.demo.scenes import Scenes, scenes
from assay.monitors import KNN, Energy, Mahalanobis, MaxSoftmax, Monitor

Row = tuple[str, float, float]
NOTHING = float("nan")
FAULTS = ("gaussian", "contrast", "pixel_trap", "dead_rows", "rotated", "fgsm")
RATE = 0.05


def segmentation() -> Iterator[Row]:
    """Rows are every second pixel of each axis."""
    train, held, test = _data()
    module = trained_segmenter(train)
    network = assay.Network(module, layers="body", rows=assay.PixelRows(stride=2), batch_size=64)
    trace = network.observe((test.images, test.maps))
    with torch.no_grad():
        answers = module(test.images).argmax(dim=1)[:, 1::2, 1::2]
    maps = test.maps[:, 1::2, 1::2]
    known = maps >= 0
    plain = (answers == maps)[known].double().mean()
    yield "accuracy of pixels", float(trace.correct.double().mean()), float(plain)
    yield "pixels without a label", float(trace.ignored), float((~known).sum())
    yield from _guarded(network, (train, held, test), "maps")


def detection() -> Iterator[Row]:
    """Rows are boxes; a box's label is the class of the digit that it overlaps."""
    train, held, test = _data()
    rows = assay.FunctionRows(detections, labels=detected_classes)
    network = assay.Network(trained_detector(train), layers="body", rows=rows, batch_size=64)
    trace = network.observe((test.images, test.boxes))
    yield "boxes found per digit", len(trace) / sum(len(scene["labels"]) for scene in test.boxes), NOTHING
    yield "accuracy of boxes", float(trace.correct.double().mean()), NOTHING
    yield from _guarded(network, (train, held, test), "boxes")


def _data() -> tuple[Scenes, Scenes, Scenes]:
    """Scenes of the digits 0 to 8 to learn, to calibrate and to test on, each of digits of its own."""
    learned, (images, labels) = (without(part, [9]) for part in assay.data.digits(test_share=0.4))
    half = len(labels) // 2
    return (
        scenes(learned, 800, classes=9),
        scenes((images[:half], labels[:half]), 300, classes=9, seed=1),
        scenes((images[half:], labels[half:]), 300, classes=9, seed=2),
    )


def _nines() -> Any:
    images, labels = assay.data.digits()[1]
    nines = labels == 9
    return scenes((images[nines], labels[nines]), 150, seed=3).images


def _guarded(network: assay.Network, data: tuple[Scenes, ...], kind: str) -> Iterator[Row]:
    """False alarms on rows and on whole inputs, and what guards see of faults and of nines."""
    train, held, test = data
    fitted = network.observe((train.images, getattr(train, kind)))
    calibrating = network.observe(held.images)  # with every row, as in operation
    monitors: dict[str, Monitor] = {
        "MaxSoftmax": MaxSoftmax(),
        "Energy": Energy(),
        "Mahalanobis": Mahalanobis(layer="body"),
        "KNN": KNN(layer="body", limit=5000),
    }
    guards = {
        name: assay.Guard(network, monitor.fit(fitted)).calibrate(calibrating, RATE)
        for name, monitor in monitors.items()
    }
    for name, guard in guards.items():
        verdict = guard(test.images)
        assert verdict.per_input is not None
        yield f"{name}: false alarms on rows", float(verdict.alarm.double().mean()), NOTHING
        yield f"{name}: false alarms on inputs", float(verdict.per_input.alarm.double().mean()), NOTHING
    scenarios = assay.build_scenarios(
        test.images, getattr(test, kind), network=network, faults=FAULTS, novelty={"nines": _nines()}
    )
    result = assay.run_benchmark(guards, scenarios)
    for name, row in result.by_guard().set_index("guard").iterrows():
        yield f"{name}: mean MCC of rows", float(row["specific_mcc"]), NOTHING
        yield f"{name}: mean MCC of inputs", float(row["input_mcc"]), NOTHING
        yield f"{name}: mean AUROC of inputs", float(row["input_auroc"]), NOTHING
    nines = result.table[result.table["scenario"] == "nines"].set_index("guard")
    for name in guards:
        yield f"{name}: AUROC of inputs, nines", float(nines.loc[name, "input_auroc"]), NOTHING
