"""Figures of an output distribution: log density with its error band, representative inputs per bin."""

import math

import numpy as np
from matplotlib.figure import Figure

from assay.omniinput.sampling.distribution import OutputDistribution

BLUE, GREY, ORANGE = "#0072B2", "#777777", "#D55E00"  # Okabe and Ito: readable by the colour-blind
MOST_BINS, MOST_IMAGES, TEXT_WIDTH = 16, 8, 88


def density_figure(dist: OutputDistribution) -> Figure:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    logs = dist.log_density / math.log(10)
    errors = 2 * np.where(np.isfinite(dist.error), dist.error, 0.0) / math.log(10)
    axes.fill_between(
        dist.centres, logs - errors, logs + errors, color=BLUE, alpha=0.25, step="mid", linewidth=0
    )
    axes.step(dist.centres, logs, where="mid", color=BLUE, label="share of all inputs, ± 2 standard errors")
    never = dist.centres[~dist.visited]
    if len(never) and dist.visited.any():
        floor = np.full(len(never), np.nanmin(logs - errors))
        axes.plot(never, floor, "x", color=ORANGE, markersize=5, label="never visited")
    axes.set_xlabel(f"{dist.output_name} of the model")
    unit = "share of all inputs" if dist.normalisation == "entire" else "inputs per shared input"
    axes.set_ylabel(f"log10 of the {unit}")
    axes.set_title(dist.title if dist.converged else f"{dist.title} (not converged)")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(color=GREY, alpha=0.2)
    return figure


def samples_figure(dist: OutputDistribution) -> Figure:
    """A row per bin (at most 16): images if inputs have two dimensions or more, else text."""
    filled = [bin for bin in range(len(dist.log_density)) if len(dist.samples(bin))]
    chosen = (
        [filled[i] for i in np.unique(np.linspace(0, len(filled) - 1, MOST_BINS).round().astype(int))]
        if filled
        else []
    )
    if len(dist.space.shape) == 1:
        return _text_strip(dist, chosen)
    return _image_strip(dist, chosen)


def _text_strip(dist: OutputDistribution, bins: list[int]) -> Figure:
    figure = Figure(figsize=(9, 0.5 + 0.3 * max(len(bins), 1)), layout="constrained")
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_ylim(len(bins), -1)
    axes.text(0, -1, dist.output_name, weight="bold", fontsize=8)
    axes.text(0.13, -1, "an input with that output", weight="bold", fontsize=8)
    for row, bin in enumerate(bins):
        text = plain(dist.texts(bin)[int(dist.weights(bin).argmax())])
        shown = text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
        axes.text(0, row, f"{dist.edges[bin]:.4g} to {dist.edges[bin + 1]:.4g}", fontsize=8)
        axes.text(0.13, row, shown, fontsize=8, family="monospace")
    return figure


def plain(text: str) -> str:
    """Text that any font can show: letters beyond Latin become dots, and dollars do not start formulas."""
    shown = (letter if letter.isprintable() and ord(letter) < 0x250 else "·" for letter in text)
    return "".join(shown).replace("$", r"\$")


def _image_strip(dist: OutputDistribution, bins: list[int]) -> Figure:
    figure = Figure(figsize=(MOST_IMAGES * 0.8 + 1.5, 0.8 * max(len(bins), 1) + 0.5), layout="constrained")
    grid = figure.subplots(max(len(bins), 1), MOST_IMAGES, squeeze=False)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_frame_on(False)
    for row, bin in enumerate(bins):
        order = np.argsort(-dist.weights(bin))[:MOST_IMAGES]
        for column, image in enumerate(dist.samples(bin)[order.copy()].numpy()):
            grid[row, column].imshow(image_of(image), cmap="gray", vmin=0, vmax=dist.space.values - 1)
        label = f"{dist.edges[bin]:.3g} to\n{dist.edges[bin + 1]:.3g}"
        grid[row, 0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=7)
    figure.suptitle(f"Inputs by {dist.output_name}", fontsize=9)
    return figure


def image_of(image: np.ndarray) -> np.ndarray:
    """(height, width), or (height, width, 3) for three channels; other channel counts show their first."""
    if image.ndim == 2:
        return image
    return np.moveaxis(image, 0, -1) if image.shape[0] == 3 else image[0]
