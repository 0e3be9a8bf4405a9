"""Chapter: the guard goes into operation; what does it let through, and what does it stop?"""

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import torch

from assay.demo.setting import UNKNOWN, Setting
from assay.guard import Verdict, default_guard
from assay.report import Section
from assay.report.section import Banner
from assay.storage import load, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FALSE_ALARM_RATE = 0.05
ENOUGH = 0.9
"""Share of wrong answers that a guard must cancel before the network is called trustworthy with it."""
SHOWN = 8
"""Digits of each kind in the figure."""


def shipped(setting: Setting) -> Section:
    """A guard saved, loaded as a service would, and shown known and unknown digits."""
    network = setting.favourite
    guard = default_guard(
        network, setting.validation, FALSE_ALARM_RATE, train=setting.train, seed=setting.seed
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "guard.safetensors"
        save(guard, path)
        size = path.stat().st_size
        guard = load(path, network=network)
    known, unknown = guard(setting.test[0]), guard(setting.unknown)
    right = known.predictions == setting.test[1]
    table = pd.DataFrame(
        [
            _cancelled_row("known, answered right", known.alarm[right]),
            _cancelled_row("known, answered wrong", known.alarm[~right]),
            _cancelled_row(f"the digit {UNKNOWN}, always wrong", unknown.alarm),
        ]
    )
    wrong = table.iloc[1:][["inputs", "cancelled"]].sum()
    words = (
        "The small CNN goes into operation with the default guard, which watches its input, its features and "
        f"its output; besides the network's weights that takes a file of {size / 1000:,.0f} kB. It answers, "
        "and the guard cancels answers it doubts. Of "
        f"{wrong['inputs']} wrong answers it cancels "
        f"{wrong['cancelled']} ({wrong['cancelled'] / wrong['inputs']:.0%}); the price is "
        f"{table['cancelled'][0]} of {table['inputs'][0]} right ones "
        f"({table['cancelled'][0] / table['inputs'][0]:.0%}; promised on inputs like those it was calibrated "
        f"on: at most {FALSE_ALARM_RATE:.0%}). {_why(unknown)}"
    )
    advice = (
        "Decide what a cancelled answer means in your system (ask a person, stop, fall back), and calibrate "
        "on data from where it will work. assay serve answers over HTTP with counters for Prometheus; "
        "guard.export writes one ONNX file for devices without Python."
    )
    return Section(
        "What the guard does in operation",
        words,
        "How do I ship the network with the monitor attached, and watch it?",
        [_digits_figure(setting, known, unknown)],
        table,
        advice=advice,
        banner=_banner(*wrong),
    )


def _banner(wrong: int, cancelled: int) -> Banner:
    """The verdict of the demo, for the top of its report."""
    found = f"of {wrong} wrong answers its guard cancels {cancelled}"
    if cancelled >= ENOUGH * wrong:
        return Banner.of(True, f"With its guard the small CNN can be trusted: {found}.")
    return Banner.of(False, f"Do not trust the small CNN with digits it never saw: {found}.")


def _why(verdict: Verdict) -> str:
    """Who raised the alarms, in words."""
    first = Counter(reason.partition(", ")[0] for reason in verdict.reasons if reason)
    said = ", ".join(f"{name} in {count}" for name, count in first.most_common())
    return f"What raised the alarm on the unknown digit, the strongest first: {said or 'nothing'}."


def _cancelled_row(name: str, alarm: torch.Tensor) -> dict[str, object]:
    return {"answers": name, "inputs": len(alarm), "cancelled": int(alarm.sum())}


def _digits_figure(setting: Setting, known: Verdict, unknown: Verdict) -> "Figure":
    """The first digits of each kind, with the network's answer and the guard's verdict."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 3.1), layout="constrained")
    grid = figure.subplots(2, SHOWN)
    rows = zip(grid, (setting.test[0], setting.unknown), (known, unknown), strict=True)
    for line, images, verdict in rows:
        for axes, image, answer, alarm in zip(line, images, verdict.predictions, verdict.alarm, strict=False):
            axes.imshow(image[0].numpy(), cmap="gray_r")
            axes.set_xticks([])
            axes.set_yticks([])
            colour, decision = ("#d55e00", "cancelled") if alarm else ("#0072b2", "accepted")
            axes.set_xlabel(f"says {answer}\n{decision}", fontsize=8, color=colour)
            for side in axes.spines.values():
                side.set_color(colour)
    grid[0, 0].set_title("known digits", fontsize=9, loc="left")
    grid[1, 0].set_title(f"the unknown digit {UNKNOWN}", fontsize=9, loc="left")
    figure.suptitle("What the network says, and what the guard makes of it", fontsize=10)
    return figure
