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
    axes.set_title("How well alarms agree with faults (mean MCC: 0 is guessing, 1 is perfect)", fontsize=10)
    figure.colorbar(image, label="MCC", ticks=[-1, 0, 1])
    return figure


def cost_picture(facts: pd.DataFrame) -> "Figure":
    """What detection costs: time per input beside mean MCC, a row a guard, the best on top."""
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
