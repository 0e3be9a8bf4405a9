"""One call that asks everything that can be asked before a network ships."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor

from assay import monitors
from assay.benchmark import BenchmarkResult, build_scenarios, run_benchmark
from assay.check.gate import UNKNOWN, Gate, Interval
from assay.check.result import Check
from assay.errors import GradientError, InputError
from assay.guard import Guard
from assay.labels import class_numbers
from assay.mira import MiraResult, ShuffleScore, shuffle_score
from assay.mira.score import scores
from assay.mira.settings import MiraSettings
from assay.monitors.monitor import Monitor
from assay.network import Network, length, rows
from assay.trace import Trace
from assay.volatility import VolatilityWatch

FEWEST = 200
"""Labelled inputs below which no gate could be decided."""

LARGEST_WINDOW = 1000

Pair = tuple[Any, Tensor]


def check_network(
    network: Network,
    data: Any,
    *,
    test: Any = None,
    candidates: Mapping[str, Monitor] | None = None,
    novelty: Mapping[str, Any] | None = None,
    faults: Iterable[str] | None = None,
    severities: Sequence[int] = (1, 5),
    false_alarm_rate: float = 0.05,
    least_accuracy: float | None = None,
    least_mira: float = 0.0,
    least_mcc: float = 0.1,
    accuracy_threshold: float = 0.5,
    low: float | None = None,
    high: float | None = None,
    seed: int = 0,
) -> Check:
    """Accuracy, monitorability (MIRA) and the best of several monitors, against gates; a Guard and a watch.

    `data` are labelled in-distribution inputs, (inputs, labels): 60 % fit the monitors, 20 % set thresholds
    and the reference of the watch, 20 % are tested on. With `test` the shares are 75 and 25 % of `data`.
    `least_accuracy` is, where not given, that of always naming the most frequent class. A gate is decided
    only where its interval (95 %) lies on one side of what is wanted; `least_mcc` is held against the mean
    over scenarios of the monitor that is best on them.
    """
    settings = MiraSettings(accuracy_threshold=accuracy_threshold, low=low, high=high, seed=seed)
    if not network.layers:
        raise InputError("expected a Network that watches a layer, got layers=(); pass layers='penultimate'")
    learned, held, tested = _split(data, test, seed)
    scenarios = build_scenarios(
        *tested, network=network, severities=severities, novelty=novelty, faults=faults, seed=seed
    )
    fitted, calibrating, unseen = (
        network.observe(part, keep_inputs=True) for part in (learned, held, tested)
    )
    guards = _guards(network, candidates or _usual(network), fitted, calibrating, false_alarm_rate)
    benchmark = run_benchmark(guards, scenarios, seed=seed)
    monitorability, reason = _monitorability(network, learned, tested, settings)
    guard = guards[benchmark.best]
    gates = (
        _accuracy_gate(unseen, least_accuracy),
        _mira_gate(monitorability, reason, least_mira),
        _detection_gate(benchmark, least_mcc),
        _false_alarm_gate(guard, unseen, false_alarm_rate),
    )
    watch = VolatilityWatch(min(LARGEST_WINDOW, len(calibrating) // 2))
    watch.calibrate(calibrating, seed=seed)
    return Check(gates, monitorability, _shuffle(network, tested[0], seed), benchmark, guard, watch)


def _split(data: Any, test: Any, seed: int) -> tuple[Pair, Pair, Pair]:
    inputs, labels = _labelled(data, "data")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    cuts = (0.6, 0.8) if test is None else (0.75, 1.0)
    first, second = (round(share * len(order)) for share in cuts)
    parts = [
        (rows(inputs, part), labels[part]) for part in (order[:first], order[first:second], order[second:])
    ]
    if test is not None:
        parts[2] = _labelled(test, "test")
    return parts[0], parts[1], parts[2]


def _labelled(data: Any, name: str) -> Pair:
    if not isinstance(data, tuple | list) or len(data) != 2 or data[1] is None:
        raise InputError(
            f"expected {name} as (inputs, labels), got {type(data).__name__} without labels; "
            "a check needs to know what is right"
        )
    inputs = list(data[0]) if isinstance(data[0], list | tuple) else torch.as_tensor(data[0])
    labels = class_numbers(data[1])
    if length(inputs) != len(labels) or (name == "data" and len(labels) < FEWEST):
        raise InputError(
            f"expected at least {FEWEST} inputs with a label each in {name}, got {length(inputs)} inputs "
            f"and {len(labels)} labels; gather more"
        )
    return inputs, labels


def _usual(network: Network) -> dict[str, Monitor]:
    """Monitors that need nothing but a Trace, so that black boxes can be checked, too."""
    layer = network.layers[0]
    chosen = (
        monitors.MaxSoftmax(),
        monitors.Energy(),
        monitors.Mahalanobis(layer=layer),
        monitors.KNN(layer=layer),
    )
    return {type(monitor).__name__: monitor for monitor in (*chosen, monitors.ActivationBox(layer=layer))}


def _guards(
    network: Network, candidates: Mapping[str, Monitor], fitted: Trace, held: Trace, rate: float
) -> dict[str, Guard]:
    return {
        name: Guard(network, monitor.fit(fitted)).calibrate(held, rate)
        for name, monitor in candidates.items()
    }


def _monitorability(
    network: Network, train: Pair, test: Pair, settings: MiraSettings
) -> tuple[MiraResult | None, str]:
    """The score, or the reason why there is none."""
    try:
        return scores(network, train, test, [network.layers[0]], settings)[0], ""
    except (InputError, GradientError) as error:
        return None, str(error)


def _shuffle(network: Network, inputs: Any, seed: int) -> ShuffleScore | None:
    try:
        return shuffle_score(network, inputs, seed=seed)
    except InputError:  # token ids: another one in their place is another word
        return None


def _share_interval(count: int, total: int) -> Interval:
    interval = binomtest(count, total).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def _accuracy_gate(trace: Trace, least: float | None) -> Gate:
    count, right = len(trace), int(trace.correct.sum())
    low, high = _share_interval(right, count)
    wanted = float(trace.known_labels.bincount().max()) / count if least is None else least
    passed = True if low >= wanted else False if high < wanted else None
    return Gate(
        "accuracy",
        right / count,
        (low, high),
        wanted,
        f"at least {wanted:.3g}",
        passed,
        f"On {count:,} test inputs the network is right in {right / count:.1%} (95 % interval "
        f"{low:.1%} to {high:.1%})"
        + (", which is more than the most frequent class gives." if least is None and passed else "."),
    )


def _mira_gate(found: MiraResult | None, reason: str, least: float) -> Gate:
    wanted = f"above {least:g}"
    if found is None:
        words = f"How visible failures are from inside could not be measured: {reason.rstrip('.')}."
        return Gate("monitorability (MIRA)", math.nan, UNKNOWN, least, wanted, None, words)
    low, high = found.interval
    passed = True if low > least else False if high <= least else None
    said = {
        True: "inputs that cross a decision boundary look unusual from inside: a monitor can see them",
        False: "wrong inputs hardly look unusual from inside, so no monitor of this layer will see much",
        None: "with these test inputs it cannot be told whether wrong inputs look unusual from inside",
    }[passed]
    words = f"The MIRA score is {found.score:.3g} ({low:.3g} to {high:.3g}): {said}."
    return Gate("monitorability (MIRA)", found.score, found.interval, least, wanted, passed, words)


def _detection_gate(result: BenchmarkResult, least: float) -> Gate:
    facts = result.by_guard()
    best = facts[facts["guard"] == result.best]
    value, chance = float(best["specific_mcc"].iloc[0]), float(best["p_above_chance"].iloc[0])
    low, high = _mean_interval(result.table[result.table["guard"] == result.best]["specific_mcc"].to_numpy())
    passed = value >= least and chance < 0.05
    words = (
        f"Of {len(result.guards)} monitors {result.best} agrees best with the faults of "
        f"{result.table['scenario'].nunique()} scenarios (mean MCC {value:.2f}, over scenarios {low:.2f} to "
        f"{high:.2f}; 0 is guessing)"
        + (
            ": it is the guard to ship."
            if passed
            else ": too little to rely on; try other layers or monitors."
        )
    )
    wanted = f"at least {least:g}, above chance"
    return Gate("detection (mean MCC)", value, (low, high), least, wanted, passed, words)


def _mean_interval(values: "np.ndarray[Any, Any]", draws: int = 2000) -> Interval:
    """Percentile bootstrap (95 %) of the mean over scenarios."""
    rows = np.random.default_rng(0).integers(len(values), size=(draws, len(values)))
    low, high = np.quantile(values[rows].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _false_alarm_gate(guard: Guard, trace: Trace, rate: float) -> Gate:
    alarms, count = int(guard.judge(trace).alarm.sum()), len(trace)
    # The promise is an average over calibration sets, so only a clear excess is a failure.
    broken = binomtest(alarms, count, rate, alternative="greater").pvalue < 0.01
    words = (
        f"On good inputs the guard raises the alarm in {alarms / count:.1%} ({alarms} of {count:,}; "
        f"promised: at most {rate:.1%})"
        + ("; test and calibration data do not come from the same source." if broken else ".")
    )
    interval, wanted = _share_interval(alarms, count), f"not clearly over {rate:g}"
    return Gate("false alarms", alarms / count, interval, rate, wanted, not broken, words, at_most=True)
