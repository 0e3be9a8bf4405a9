"""Figures of reshaping: Figs. 3, 4a and 4b of the paper, and the estimates side by side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from assay.errors import InputError
from assay.reshaping.sensitivity import GAMMAS

# Okabe and Ito's palette, which colour-blind readers can distinguish.
COLOURS = {"operational": "#0072B2", "before": "#D55E00", "after": "#009E73", "counted": "#0072B2"}
MOST_NEURONS = 6


def shape_figure(frame: pd.DataFrame, neurons: int = 2) -> Figure:
    """Fig. 3: the histograms of some neurons before, after and in operation, largest change first."""
    change = (frame["before"] - frame["operational"]).abs().groupby(frame["neuron"]).max()
    chosen = change.sort_values(ascending=False).index[: max(neurons, 1)]
    figure = Figure(figsize=(8, 2.6 * len(chosen)), layout="constrained")
    for row, neuron in enumerate(chosen):
        axes = figure.add_subplot(len(chosen), 1, row + 1)
        part = frame[frame["neuron"] == neuron]
        for offset, name in zip((-0.28, 0.0, 0.28), ("before", "operational", "after"), strict=True):
            axes.bar(part["bin"] + offset, part[name], width=0.28, color=COLOURS[name], label=_LEGEND[name])
        axes.set_title(f"Neuron {neuron}", fontsize="medium")
        axes.set_xlabel("Bin number")
        axes.set_ylabel("Portion of inputs")
        if row == 0:
            axes.legend(fontsize="small")
    return figure


def class_figure(frame: pd.DataFrame, operational_labels: Tensor | None = None) -> Figure:
    """Fig. 4a: class frequencies before and after, and in operation where known."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot()
    series = {"before": frame["before"].to_numpy(), "after": frame["after"].to_numpy()}
    if operational_labels is not None:
        counts = np.bincount(np.asarray(operational_labels), minlength=len(frame))[: len(frame)]
        series = {"before": series["before"], "operational": counts / counts.sum(), "after": series["after"]}
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        place = frame["label"] + (index - (len(series) - 1) / 2) * width
        axes.bar(place, values, width=width, color=COLOURS[name], label=_LEGEND[name])
    axes.set_xticks(frame["label"])
    axes.set_xlabel("Class")
    axes.set_ylabel("Portion of inputs")
    axes.legend(fontsize="small")
    return figure


def trials_figure(frame: pd.DataFrame) -> Figure:
    """Fig. 4b: per trial, the summed difference of class ratios to operation, reshaped against original."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(frame["after"], frame["before"], color=COLOURS["after"], edgecolor="black", linewidth=0.5)
    end = 1.05 * max(float(frame[["before", "after"]].to_numpy().max()), 0.1)
    axes.plot([0, end], [0, end], color="grey", linestyle="--", label="no change")
    axes.set_xlim(0, end)
    axes.set_ylim(0, end)
    axes.set_xlabel("Reshaped test set: sum of class ratio differences")
    axes.set_ylabel("Original test set: sum of class ratio differences")
    axes.legend(fontsize="small")
    return figure


def estimate_figure(frame: pd.DataFrame, name: str) -> Figure:
    """Every way of estimating, with its interval."""
    figure = Figure(figsize=(7, 2.4), layout="constrained")
    axes = figure.add_subplot()
    for row, (value, lower, upper) in enumerate(frame[["value", "lower", "upper"]].to_numpy(float)):
        if np.isfinite(lower):
            axes.plot([lower, upper], [row, row], color=COLOURS["operational"], linewidth=3)
        if np.isfinite(value):
            axes.plot([value], [row], "o", color="black", markersize=5)
    axes.set_yticks(range(len(frame)), list(frame["method"]))
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.set_title("Every way of estimating; a bar is its interval or range", fontsize=10)
    axes.set_xlabel(f"{name} (share of inputs)")
    return figure


def sensitivity_figure(estimate: Any) -> Figure:
    """The range of an indicator against gamma."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    if estimate.sensitivity is not None:
        axes.fill_between(
            GAMMAS, estimate.sensitivity.lowers, estimate.sensitivity.uppers, color=COLOURS["operational"],
            alpha=0.3, label="range",
        )  # fmt: skip
    axes.errorbar(
        [1], [estimate.value], yerr=[[estimate.value - estimate.lower], [estimate.upper - estimate.value]],
        fmt="o", color="black", capsize=4, label="only class frequencies changed",
    )  # fmt: skip
    axes.axhline(estimate.unshaped, color="grey", linestyle="--", linewidth=1, label="test set")
    axes.set_xlim(0.95, 10)
    axes.set_xscale("log")
    axes.set_xticks([1, 1.5, 2, 3, 5, 10], ["1", "1.5", "2", "3", "5", "10"])
    axes.set_xlabel("Gamma: how many times the odds of an error within a class may change")
    axes.set_ylabel(f"{estimate.name} (share)")
    axes.legend(fontsize="small")
    return figure


def fleet_figure(fleet: Any) -> Figure:
    """Devices by estimate with their intervals: below the target, unlike home, and the others."""
    frame = fleet.devices.sort_values("value", ignore_index=True)
    below = (frame["upper"] < (fleet.target or 0.0)) & ~frame["alarm"]
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for rows, colour, label in (
        (~below & ~frame["alarm"], COLOURS["operational"], "device"),
        (below, COLOURS["before"], "below the target"),
        (frame["alarm"], "grey", "unlike anything at home"),
    ):
        part = frame[rows]
        if len(part):
            axes.vlines(part.index, part["lower"], part["upper"], color=colour, alpha=0.4, linewidth=1)
            axes.plot(part.index, part["value"], ".", color=colour, markersize=3, label=label)
    if fleet.target is not None:
        axes.axhline(fleet.target, color="black", linestyle="--", linewidth=1, label="target")
    axes.set_xlabel("Devices, by estimate")
    axes.set_ylabel(f"{fleet.name} (share)")
    axes.legend(fontsize="small")
    return figure


def proposal_figure(steps: pd.DataFrame) -> Figure:
    """The standard error against the bytes a device sends, a line for each number of bins."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    for number, part in steps.groupby("bins"):
        axes.plot(part["bytes"], part["standard_error"], ".-", label=f"{number} bins")
    chosen = steps[steps["chosen"]]
    axes.plot(chosen["bytes"], chosen["standard_error"], "o", color="black", fillstyle="none", label="chosen")
    axes.set_xlabel("Bytes a device sends")
    axes.set_ylabel("Standard error")
    axes.legend(fontsize="small")
    return figure


def histogram_figure(histograms: Mapping[str, Any]) -> Figure:
    """Portions per bin of the first neurons of one or more histograms."""
    if not histograms:
        raise InputError("expected at least one histogram to draw, got none")
    first = next(iter(histograms.values()))
    neurons = min(len(first.window), MOST_NEURONS)
    figure = Figure(figsize=(8, 1.8 * neurons), layout="constrained")
    names = first.bins.names(len(first.window))
    for row in range(neurons):
        axes = figure.add_subplot(neurons, 1, row + 1)
        for label, histogram in histograms.items():
            bins = np.arange(histogram.window.shape[1]) + histogram.first
            portions = histogram.window[row] / max(histogram.total, 1)
            axes.bar(bins, portions, color=COLOURS.get(label, "#56B4E9"), label=label)
        axes.set_title(f"Neuron {names[row]}", fontsize="small")
        axes.set_ylabel("Portion")
    axes.set_xlabel("Bin number")
    return figure


_LEGEND = {"before": "test set before", "after": "test set after", "operational": "operation"}
