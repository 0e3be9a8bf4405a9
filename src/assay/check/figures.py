"""The gates in one figure: what was measured, how certain it is, and what was wanted."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from assay.accuracy.headline import AccuracyVerdict
from assay.check.gate import Gate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"passed": "#0072b2", "failed": "#d55e00", "undecided": "#777777"}
"""Blue and orange, which the colour-blind can distinguish; the verdict is also written out."""


def gates_figure(gates: Sequence[Gate]) -> "Figure":
    """One row per gate, each on its own scale; grey is what was wanted."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.4 + 0.85 * len(gates)), layout="constrained")
    for axes, gate in zip(figure.subplots(len(gates), 1, squeeze=False)[:, 0], gates, strict=True):
        _draw_gate(axes, gate)
    figure.suptitle(
        "The gates: what was measured, its 95 % interval, and what was wanted (grey)", fontsize=10
    )
    return figure


def _draw_gate(axes: "Axes", gate: Gate) -> None:
    colour = COLOURS[gate.verdict]
    known = [value for value in (gate.measured, *gate.interval, gate.limit) if math.isfinite(value)]
    room = 0.15 * (max(known) - min(known) or 1.0)
    left, right = min(known) - room, max(known) + room
    axes.set_xlim(left, right)
    axes.axvspan(*((left, gate.limit) if gate.at_most else (gate.limit, right)), color="#dddddd")
    axes.axvline(gate.limit, color="black", linewidth=1)
    axes.plot(gate.interval, (0, 0), color=colour, linewidth=2)
    axes.plot([gate.measured], [0], "o", color=colour)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.set_title(f"{gate.name}, wanted {gate.wanted}", fontsize=9, loc="left")
    axes.set_title(gate.verdict, fontsize=9, loc="right", color=colour, weight="bold")


def trials_figure(trials: pd.DataFrame) -> "Figure":
    """The answer about each scenario over its accuracy; on the diagonal it is right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#888888", linestyle="--", linewidth=1, label="right")
    unknown = (trials["verdict"] == AccuracyVerdict.CANNOT_TELL).to_numpy()
    told = trials[~unknown]
    reach = [told["value"] - told["lower"], told["upper"] - told["value"]]
    axes.errorbar(
        told["accuracy"],
        told["value"],
        yerr=reach,
        fmt="o",
        markersize=4,
        color=COLOURS["passed"],
        label="answer",
    )
    missing = trials["accuracy"][unknown]
    if len(missing):
        axes.plot(missing, np.zeros(len(missing)), "x", color=COLOURS["failed"], label="cannot tell")
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("accuracy of the scenario (share of rows)")
    axes.set_ylabel("answer without labels, 95 % interval")
    axes.set_title("Accuracy without labels, scenario by scenario", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    return figure
