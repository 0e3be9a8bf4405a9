"""Chapter: every monitor, on a class that was left out of training."""

import time
from typing import TYPE_CHECKING

import pandas as pd
from torch import nn

from assay import monitors
from assay.demo.setting import Setting
from assay.engine import progress
from assay.guard import Guard
from assay.network import Network
from assay.report import Section
from assay.statistics import auroc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FALSE_ALARM_RATE = 0.05


def chosen_monitors(setting: Setting, network: Network) -> list[monitors.Monitor]:
    """One of each kind, with default settings; rules and wrappers are left to the docs."""
    chosen: list[monitors.Monitor] = [
        monitors.MaxSoftmax(),
        monitors.MaxLogit(),
        monitors.Entropy(),
        monitors.Energy(),
        monitors.GEN(),
        monitors.KLMatching(),
        monitors.ODIN(network),
        monitors.Mahalanobis(),
        monitors.RelativeMahalanobis(),
        monitors.KNN(),
        monitors.NNGuide(),
        monitors.ViM(),
        monitors.ReAct(),
        monitors.SHE(),
        monitors.ActivationBox(),
        monitors.ActivationPattern(),
        monitors.GaussianInterval(),
        monitors.Reconstruction(seed=setting.seed),
        monitors.EnsembleDisagreement(list(setting.networks.values())),
        monitors.Standardised([monitors.Energy(), monitors.KNN(), monitors.GaussianInterval()]),
    ]
    if any(isinstance(part, nn.Dropout) for part in network.module.modules()):
        chosen.append(monitors.MonteCarloDropout(network))
    return chosen


def doubts(setting: Setting) -> Section:
    """AUROC of each monitor on each network, and what a calibrated guard catches."""
    table = pd.DataFrame(
        [row for name, network in setting.networks.items() for row in _rows(setting, name, network)]
    )
    everywhere = table.groupby("monitor").filter(lambda rows: len(rows) == len(setting.networks))
    means = everywhere.groupby("monitor")["auroc"].mean()
    words = (
        "A monitor gives every answer a score of doubt. AUROC is the chance that an unknown digit gets a "
        "higher score than a known one: 0.5 is guessing, 1 is perfect. On average over the three networks "
        f"{means.idxmax()} does best ({means.max():.2f}). That is about the unknown digit alone: which guard "
        "does best on all kinds of fault is another question, asked in the next chapter. Each monitor was "
        f"also given a threshold, set on clean validation digits alone so that at most "
        f"{FALSE_ALARM_RATE:.0%} of good inputs raise the alarm; the table shows how many did on the test "
        "set, how many of the unknown digits were caught, and what the monitor costs in time and memory."
    )
    advice = (
        "Choose by what you can afford to miss: the share of unknown digits caught is what you get, the "
        "false alarms are what you pay. The order changes from one network to the next, so compare on your "
        "own."
    )
    return Section(
        "Which monitor sees the unknown",
        words,
        "Which monitor, at which threshold, catches which faults, at what cost?",
        [_figure(table)],
        table.sort_values("auroc", ascending=False, ignore_index=True),
        advice=advice,
    )


def _rows(setting: Setting, name: str, network: Network) -> list[dict[str, object]]:
    train, validation = (
        network.observe(data, keep_inputs=True) for data in (setting.train, setting.validation)
    )
    known, unknown = (network.observe(data, keep_inputs=True) for data in (setting.test, setting.unknown))
    rows: list[dict[str, object]] = []
    for monitor in progress(chosen_monitors(setting, network), f"monitors on the {name}"):
        guard = Guard(network, monitor.fit(train)).calibrate(validation, FALSE_ALARM_RATE)
        start = time.perf_counter()
        verdicts = guard.judge(known), guard.judge(unknown)
        seconds = time.perf_counter() - start
        area = auroc(verdicts[0].scores.numpy(), verdicts[1].scores.numpy())
        rows.append(
            {
                "monitor": type(monitor).__name__,
                "network": name,
                "auroc": area.value,
                "lower": area.lower,
                "upper": area.upper,
                "false_alarms": float(verdicts[0].alarm.double().mean()),
                "unknown_caught": float(verdicts[1].alarm.double().mean()),
                "microseconds_per_input": 1e6 * seconds / (len(known) + len(unknown)),
                "kilobytes": monitor.nbytes / 1000,
            }
        )
    return rows


def _figure(table: pd.DataFrame) -> "Figure":
    from matplotlib.figure import Figure

    wide = table.pivot(index="monitor", columns="network", values="auroc")
    wide = wide.loc[wide.mean(axis=1).sort_values().index, table["network"].unique()]
    figure = Figure(figsize=(7.5, 1.2 + 0.28 * len(wide)), layout="constrained")
    axes = figure.subplots()
    styles = zip(wide.columns, ("#0072b2", "#d55e00", "#009e73"), ("o", "s", "D"), strict=True)
    for network, colour, marker in styles:
        axes.plot(wide[network], range(len(wide)), marker, color=colour, label=network, alpha=0.85)
    axes.axvline(0.5, color="grey", linestyle=":", linewidth=1)
    axes.annotate(
        "guessing ", (0.5, len(wide) - 0.7), color="grey", fontsize=8, ha="right", rotation=90, va="top"
    )
    axes.set_yticks(range(len(wide)), list(wide.index))
    axes.set_xlabel("AUROC, unknown digit 9 against known digits 0 to 8")
    axes.set_xlim(min(0.45, float(wide.min().min()) - 0.03), 1.005)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_title("How well each monitor tells an unknown class from known ones", fontsize=10)
    return figure
