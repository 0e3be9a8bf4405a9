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
