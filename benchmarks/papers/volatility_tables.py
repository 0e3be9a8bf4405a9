"""What the jobs of volatility.py found, kept as JSON in the cache, and the tables of the docs made of it."""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pages import markdown

Options = argparse.Namespace
Facts = dict[str, Any]

NAMES = {
    "ann": "ANN, MNIST",
    "cnn": "CNN, MNIST",
    "vgg": "VGG-like, CIFAR-10",
    "resnet20": "ResNet-20, CIFAR-10",
}
PAPER_ACCURACIES = {"ann": (0.999, 0.982), "cnn": (0.999, 0.994), "vgg": (0.995, 0.905)}
"""Table II: training and validation."""
PAPER_A = {"ann": -0.94, "cnn": -0.94, "vgg": -0.89}
PAPER_B = {"ann": -0.952, "cnn": -0.994, "vgg": -0.850}
PAPER_TRAINING = (-0.878, -0.132)
"""Above and up to an accuracy of 0.5."""
FLOOR = math.log(1e-6**2)
"""log VC of equal margins of 1: Eq. 6 is (epsilon_0)^2 there."""


def note(options: Options, job: str, facts: Facts) -> None:
    """Keep what a job found about a network; a later run of it replaces what it found before."""
    folder = options.cache / "found"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{job}.json").write_text(json.dumps(facts))


def noted(options: Options, job: str) -> Facts | None:
    path = options.cache / "found" / f"{job}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _by_network(options: Options, job: str) -> Iterator[tuple[str, Facts]]:
    for name in NAMES:
        if (facts := noted(options, f"{job}-{name}")) is not None:
            yield name, facts


def _level(log_vc: float) -> str:
    """To one place; marked where epsilon_0 and no gap between margins makes up most of it."""
    return f"{log_vc:.1f}{' (floor)' if log_vc < FLOOR + math.log(2) else ''}"


def _joined(values: list[float], shape: str = "{:.3f}") -> str:
    return ", ".join(shape.format(value) for value in values)


def _paper(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".rstrip("0")


def _table(rows: list[dict[str, str]]) -> str:
    return markdown(pd.DataFrame(rows).fillna("-")) if rows else ""


def accuracies(options: Options) -> str:
    rows = [
        {
            "network": NAMES[name],
            "epochs (paper)": f"{found['epochs']} ({found['paper_epochs']})",
            "training (paper)": f"{found['training']:.3f} ({PAPER_ACCURACIES[name][0]:.3f})",
            "validation (paper)": f"{found['validation']:.3f} ({PAPER_ACCURACIES[name][1]:.3f})",
            "test": f"{found['test']:.3f}",
        }
        for name, found in _by_network(options, "accuracies")
    ]
    return _table(rows)


def scenario_a(options: Options) -> str:
    rows = [
        {
            "network": NAMES[name],
            "test accuracy": f"{found['accuracy']:.3f}",
            "correlation over sets": f"{found['over_sets']:+.3f}",
            "over means of 25 sets": f"{found['over_means']:+.3f}",
            "paper": _paper(PAPER_A.get(name)),
            "log VC with 0, 50, 100 rows": ", ".join(map(_level, found["log_vcs"])),
        }
        for name, found in _by_network(options, "a")
    ]
    return _table(rows)


def p_values(options: Options) -> str:
    counts = (5, 10, 15, 20, 25, 30, 40, 50, 75, 100)
    rows = [
        {"network": NAMES[name]} | {str(count): f"{found['p'][str(count)]:.1g}" for count in counts}
        for name, found in _by_network(options, "a")
    ]
    return _table(rows)


def scenario_b(options: Options) -> str:
    rows = []
    for name, found in _by_network(options, "b"):
        for how in ("clipped", "unclipped"):
            part = found[how]
            rows.append(
                {
                    "network": NAMES[name],
                    "attacked images": "cut to [0, 1]" if how == "clipped" else "not cut",
                    "correlation": f"{part['correlation']:.3f}",
                    "of which ε ≤ 0.014": f"{part['small']:.3f}",
                    "paper": _paper(PAPER_B.get(name)),
                    "accuracy at ε = 0, 0.01, 0.02, 0.03": _joined(part["accuracies"]),
                    "log VC": ", ".join(map(_level, part["log_vcs"])),
                }
            )
    return _table(rows)


def trajectory(options: Options) -> str:
    above, below = PAPER_TRAINING
    rows = [
        {
            "network": NAMES[name],
            "epochs": found["epochs"],
            f"above 0.5, after epochs (paper {above})": f"{found['above']:.3f}",
            "above 0.5, with the first epoch's batches": f"{found['above_all']:.3f}",
            f"at or below 0.5 (paper {below})": f"{found['below']:+.3f} ({found['points_below']} points, "
            f"accuracy {found['lowest']:.2f} to {found['highest_below']:.2f})",
            "log VC from first batch to last epoch": f"{found['first']:.1f}, {found['last']:.1f}",
        }
        for name, found in _by_network(options, "trajectory")
    ]
    return _table(rows)


def others(options: Options) -> str:
    rows: dict[str, dict[str, str]] = {}
    for name, found in _by_network(options, "others"):
        for family, part in found["levels"].items():
            correlation = part["correlation"]
            row = rows.setdefault(family, {"change": family})
            row[NAMES[name]] = (
                ("log VC does not move" if correlation is None else f"{correlation:+.2f}")
                + f": {_joined(part['accuracies'], '{:.2f}')}; "
                + ", ".join(map(_level, part["log_vcs"]))
            )
    return _table(list(rows.values()))


def mixed(options: Options) -> str:
    counts = (10, 20, 30, 50, 100)
    rows = [
        {"network": NAMES[name], "change": change, "correlation": f"{part['over_means']:+.3f}"}
        | {str(count): f"{part['p'][str(count)]:.1g}" for count in counts}
        for name, found in _by_network(options, "others")
        for change, part in found["mixed"].items()
    ]
    return _table(rows)


def listed(options: Options, job: str) -> str:
    """A job that kept its table row by row."""
    return "\n".join(markdown(pd.DataFrame(found)) for _, found in _by_network(options, job))


TABLES = {
    "accuracies": accuracies,
    "scenario-a": scenario_a,
    "p-values": p_values,
    "scenario-b": scenario_b,
    "trajectory": trajectory,
    "others": others,
    "mixed": mixed,
} | {
    job: lambda options, job=job: listed(options, job)
    for job in ("stopping", "alarms", "contamination", "regulariser")
}


def write_tables(options: Options, folder: Path) -> None:
    """The tables of everything that was found so far."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in TABLES.items():
        if text := table(options):
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
