"""One call that checks whether a network is fit to ship."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from scipy.stats import betabinom
from torch import Tensor

from assay import monitors
from assay.benchmark import BenchmarkResult, build_scenarios, run_benchmark
from assay.check.gate import UNKNOWN, Gate, decided
from assay.check.result import Check
from assay.data.apart import check_apart
from assay.errors import GradientError, InputError
from assay.guard import Guard
from assay.labels import class_numbers
from assay.mira import MiraResult, ShuffleScore, shuffle_score
from assay.mira.score import scores
from assay.mira.settings import MiraSettings
from assay.monitors.monitor import Monitor
from assay.network import Network, length, rows
from assay.statistics import wilson_interval
from assay.trace import Trace
from assay.volatility import VolatilityWatch

FEWEST = 200
"""Fewest labelled inputs with which a gate can be decided."""

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
    """Check accuracy, monitorability (MIRA) and the best of several monitors; calibrate a Guard and a watch.

    `data` are labelled in-distribution inputs, (inputs, labels): 60 % fit the monitors, 20 % set thresholds
    and the reference of the watch, and 20 % are for testing. With `test`, 75 % and 25 % of `data` do the
    first two. `least_accuracy` is by default that of always naming the most frequent class. A gate is decided
    only if its interval (95 %) lies on one side of what is wanted; `least_mcc` applies to the mean over
    scenarios of the monitor that is best on them. The gate on false alarms fails if they are more than chance
    gives in 99 of 100 cases, in which the threshold is random too.
    """
    _check_wanted(false_alarm_rate, least_accuracy, least_mira, least_mcc)
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
    shrinking = replace(settings, estimator=_estimator(fitted))
    monitorability, reason = _monitorability(network, learned, tested, shrinking)
    guard = guards[benchmark.best]
    gates = (
        _accuracy_gate(unseen, least_accuracy),
        _mira_gate(monitorability, reason, least_mira),
        _detection_gate(benchmark, least_mcc),
        _false_alarm_gate(guard, unseen, own_split=test is None),
    )
    watch = VolatilityWatch(min(LARGEST_WINDOW, len(calibrating) // 2))
    watch.calibrate(calibrating, seed=seed)
    return Check(gates, monitorability, _shuffle(network, tested[0], seed), benchmark, guard, watch)


def _check_wanted(rate: float, accuracy: float | None, mira: float, mcc: float) -> None:
    for name, value, low, high in (
        ("false_alarm_rate", rate, 0, 1),
        ("least_accuracy", accuracy, 0, 1),
        ("least_mira", mira, -1, math.inf),
        ("least_mcc", mcc, -1, 1),
    ):
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            raise InputError(f"expected {name} as a number from {low} to {high}, got {value}")


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
        check_apart((inputs, labels), parts[2], ("data", "test"))
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
    """Monitors that need only a Trace, so that black boxes can be checked too."""
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


def _estimator(fitted: Trace) -> str:
    """The estimator of MIRA's covariance: one that shrinks if there are few rows for the width."""
    count, width = next(iter(fitted.features.values())).shape
    return "empirical" if count > 2 * width else "ledoit_wolf"


def _shuffle(network: Network, inputs: Any, seed: int) -> ShuffleScore | None:
    try:
        return shuffle_score(network, inputs, seed=seed)
    except InputError:  # token ids: a shuffled one is another word
        return None


def _accuracy_gate(trace: Trace, least: float | None) -> Gate:
    count, right = len(trace), int(trace.correct.sum())
    low, high = wilson_interval(right, count)
    wanted = float(trace.known_labels.bincount().max()) / count if least is None else least
    passed = decided((low, high), wanted)
    return Gate(
        "accuracy",
        right / count,
        (low, high),
        wanted,
        f"at least {wanted:.3g}",
        passed,
        f"On {count:,} test inputs the network is right in {right / count:.1%} (95 % interval "
        f"{low:.1%} to {high:.1%})"
        + (", which is more than the most frequent class gives." if least is None and passed else ".")
        + (f" But {trace.order_hint}." if trace.order_hint else ""),
    )


def _mira_gate(found: MiraResult | None, reason: str, least: float) -> Gate:
    wanted = f"above {least:g}"
    if found is None:
        words = f"Monitorability could not be measured: {reason.rstrip('.')}."
        return Gate("monitorability (MIRA)", math.nan, UNKNOWN, least, wanted, None, words)
    low, high = found.interval
    passed = decided(found.interval, least)
    verdict = {
        True: "inputs that cross a decision boundary look unusual from inside: a monitor can see them",
        False: "wrong inputs hardly look unusual from inside, so no monitor of this layer will see much",
        None: "these test inputs are too few to tell whether wrong inputs look unusual from inside",
    }[passed]
    words = f"The MIRA score is {found.score:.3g} ({low:.3g} to {high:.3g}): {verdict}."
    return Gate("monitorability (MIRA)", found.score, found.interval, least, wanted, passed, words)


def _detection_gate(result: BenchmarkResult, least: float) -> Gate:
    value = float(result.by_guard().set_index("guard")["specific_mcc"][result.best])
    low, high = result.interval(result.best)
    passed = decided((low, high), least)
    verdict = {
        True: "it is the guard to ship",
        False: "too little to rely on; try other layers or monitors",
        None: f"too few test inputs to tell whether that is at least {least:g}; gather more",
    }[passed]
    words = (
        f"Of {len(result.guards)} monitors {result.best} agrees best with the faults of "
        f"{result.table['scenario'].nunique()} scenarios (mean MCC {value:.2f}, 95 % interval {low:.2f} to "
        f"{high:.2f}; 0 is guessing): {verdict}."
    )
    return Gate("detection (mean MCC)", value, (low, high), least, f"at least {least:g}", passed, words)


def _false_alarm_gate(guard: Guard, trace: Trace, own_split: bool) -> Gate:
    alarms, count = int(guard.judge(trace).alarm.sum()), len(trace)
    rate, most = guard.calibration["false_alarm_rate"], _most_by_chance(guard, count)
    words = (
        f"On good inputs the guard raises the alarm in {alarms / count:.1%} ({alarms} of {count:,}; "
        f"promised: at most {rate:.1%} on average, and by chance up to {most / count:.1%})"
    )
    if alarms > most:
        words += (
            "; that happens in one random split out of a hundred: this threshold came out too low, so check "
            "again with another seed, or with more data"
            if own_split
            else "; the test inputs are not like those that the threshold was set on"
        )
    return Gate(
        "false alarms",
        alarms / count,
        wilson_interval(alarms, count),
        most / count,
        f"at most {most / count:.3g}",
        alarms <= most,
        f"{words}.",
        at_most=True,
    )


def _most_by_chance(guard: Guard, count: int) -> int:
    """The most alarms among `count` inputs like those of the calibration, in 99 cases of a hundred.

    The threshold is the k-th smallest of n scores, and so random itself: alarms are beta-binomial with
    (n + 1 - k, k). This is exact if no scores tie; if some do, alarms are fewer.
    """
    points, rank = guard.calibration["rows"], guard.calibration["rank"]
    return int(betabinom.ppf(0.99, count, points + 1 - rank, rank))
