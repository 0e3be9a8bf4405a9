"""One network measured in every way: its score, its variants, and what monitors detect. Kept as JSON."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mira_variants import all_variants

import assay
from assay.mira import Tuning
from assay.mira.detection import detection_table
from assay.mira.measurement import results_over
from assay.mira.score import swept
from assay.mira.settings import Settings


@dataclass(frozen=True)
class Subject:
    """A network with its data; built when its turn comes, because training may be what it takes."""

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
    many: bool = True
    """Whether all perturbations and both estimators of the monitors are tried."""


def measured(subject: Subject, cache: Path) -> dict[str, Any]:
    """Score, variants and detections of a subject; from the cache where they were measured before."""
    path = cache / "results" / f"{subject.group}-{subject.name}.json".replace(" ", "-")
    if path.exists():
        return json.loads(path.read_text())
    start = time.perf_counter()
    network, train, test = subject.network(), subject.train(), subject.test()
    unknown = subject.unknown()
    row: dict[str, Any] = {"name": subject.name, "group": subject.group, "thresholds": {}}
    sweep = swept(network, train, test, [("penultimate",)], Settings(**subject.options))
    for threshold in subject.thresholds:
        settings = Settings(accuracy_threshold=threshold, **subject.options)
        (result,) = results_over(sweep, settings)
        row["thresholds"][str(threshold)] = {
            "score": result.score,
            "interval": result.interval,
            "epsilon_min": result.epsilon_min,
        }
    row |= {"accuracy": result.accuracy, "dimensions": result.dimensions, "warnings": list(result.warnings)}
    low = row["thresholds"][str(subject.thresholds[0])]["epsilon_min"]
    row["variants"] = all_variants(network, train, test, low, subject.options, subject.many)
    for estimator in ("empirical", "ledoit_wolf"):
        table = detection_table(
            network,
            train,
            test,
            unknown,
            "penultimate",
            Settings(**{**subject.options, "estimator": estimator}),
            subject.tuning,
        )
        row[f"detections {estimator}"] = table.to_dict("list")
        row[f"best {estimator}"] = float(table.groupby("unknown")["auroc"].max().mean())
        if not subject.many:
            break
    row["seconds"] = time.perf_counter() - start
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))
    return row
