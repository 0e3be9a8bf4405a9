"""Figures of the benchmark, in colours that the colour-blind can distinguish."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def category_figure(means: pd.DataFrame) -> "Figure":
    """The mean MCC of every guard (rows, the best on top) in every category (columns)."""
    from matplotlib.figure import Figure

    wide = means.set_index("guard").sort_values("all", ascending=False)
    figure = Figure(figsize=(1.6 + 1.05 * len(wide.columns), 1.4 + 0.34 * len(wide)), layout="constrained")
    axes = figure.subplots()
    # Diverging about 0: purple sees the fault, orange is worse than guessing.
    image = axes.imshow(wide.to_numpy(), cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    for row, values in enumerate(wide.to_numpy()):
        for column, value in enumerate(values):
            colour = "#fefefe" if abs(value) > 0.6 else "#0a0a0a"  # on its own ground, in dark mode too
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(wide.columns)), list(wide.columns))
    axes.set_yticks(range(len(wide)), list(wide.index))
    axes.set_xlabel("category of fault")
    axes.set_ylabel("guard")
    axes.set_title("Whose alarms agree with faults? (mean MCC: 0 is guessing, 1 is perfect)", fontsize=10)
    figure.colorbar(image, label="MCC", ticks=[-1, 0, 1])
    return figure


def cost_figure(facts: pd.DataFrame) -> "Figure":
    """Mean MCC, time per input and memory, one row per guard, the best on top."""
    from matplotlib.figure import Figure

    ordered = facts.sort_values("specific_mcc", ignore_index=True)
    figure = Figure(figsize=(7.5, 1.3 + 0.28 * len(ordered)), layout="constrained")
    gain, time, memory = figure.subplots(1, 3, sharey=True)
    rows = range(len(ordered))
    gain.barh(rows, ordered["specific_mcc"], color="#0072b2")
    gain.axvline(0, color="black", linewidth=0.8)
    gain.set_yticks(rows, [str(name) for name in ordered["guard"]])
    gain.set_xlabel("mean MCC")
    time.barh(rows, 1e6 * ordered["monitor_seconds"], color="#d55e00")
    network = 1e6 * ordered["model_seconds"].mean()
    time.axvline(network, color="black", linestyle="--", linewidth=1)
    time.set_xlabel(f"microseconds per input\n(dashed: the network, {network:.3g})")
    memory.barh(rows, ordered["monitor_bytes"] / 1000, color="#009e73")
    memory.set_xlabel("memory (kB)")
    figure.suptitle("What each guard gains, and what it costs", fontsize=10)
    for axes in (gain, time, memory):
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    return figure


def rank_figure(ranks: Mapping[str, float], alike: Sequence[Sequence[str]], title: str) -> "Figure":
    """Average ranks on one axis (Demsar 2006): the better half is named on the left, the rest on the right.

    A bar joins the guards of each group of `alike`.
    """
    from matplotlib.figure import Figure

    order = sorted(ranks, key=lambda name: ranks[name])
    best, worst = ranks[order[0]], ranks[order[-1]]
    figure = Figure(figsize=(8, 1.4 + 0.16 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=9)
    axes.yaxis.set_visible(False)
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_position("zero")
    axes.xaxis.set_ticks_position("top")
    for level, group in enumerate(alike, start=1):
        axes.plot([ranks[group[0]], ranks[group[-1]]], [-level, -level], color="black", linewidth=2, zorder=3)
    half = (len(order) + 1) // 2
    for place, name in enumerate(order[:half]):
        _name_rank(axes, ranks[name], best, -len(alike) - 1 - place, f"{name} ({ranks[name]:.2f}) ", "right")
    for place, name in enumerate(reversed(order[half:])):
        _name_rank(axes, ranks[name], worst, -len(alike) - 1 - place, f" ({ranks[name]:.2f}) {name}", "left")
    return figure


def _name_rank(axes: "Axes", rank: float, edge: float, height: float, words: str, side: str) -> None:
    """A point on the axis, and a line from it down and out to its name."""
    axes.plot([edge, rank, rank], [height, height, 0], color="#333333", linewidth=1)
    axes.scatter(rank, 0, color="#333333", zorder=3)
    axes.text(edge, height, words, ha=side, va="center", color="#333333")
