"""Pictures of what a guard got wrong, category by category."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.benchmark.examples import CANCELLED_GOOD, EACH, MISSED, Examples
from assay.benchmark.scenario import NO_LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_TEXT = 60


def examples_figures(examples: Examples, guard: str) -> "list[Figure]":
    """One figure for a guard with mistakes; none for one without."""
    own = examples.of_guards([guard])
    if not len(own.table):
        return []
    return [_texts_figure(own, guard) if own.images is None else _images_figure(own, guard)]


def _images_figure(examples: Examples, guard: str) -> "Figure":
    from matplotlib.figure import Figure

    assert examples.images is not None
    table, categories = examples.table, list(dict.fromkeys(examples.table["category"]))
    columns = 2 * EACH + 1  # one is a gap
    figure = Figure(figsize=(1.05 * columns, 1.4 * len(categories) + 0.9), layout="constrained")
    grid = figure.subplots(
        len(categories), columns, squeeze=False, width_ratios=[*[3] * EACH, 1, *[3] * EACH]
    )
    for gap in grid[:, EACH]:
        gap.set_axis_off()
    for row, category in enumerate(categories):
        for half, mistake in enumerate((MISSED, CANCELLED_GOOD)):
            places = _places(table, category, mistake)
            for column in range(EACH):
                axes = grid[row, half * (EACH + 1) + column]
                axes.set_axis_off()
                if column < len(places):
                    _draw(axes, examples.images[places[column]].numpy(), table.iloc[places[column]])
            if not len(places):
                empty = grid[row, half * (EACH + 1)]
                empty.text(0.5, 0.5, "none", fontsize=8, transform=empty.transAxes, ha="center")
        first = grid[row, 0]
        first.text(-0.15, 0.5, category, rotation=90, transform=first.transAxes, ha="right", va="center")
    figure.suptitle(
        f"Where {guard} is wrong: faults it missed (left half), good inputs it cancelled (right half)",
        fontsize=10,
    )
    return figure


def _places(table: pd.DataFrame, category: str, mistake: str) -> Any:
    """The rows of a kind of mistake, in the order of the table: the worst first."""
    return np.flatnonzero((table["category"] == category) & (table["mistake"] == mistake))


def _draw(axes: "Axes", image: Any, facts: Any) -> None:
    pixels = image[0] if len(image) == 1 else np.moveaxis(image, 0, -1)
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_title(_words(facts), fontsize=7)


def _words(facts: Any) -> str:
    said, label = facts["prediction"], facts["label"]
    truth = "rightly" if said == label else "is unknown" if label == NO_LABEL else f"is {label}"
    return f"said {said}, {truth}\nscore {facts['score']:.3g}"


def _texts_figure(examples: Examples, guard: str) -> "Figure":
    from matplotlib.figure import Figure

    assert examples.texts is not None
    rows = [
        (place, examples.table.iloc[place])
        for category in dict.fromkeys(examples.table["category"])
        for mistake in (MISSED, CANCELLED_GOOD)
        for place in _places(examples.table, category, mistake)
    ]
    figure = Figure(figsize=(8.5, 0.6 + 0.24 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_ylim(len(rows), -1)
    for height, (place, facts) in enumerate(rows):
        words = _words(facts).replace("\n", ", ")
        axes.text(0, height, f"{facts['category']}, {facts['mistake']}: {words}", fontsize=7)
        text = " ".join(examples.texts[place].split())
        short = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
        axes.text(0.5, height, short.replace("$", r"\$"), fontsize=7, family="monospace")
    axes.set_title(f"Where {guard} is wrong", fontsize=10)
    return figure
