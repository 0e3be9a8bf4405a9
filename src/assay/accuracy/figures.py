"""Figures of estimates."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from assay.volatility.figures import BLUE, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def estimates_figure(estimates: pd.DataFrame, reference_accuracy: float, level: float) -> "Figure":
    """Each method's estimate and interval; the dashed line is the reference."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 0.4 * len(estimates) + 1.2), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(estimates))[::-1]
    below = estimates["value"] - estimates["lower"]
    above = estimates["upper"] - estimates["value"]
    axis.errorbar(estimates["value"], places, xerr=[below, above], fmt="o", color=BLUE, capsize=3)
    axis.axvline(reference_accuracy, color=ORANGE, linestyle="--", label="reference")
    axis.set_yticks(places, estimates["method"])
    axis.set_xlim(max(0.0, float(np.floor(10 * np.nanmin(estimates["lower"]) - 0.5)) / 10), 1.005)
    axis.set_xlabel(f"accuracy in operation (share of rows, {level:.0%} interval)")
    axis.set_title("The accuracy now, by every method", fontsize=10)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="best")
    return figure


def label_draw_figure(drawn: pd.DataFrame, average: float) -> "Figure":
    """How often each row to label was to be drawn, relative to the average row, over its guess."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    axis = figure.subplots()
    axis.plot(drawn["guess"], drawn["probability"] / average, "o", color=BLUE, markersize=4, alpha=0.6)
    axis.axhline(1.0, color=ORANGE, linestyle="--", label="drawn uniformly")
    axis.set_xlabel("guess: how likely the row is right")
    axis.set_ylabel("chance to be drawn\n(of the average row's)")
    axis.set_title(f"The {len(drawn)} rows to label", fontsize=10)
    axis.set_ylim(bottom=0.0)
    axis.legend(loc="best")
    return figure


def labelled_accuracy_figure(answers: pd.DataFrame, expected: float, level: float) -> "Figure":
    """The accuracy from labels and guesses, and from the labels alone; dashed: what was expected."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.2), layout="constrained")
    axis = figure.subplots()
    places = np.arange(len(answers))[::-1]
    reach = [answers["value"] - answers["lower"], answers["upper"] - answers["value"]]
    axis.errorbar(answers["value"], places, xerr=reach, fmt="o", color=BLUE, capsize=3)
    if np.isfinite(expected):
        axis.axvline(expected, color=ORANGE, linestyle="--", label="expected without labels")
        axis.legend(loc="best")
    axis.set_yticks(places, answers["from"])
    axis.set_ylim(-0.5, len(answers) - 0.5)
    axis.set_xlim(-0.005, 1.005)
    axis.set_xlabel(f"accuracy in operation (share of rows, {level:.0%} interval)")
    axis.grid(axis="x", alpha=0.3)
    return figure
