"""Figures of volatility. Colours are those of Okabe and Ito, which the colour-blind can distinguish."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from assay.volatility.certainty import Doubles
from assay.volatility.clean_reference import CleanReference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


def watch_figure(history: pd.DataFrame, reference: CleanReference, false_alarm_rate: float) -> "Figure":
    """log VC of each full window over its clean range, and the evidence below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    low, high = np.quantile(reference.log_vcs, [0.025, 0.975])
    upper.axhspan(low, high, color=GREY, alpha=0.3, label="95 % of clean windows")
    upper.plot(history["row"], history["log_vc"], "o-", color=BLUE, markersize=3)
    upper.set_ylabel("volatility in certainty\n(natural log)")
    upper.set_title("How much certainty jumps from answer to answer, window by window", fontsize=10)
    upper.legend(loc="best")
    lower.plot(history["row"], history["log_evidence"] / np.log(10), "o-", color=BLUE, markersize=3)
    lower.axhline(np.log10(2 / false_alarm_rate), color=ORANGE, linestyle="--", label="alarm")
    lower.margins(y=0.15)
    lower.set_title("Evidence that the stream has changed", fontsize=10)
    lower.set_ylabel("evidence (log10)")
    lower.set_xlabel("predictions")
    lower.legend(loc="best")
    return figure


def comparison_figure(reference: Doubles, suspect: Doubles) -> "Figure":
    """log VC of the windows of both streams."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axis = figure.subplots()
    for place, (values, colour) in enumerate(((reference, BLUE), (suspect, ORANGE))):
        # Spread evenly across, so that equal values can be told apart without a random jitter.
        axis.plot(place + np.linspace(-0.2, 0.2, len(values)), values, "o", color=colour, alpha=0.7)
        axis.hlines(values.mean(), place - 0.3, place + 0.3, color=colour)
    axis.set_xticks([0, 1], ["reference", "suspect"])
    axis.set_ylabel("log VC of a window")
    return figure


def limits_figure(limits: pd.DataFrame) -> "Figure":
    """The smallest contamination found over the length of the stream, a line per window and test."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axis = figure.subplots()
    styles = {"t-test": ("--", ORANGE), "sequential": ("-", BLUE)}
    for (window, test), part in limits.groupby(["window", "test"]):
        style, colour = styles[str(test)]
        width = 1 + list(dict.fromkeys(limits["window"])).index(window)
        axis.plot(part["rows"], 100 * part["smallest"], style, color=colour, linewidth=width, marker="o",
                  markersize=3, label=f"{test}, window {window}")  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel("rows of the stream")
    axis.set_ylabel("smallest contamination found (% of rows)")
    axis.legend(loc="best")
    return figure


def training_figure(frame: pd.DataFrame) -> "Figure":
    """Figure 6 of the paper: accuracy against log VC, a point per validation set, coloured by epoch."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axis = figure.subplots()
    points = axis.scatter(frame["accuracy"], frame["log_vc"], c=frame["epoch"], cmap="viridis", s=14)
    figure.colorbar(points, ax=axis, label="epoch")
    axis.set_xlabel("accuracy on a validation set (share of rows)")
    axis.set_ylabel("log VC")
    return figure
