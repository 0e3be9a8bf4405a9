"""Chapter: what the networks do on known and on unknown inputs."""

from typing import TYPE_CHECKING

import pandas as pd

from assay.demo.setting import UNKNOWN, Setting
from assay.report import Section
from assay.statistics import wilson_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def first_look(setting: Setting) -> Section:
    """Accuracy and confidence of each network; the 9s get confident answers too."""
    rows = []
    for name, network in setting.networks.items():
        test = network.observe(setting.test)
        unknown = network.observe(setting.unknown)
        sure = unknown.probabilities.amax(dim=1)
        lower, upper = wilson_interval(int(test.correct.sum()), len(test))
        rows.append(
            {
                "network": name,
                "parameters": sum(part.numel() for part in network.module.parameters()),
                "features": test.layer("penultimate").shape[1],
                "accuracy": float(test.correct.double().mean()),
                "accuracy_lower": lower,
                "accuracy_upper": upper,
                "mean_confidence_known": float(test.probabilities.amax(dim=1).mean()),
                "mean_confidence_unknown": float(sure.mean()),
                "unknown_above_90_percent": float((sure > 0.9).double().mean()),
            }
        )
    table = pd.DataFrame(rows)
    worst = table["unknown_above_90_percent"].max()
    words = (
        f"On {len(setting.test[1])} test digits that they know, 0 to 8, the networks are right "
        f"{table['accuracy'].min():.1%} to {table['accuracy'].max():.1%} of the time (the table has the 95 % "
        f"intervals). Shown a {UNKNOWN}, which they can only get wrong, they still answer, and up to "
        f"{worst:.0%} of those wrong answers come with more than 90 % confidence."
    )
    advice = (
        "Neither accuracy on known data nor confidence is a promise about other inputs. Ask the five "
        "questions below before you ship."
    )
    return Section(
        "What the networks know",
        words,
        "How good are they, and what do they say about things they never saw?",
        [_figure(setting)],
        table,
        advice=advice,
    )


def _figure(setting: Setting) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6), layout="constrained")
    for axes, (name, network) in zip(
        figure.subplots(1, len(setting.networks), sharey=True), setting.networks.items(), strict=True
    ):
        for data, label, colour in (
            (setting.test[0], "known (0 to 8)", "#0072b2"),
            (setting.unknown, "unknown (9)", "#d55e00"),
        ):
            confidence = network.observe(data).probabilities.amax(dim=1)
            axes.hist(
                confidence.numpy(),
                bins=20,
                range=(0, 1),
                weights=[1 / len(data)] * len(data),
                alpha=0.6,
                label=label,
                color=colour,
            )
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("confidence of the answer")
    figure.axes[0].set_ylabel("share of inputs")
    figure.axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle("How sure the networks are of known and of unknown digits", fontsize=10)
    return figure
