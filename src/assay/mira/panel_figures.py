"""Figures of monitorability: the panel, and the classes."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.mira.figures import BLUE, GREY, ORANGE, blank_figure
from assay.mira.panel import best_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 30
"""Classes drawn: of more, the weakest."""


def panel_figure(table: pd.DataFrame, score: float, interval: tuple[float, float]) -> "Figure":
    """A line per pseudo-unknown: the best monitor with its interval, and all others as grey dots."""
    best = best_rows(table).sort_values("auroc")
    places = {str(name): place for place, name in enumerate(best.index)}
    figure = blank_figure(6.5, 1.4 + 0.24 * len(best))
    axes = figure.subplots()
    axes.axvspan(*interval, color=ORANGE, alpha=0.15)
    axes.axvline(score, color=ORANGE, linestyle="--", label=f"score {score:.3f}")
    axes.plot(table["auroc"], table["pseudo_unknown"].map(places), "o", color=GREY, alpha=0.5, markersize=3)
    reach = [(best["auroc"] - best["lower"]).clip(lower=0), (best["upper"] - best["auroc"]).clip(lower=0)]
    axes.errorbar(best["auroc"], list(places.values()), xerr=reach, fmt="o", color=BLUE, markersize=4)
    named = [f"{row.Index}: {row.monitor}".replace("_", " ") for row in best.itertuples()]
    axes.set_yticks(list(places.values()), named, fontsize=8)
    axes.axvline(0.5, color=GREY, linestyle=":")
    axes.set_xlim(min(0.45, float(table["auroc"].min()) - 0.02), 1.01)
    axes.set_xlabel("AUROC between known inputs and these (0.5 is guessing)")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.set_title("How well the best monitor sees inputs that make no sense", fontsize=10)
    return figure


def class_detection_figure(per_class: pd.DataFrame, monitor: str) -> "Figure":
    """A bar per class, the weakest first."""
    shown = per_class.dropna(subset="score").sort_values("score")[:MOST_BARS]
    figure = blank_figure(6.5, 1.2 + 0.24 * max(1, len(shown)))
    axes = figure.subplots()
    places = np.arange(len(shown))
    reach = [(shown["score"] - shown["lower"]).clip(lower=0), (shown["upper"] - shown["score"]).clip(lower=0)]
    axes.barh(places, shown["score"], xerr=reach, color=BLUE, alpha=0.8, ecolor=GREY)
    axes.plot(shown["left_out"], places, "D", color=ORANGE, markersize=4, label="this class, left out")
    axes.set_yticks(places, [f"class {label}" for label in shown["label"]])
    axes.invert_yaxis()
    axes.axvline(0.5, color=GREY, linestyle=":")
    axes.set_xlim(0, 1.01)
    axes.set_xlabel(f"AUROC of {monitor} among inputs that the network puts into this class")
    if shown["left_out"].notna().any():
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.set_title("Which classes hide what does not belong there", fontsize=10)
    return figure


def visibility_figure(scores: NDArray[np.float64], wrong: NDArray[np.bool_], area: float) -> "Figure":
    """How sure the forest is that an answer is an error, for right answers and for errors."""
    figure = blank_figure(6.5, 3.0)
    axes = figure.subplots()
    edges = np.linspace(0, 1, 31).tolist()
    for part, colour, name in ((scores[~wrong], BLUE, "right answers"), (scores[wrong], ORANGE, "errors")):
        axes.hist(part, bins=edges, density=True, alpha=0.6, color=colour, label=name)
    axes.set_xlabel("share of trees that call it an error")
    axes.set_ylabel("density")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title(f"Errors seen from this layer: AUROC {area:.3f}", fontsize=10)
    return figure
