"""Figures of estimates."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.accuracy.headline import AccuracyVerdict
from assay.accuracy.set_place import SetPlace
from assay.volatility.figures import BLUE, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from assay.accuracy.result import AccuracyEstimates

GREY = "#888888"


def estimates_figure(result: "AccuracyEstimates") -> "Figure":
    """The answer on top, each method's estimate below; beside it, where the set lies among the lessons."""
    from matplotlib.figure import Figure

    wide = result.place is not None
    height = 0.36 * (len(result.estimates) + 1) + 1.2
    figure = Figure(figsize=(12.5 if wide else 8, height), layout="constrained")
    axes = figure.subplots(1, 2 if wide else 1, squeeze=False, width_ratios=[3, 2] if wide else [1])[0]
    _draw_estimates(axes[0], result)
    if result.place is not None:
        _draw_place(figure, axes[1], result.place)
    return figure


def separate_figures(result: "AccuracyEstimates") -> list["Figure"]:
    """The same as two figures, which narrow pages show one below the other."""
    from matplotlib.figure import Figure

    figures = [estimates_figure(replace(result, place=None))]
    if result.place is not None:
        figure = Figure(figsize=(6.5, 4.5), layout="constrained")
        _draw_place(figure, figure.subplots(), result.place)
        figures.append(figure)
    return figures


def _draw_estimates(axis: "Axes", result: "AccuracyEstimates") -> None:
    names = ["THE ANSWER", *(one.method for one in result.estimates)]
    ranges: list[Any] = [result.headline, *result.estimates]
    places = np.arange(len(names))[::-1]
    colours = [ORANGE, *(BLUE if one.usable else GREY for one in result.estimates)]
    for place, one, colour in zip(places, ranges, colours, strict=True):
        reach = [[one.value - one.lower], [one.upper - one.value]]
        axis.errorbar([one.value], [place], xerr=reach, fmt="o", color=colour, capsize=3)
    if result.headline.verdict == AccuracyVerdict.CANNOT_TELL:
        axis.text(0.02, places[0], "cannot tell", va="center", color=ORANGE)
    axis.axvline(result.reference_accuracy, color=GREY, linestyle="--", label="reference")
    axis.set_yticks(places, names)
    axis.set_ylim(-0.6, len(names) - 0.4)  # also for those without a value
    axis.set_xlim(-0.005, 1.005)
    axis.set_xlabel(f"accuracy in operation (share of rows, {result.level:.0%} interval)")
    axis.set_title("The accuracy now; grey methods do not work with this reference", fontsize=10)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="best")


def _draw_place(figure: "Figure", axis: "Axes", place: SetPlace) -> None:
    names = list(dict.fromkeys(place.categories))
    kinds = np.array(place.categories)
    for name, marker in zip(names, "osD^vP", strict=False):
        rows = kinds == name
        points = axis.scatter(
            place.lessons[rows, 0],
            place.lessons[rows, 1],
            c=place.accuracies[rows],
            vmin=0,
            vmax=1,
            s=18,
            marker=marker,
            label=name,
        )
    axis.plot(*place.here, "*", color=ORANGE, markersize=18, markeredgecolor="black", label="this set")
    axis.set_xlabel("what differs most among the lessons")
    axis.set_ylabel("what differs second most")
    axis.set_title("Where the set lies among the lessons", fontsize=10)
    axis.legend(loc="best", fontsize=8)
    figure.colorbar(points, ax=axis, label="accuracy on the lesson")


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
