"""Figures of a stream."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from assay.accuracy.headline import AccuracyVerdict
from assay.volatility.figures import BLUE, ORANGE

MOST_CAPS = 60
"""Windows that are drawn with caps at the ends of their intervals."""


def drift_figure(frame: pd.DataFrame, reference_rate: float, false_alarm_rate: float) -> Figure:
    """The alarm rate round by round beside the clean one, and the evidence."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(frame["row"], frame["alarm_rate"])
    above.axhline(reference_rate, linestyle="--", color="grey", label="clean")
    above.set_ylabel("alarm rate")
    above.legend()
    below.plot(frame["row"], frame["log_evidence"])
    below.axhline(-np.log(false_alarm_rate), linestyle="--", color="tab:red", label="1 / false-alarm rate")
    below.set_ylabel("log evidence of a change")
    below.set_xlabel("row of the stream")
    below.legend()
    return figure


def history_figure(frame: pd.DataFrame, reference_accuracy: float) -> Figure:
    """The answer window by window with its interval; windows about which nothing can be told are shaded."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axis = figure.subplots()
    ends = frame["row"].to_numpy()
    starts = ends - frame["rows"].to_numpy()
    unknown = (frame["verdict"] == AccuracyVerdict.CANNOT_TELL).to_numpy()
    for number, place in enumerate(np.flatnonzero(unknown)):
        label = "cannot tell" if number == 0 else None
        axis.axvspan(starts[place], ends[place], color="#dddddd", linewidth=0, label=label)
    # A value holds for its whole window, and a line would pretend to know what is between two of them.
    for verdict, colour in ((AccuracyVerdict.HOLDS, BLUE), (AccuracyVerdict.FALLEN, ORANGE)):
        chosen = frame[(frame["verdict"] == verdict).to_numpy()]
        if not len(chosen):
            continue
        middle = chosen["row"] - chosen["rows"] / 2
        reach = [chosen["value"] - chosen["lower"], chosen["upper"] - chosen["value"]]
        caps = 3.0 if len(frame) <= MOST_CAPS else 0.0
        axis.errorbar(
            middle,
            chosen["value"],
            yerr=reach,
            fmt="o",
            markersize=4,
            capsize=caps,
            color=colour,
            label=str(verdict),
        )
    axis.axhline(reference_accuracy, color="#888888", linestyle="--", label="reference")
    axis.set_ylim(-0.02, 1.02)
    axis.set_xlabel("row of the stream")
    axis.set_ylabel("accuracy (share of rows)")
    axis.set_title("Accuracy window by window, with its interval", fontsize=10)
    axis.grid(axis="y", alpha=0.3)
    axis.legend(loc="lower left", fontsize=8)
    return figure
