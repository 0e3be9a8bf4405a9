"""Everything measured of one network: its score, and what monitors detect. Cached as JSON."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import assay
from assay.mira import Tuning
from assay.mira.detection import detection_table
from assay.mira.measurement import results_over
from assay.mira.score import prepared_sweep
from assay.mira.settings import MiraSettings


@dataclass(frozen=True)
class Subject:
    """A network with its data; built when its turn comes, because it may have to be trained."""

    name: str
    group: str
    """Networks of one group share their data: correlations are taken within groups, then over all."""
    network: Callable[[], assay.Network]
    train: Callable[[], Any]
    test: Callable[[], Any]
    unknown: Callable[[], dict[str, Any]]
    thresholds: tuple[float, ...]
    tuning: Tuning
    options: dict[str, Any] = field(default_factory=dict)


PARTS = ("score", "detection")


def measured(subject: Subject, cache: Path) -> dict[str, Any]:
    """Score and detections of a subject; each from the cache where it was measured before."""
    folder = cache / "results" / f"{subject.group}-{subject.name}".replace(" ", "-")
    row: dict[str, Any] = {"name": subject.name, "group": subject.group}
    for part, measure in zip(PARTS, (_score, _detection), strict=True):
        path = folder / f"{part}.json"
        if not path.exists():
            start = time.perf_counter()
            found = measure(subject)
            folder.mkdir(parents=True, exist_ok=True)
            found[f"{part} seconds"] = time.perf_counter() - start
            path.write_text(json.dumps({"name": subject.name, "group": subject.group, **found}))
        row |= json.loads(path.read_text())
    return row


def _score(subject: Subject) -> dict[str, Any]:
    """At every threshold, from one sweep."""
    sweep = prepared_sweep(
        subject.network(),
        subject.train(),
        subject.test(),
        [("penultimate",)],
        MiraSettings(**subject.options),
    )
    found = {}
    for threshold in subject.thresholds:
        (result,) = results_over(sweep, MiraSettings(accuracy_threshold=threshold, **subject.options))
        found[str(threshold)] = {
            "score": result.score,
            "interval": result.interval,
            "epsilon_min": result.epsilon_min,
        }
    return {
        "thresholds": found,
        "accuracy": result.accuracy,
        "dimensions": result.dimensions,
        "warnings": list(result.warnings),
    }


def _detection(subject: Subject) -> dict[str, Any]:
    table = detection_table(
        subject.network(),
        subject.train(),
        subject.test(),
        subject.unknown(),
        "penultimate",
        MiraSettings(**subject.options),
        subject.tuning,
    )
    return {
        "detections": table.to_dict("list"),
        "best": float(table.groupby("unknown")["auroc"].max().mean()),
    }
