"""Figures of this room. Colours are those of Okabe and Ito, which the colour-blind can tell apart."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from assay.volatility.reference import Reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#999999"


def watch_figure(history: pd.DataFrame, reference: Reference, false_alarm_rate: float) -> "Figure":
    """log VC of each full window over its clean range, and the evidence below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    low, high = np.quantile(reference.log_vcs, [0.025, 0.975])
    upper.axhspan(low, high, color=GREY, alpha=0.3, label="95 % of clean windows")
    upper.plot(history["row"], history["log_vc"], "o-", color=BLUE, markersize=3)
    upper.set_ylabel("log VC")
    upper.legend(loc="best")
    lower.plot(history["row"], history["log_evidence"] / np.log(10), "o-", color=BLUE, markersize=3)
    lower.axhline(np.log10(2 / false_alarm_rate), color=ORANGE, linestyle="--", label="alarm")
    lower.set_ylabel("evidence of a change (log10)")
    lower.set_xlabel("predictions")
    lower.legend(loc="best")
    return figure
