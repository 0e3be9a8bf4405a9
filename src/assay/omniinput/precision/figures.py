"""Figures of precision-recall curves: the curve with its band, r(z), judged inputs, ratios of areas."""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from assay.omniinput.precision.curve import PrecisionRecall
from assay.omniinput.sampling.figures import BLUE, GREY, ORANGE, TEXT_WIDTH, image_of, plain

if TYPE_CHECKING:
    from assay.omniinput.precision.comparison import PrecisionRecallComparison
    from assay.omniinput.precision.convergence import PrecisionConvergence

COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_BINS, MOST_IMAGES = 14, 8


def curve_figure(curves: Mapping[str, PrecisionRecall]) -> Figure:
    """Precision over log10 of recall, a band per curve; points are hollow if their bin failed a check."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for (name, curve), colour in zip(curves.items(), itertools.cycle(COLOURS)):
        _draw_curve(axes, curve, name, colour)
    unit = next(iter(curves.values())).normalisation
    shares = "share of all inputs" if unit == "entire" else "inputs per shared input"
    axes.set_xlabel(f"log10 of recall ({shares} that are right and above the threshold)")
    axes.set_ylabel("precision")
    axes.set_ylim(-0.03, 1.03)
    axes.set_title(PrecisionRecall.title)
    axes.grid(color=GREY, alpha=0.2)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_curve(axes: Axes, curve: PrecisionRecall, name: str, colour: str) -> None:
    frame = curve.to_frame()
    frame = frame[np.isfinite(frame["log_recall"])]
    if frame.empty:
        axes.plot([], [], color=colour, label=f"{name}: no recall above 0".lstrip(": "))
        return
    x = frame["log_recall"] / math.log(10)
    axes.fill_between(
        x, frame["precision_lower"], frame["precision_upper"], color=colour, alpha=0.2, linewidth=0
    )
    axes.plot(x, frame["precision"], color=colour, linewidth=1, label=name or None)
    for trusted, face in ((True, colour), (False, "white")):
        part = frame["trusted"] == trusted
        axes.plot(x[part], frame["precision"][part], "o", markersize=4, color=colour, markerfacecolor=face)


def bins_figure(curve: PrecisionRecall) -> Figure:
    """r(z), the precision of each bin, with its interval."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.add_subplot()
    frame = curve.to_frame()
    errors = [frame["r"] - frame["r_lower"], frame["r_upper"] - frame["r"]]
    axes.errorbar(frame["threshold"], frame["r"], errors, fmt="o", markersize=4, color=BLUE, elinewidth=1)
    side = "upper" if curve.confident == "low" else "lower"
    axes.set_xlabel(f"{curve.output_name} ({side} edge of the bin)")
    axes.set_ylabel("precision of the bin, r(z)")
    axes.set_ylim(-0.03, 1.03)
    axes.set_title(f"Precision bin by bin, {curve.level:.0%} intervals")
    axes.grid(color=GREY, alpha=0.2)
    return figure


def examples_figure(curve: PrecisionRecall) -> Figure:
    """Judged inputs, most confident bin first, each with its score."""
    bins = [bin for bin in curve.bins if (curve.examples.bins == bin).any()]
    if len(bins) > MOST_BINS:
        bins = [bins[place] for place in np.linspace(0, len(bins) - 1, MOST_BINS).round().astype(int)]
    draw = _text_examples if len(curve.shape) == 1 else _image_examples
    return draw(curve, [int(bin) for bin in bins])


def _threshold(curve: PrecisionRecall, bin: int) -> str:
    side = "≤" if curve.confident == "low" else "≥"
    return f"{side} {curve.threshold[curve.bins == bin][0]:.4g}"


def _text_examples(curve: PrecisionRecall, bins: list[int]) -> Figure:
    figure = Figure(figsize=(9, 0.5 + 0.3 * max(len(bins), 1)), layout="constrained")
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_title("Judged inputs", fontsize=9)
    axes.set_ylim(max(len(bins), 1), -1)
    for place, heading in ((0, "output"), (0.12, "score"), (0.2, "input")):
        axes.text(place, -1, heading, weight="bold", fontsize=8)
    for row, bin in enumerate(bins):
        index = int(np.flatnonzero(curve.examples.bins == bin)[0])
        text = plain(_text(curve, index))
        axes.text(0, row, _threshold(curve, bin), fontsize=8)
        axes.text(0.12, row, f"{curve.example_scores[index]:.2f}", fontsize=8)
        shown = text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
        axes.text(0.2, row, shown, fontsize=8, family="monospace")
    return figure


def _text(curve: PrecisionRecall, index: int) -> str:
    if curve.examples.texts is not None:
        return curve.examples.texts[index]
    return " ".join(map(str, curve.examples.inputs[index].flatten().tolist()))


def _image_examples(curve: PrecisionRecall, bins: list[int]) -> Figure:
    rows = max(len(bins), 1)
    figure = Figure(figsize=(MOST_IMAGES * 0.8 + 1.5, 0.95 * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, MOST_IMAGES, squeeze=False)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_frame_on(False)
    for row, bin in enumerate(bins):
        for column, index in enumerate(np.flatnonzero(curve.examples.bins == bin)[:MOST_IMAGES]):
            axes = grid[row, column]
            image = image_of(curve.examples.inputs[int(index)].numpy())
            axes.imshow(image, cmap="gray", vmin=0, vmax=curve.values - 1)
            axes.set_xlabel(f"{curve.example_scores[index]:.2f}", fontsize=6, labelpad=1)
        grid[row, 0].set_ylabel(_threshold(curve, bin), rotation=0, ha="right", va="center", fontsize=7)
    figure.suptitle("Judged inputs and their scores", fontsize=9)
    return figure


def convergence_figure(found: "PrecisionConvergence") -> Figure:
    """Curves of the first draws, darker with more items, and the curve of all items."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for place, number in enumerate(found.numbers):
        x, y = found.log_recall[place, 0] / math.log(10), found.precision[place, 0]
        shade = 0.25 + 0.6 * place / max(len(found.numbers) - 1, 1)
        axes.plot(x, y, "o-", markersize=3, linewidth=1, color=BLUE, alpha=shade, label=f"{number} per bin")
    axes.plot(
        found.whole_log_recall / math.log(10),
        found.whole_precision,
        color="black",
        linewidth=1.5,
        label="all",
    )
    axes.set_xlabel("log10 of recall")
    axes.set_ylabel("precision")
    axes.set_ylim(-0.03, 1.03)
    axes.set_title(found.title)
    axes.grid(color=GREY, alpha=0.2)
    axes.legend(frameon=False, fontsize=8)
    return figure


def ratio_figure(comparison: "PrecisionRecallComparison") -> Figure:
    """The ratio of areas of every comparable pair, accumulated from the least common recall."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot()
    pairs = itertools.combinations(comparison.names, 2)
    for (reference, model), colour in zip(pairs, itertools.cycle(COLOURS)):
        frame = comparison.cumulative_ratio(model, reference)
        if frame.empty:
            continue
        x = frame["log_recall"] / math.log(10)
        axes.fill_between(x, frame["ratio_lower"], frame["ratio_upper"], color=colour, alpha=0.2, linewidth=0)
        axes.plot(x, frame["ratio"], color=colour, label=f"{model} over {reference}")
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set_xlabel("log10 of recall")
    axes.set_ylabel("ratio of areas so far")
    axes.set_title("Area under precision, accumulated from the least common recall")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    return figure
