"""Sizes at which memory counts: a thousand classes of 2,048 features, and images of type uint8."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

import assay
from assay.monitors import Mahalanobis

Row = tuple[str, float, float]
NOTHING = float("nan")

CLASSES, FEATURES, PER_CLASS = 1000, 2048, 20
IMAGES, SIDE = 6000, 96


def classes() -> Iterator[Row]:
    """Seconds and memory beside the Trace; the shrinkage and some distances beside scikit-learn's."""
    from sklearn.covariance import LedoitWolf

    trace = _features()
    rows, labels = trace.features["penultimate"], trace.known_labels
    for options in ({"estimator": "ledoit_wolf"}, {"covariance": "low_rank", "estimator": "oas"}):
        before, start = _peak(), time.perf_counter()
        monitor = Mahalanobis(**options).fit(trace)
        name = " ".join(options.values())
        yield f"{name}: seconds to fit {len(rows):,} rows", time.perf_counter() - start, NOTHING
        yield f"{name}: GB of memory beside the Trace", _peak() - before, NOTHING
        scores = monitor.score(trace[:100])
        yield f"{name}: scores that are finite", float(torch.isfinite(scores).double().mean()), 1.0
        if name == "ledoit_wolf":
            few = monitor.distances(trace[:100]).numpy()
    means = torch.zeros(CLASSES, FEATURES).index_add_(0, labels, rows) / PER_CLASS
    fitted = LedoitWolf(assume_centered=True, store_precision=False).fit((rows - means[labels]).numpy())
    away = (rows[:100] - means[labels[:100]]).double().numpy()
    theirs = np.einsum("nd,dn->n", away, np.linalg.solve(fitted.covariance_, away.T))
    ours = few[np.arange(100), labels[:100].numpy()]
    yield "ledoit_wolf: mean distance to the own class", float(ours.mean()), float(theirs.mean())


def pixels() -> Iterator[Row]:
    """GB of images, and all that a process takes which checks a network on them, after importing assay."""
    for kind in ("uint8", "float"):
        code = f"from shipped.sizes import checked; checked({kind!r})"
        found = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[1],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        yield f"{kind}: GB of the images", float(found[0]), NOTHING
        yield f"{kind}: GB at most during check_network, images included", float(found[1]), NOTHING


def _features() -> assay.Trace:
    """Classes with means of their own; widths of features fall as those of a network do."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat(PER_CLASS)
    widths = torch.arange(1, FEATURES + 1) ** -0.5
    means = torch.randn(CLASSES, FEATURES, generator=generator) * widths
    rows = torch.randn(len(labels), FEATURES, generator=generator) * widths + means[labels]
    logits = torch.nn.functional.one_hot(labels, CLASSES).float()
    return assay.Trace(logits, {"penultimate": rows}, labels, outputs="logits")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def checked(kind: str) -> None:
    """Check a network in this process, and print both figures of `pixels`."""
    before = _peak()
    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, 3, SIDE, SIDE)
    if kind == "uint8":
        images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    else:
        images = torch.rand(shape, generator=generator)
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)
    )
    network = assay.Network(module, scale=255, batch_size=64)
    labels = network.observe(images[:64]).predictions.repeat(IMAGES)[:IMAGES]
    assay.check_network(
        network, (images, labels), faults=("dead_rows", "fgsm"), severities=(3,), low=0.0, high=1.0
    )
    print(images.numel() * images.element_size() / 1e9, _peak() - before)
