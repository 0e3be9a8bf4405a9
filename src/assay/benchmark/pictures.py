"""The benchmark in pictures; colours readable by the colour-blind."""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def category_picture(means: pd.DataFrame) -> "Figure":
    """Guards down, categories across, the mean MCC in each field; the best guard on top."""
    from matplotlib.figure import Figure

    wide = means.set_index("guard").sort_values("all", ascending=False)
    figure = Figure(figsize=(1.6 + 1.05 * len(wide.columns), 1.4 + 0.34 * len(wide)), layout="constrained")
    axes = figure.subplots()
    # Diverging about chance: purple sees the fault, orange is worse than guessing.
    image = axes.imshow(wide.to_numpy(), cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    for row, values in enumerate(wide.to_numpy()):
        for column, value in enumerate(values):
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(wide.columns)), list(wide.columns))
    axes.set_yticks(range(len(wide)), list(wide.index))
    axes.set_xlabel("category of fault")
    axes.set_ylabel("guard")
    axes.set_title("How well alarms agree with faults (mean specific MCC; 0 is guessing)", fontsize=10)
    figure.colorbar(image, label="MCC")
    return figure


def cost_picture(facts: pd.DataFrame) -> "Figure":
    """What detection costs: seconds per input against mean MCC, the size of a point is its memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    sizes = 30 + 3 * (facts["monitor_bytes"] / 1000) ** 0.5
    axes.scatter(1e6 * facts["monitor_seconds"], facts["specific_mcc"], s=sizes, color="#0072b2", alpha=0.7)
    for _, row in facts.iterrows():
        place = (1e6 * row["monitor_seconds"], row["specific_mcc"])
        axes.annotate(str(row["guard"]), place, xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.axhline(0, color="grey", linestyle=":", linewidth=1)
    axes.axvline(1e6 * facts["model_seconds"].mean(), color="#d55e00", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("monitor's time per input (microseconds)")
    axes.set_ylabel("mean specific MCC")
    axes.set_title("What detection costs (dashed: the network's own time)", fontsize=10)
    axes.grid(alpha=0.3)
    return figure
