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
from assay.benchmark.scenario import tensor_or_texts
from assay.check.accuracy_trials import taught_and_tried
from assay.check.gate import UNKNOWN, Gate, decided
from assay.check.left_out import (
    NO_LAYERS,
    Reasons,
    gradient_obstacle,
    usable_faults,
    usable_monitors,
)
from assay.check.proposed_guard import PROPOSED, rival
from assay.check.result import Check
from assay.data.apart import check_apart
from assay.errors import GradientError, InputError
from assay.faults import Attack, Template
from assay.guard import Guard
from assay.guard.default import fitted_monitor
from assay.labels import class_numbers
from assay.mira import MiraResult, Monitorability, monitorability
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

MONITORABILITY, MIRA = "monitorability", "MIRA score"
"""Names of gates."""

LEAST_MONITORABILITY = 0.6
"""What is wanted unless stated: clearly more than guessing, which is 0.5."""

Pair = tuple[Any, Tensor]


def check_network(
    network: Network,
    data: Any,
    *,
    test: Any = None,
    candidates: Mapping[str, Monitor] | None = None,
    novelty: Mapping[str, Any] | None = None,
    faults: Iterable[str | Template | Attack] | None = None,
    severities: Sequence[int] = (1, 5),
    false_alarm_rate: float = 0.05,
    least_accuracy: float | None = None,
    least_monitorability: float | None = None,
    least_mira: float | None = None,
    least_mcc: float = 0.1,
    accuracy_threshold: float = 0.5,
    low: float | None = None,
    high: float | None = None,
    teach: bool = True,
    seed: int = 0,
) -> Check:
    """Check accuracy, monitorability and the default guard; calibrate it and a watch.

    `data` are labelled in-distribution inputs, (inputs, labels): 60 % fit the monitors, 20 % set thresholds
    and the reference of the watch, and 20 % are for testing. With `test`, 75 % and 25 % of `data` do the
    first two. A gate is decided only if its interval (95 %) lies on one side of what is wanted: by default
    the accuracy of always naming the most frequent class, a monitorability of 0.6, and a mean MCC of the
    default guard over scenarios of 0.1. MIRA has a gate only if you want a `least_mira`. The best of
    `candidates`, chosen on half of the faults and measured on the others, is named beside the guard. False
    alarms fail if chance gives fewer in 99 of 100 cases. With `teach`, an `AccuracyEstimator` is taught and
    tried. `left_out` says what a network cannot take part in, and why.
    """
    _check_wanted(false_alarm_rate, least_accuracy, least_monitorability, least_mira, least_mcc)
    network.expect_one_row_per_input("a check")
    settings = MiraSettings(accuracy_threshold=accuracy_threshold, low=low, high=high, seed=seed)
    left_out: Reasons = {}
    learned, held, tested = _split(data, test, seed, network.ignore_index, left_out)
    obstacle = gradient_obstacle(network, tested[0])
    chosen = usable_monitors(_named(candidates) or _usual(network), network, obstacle, left_out)
    usable = usable_faults(faults, obstacle, left_out)
    scenarios = build_scenarios(
        *tested, network=network, severities=severities, novelty=novelty, faults=usable, seed=seed
    )
    fitted, calibrating, unseen = (network.observe(part, True) for part in (learned, held, tested))
    guards = _guards(network, chosen, fitted, calibrating, false_alarm_rate, seed)
    benchmark = run_benchmark(guards, scenarios, seed=seed)
    seen, reason = _monitorability(network, fitted, tested, seed)
    left_out |= {MONITORABILITY: reason} if reason and least_monitorability is None else {}
    gates = [_accuracy_gate(unseen, least_accuracy), _monitorability_gate(seen, reason, least_monitorability)]
    mira = None
    if least_mira is not None:
        mira, why = _mira(network, learned, tested, fitted, settings, obstacle)
        gates.append(_mira_gate(mira, why, least_mira))
    gates.append(_detection_gate(benchmark, least_mcc))
    gates.append(_false_alarm_gate(guards[PROPOSED], unseen, own_split=test is None))
    taught = taught_and_tried(network, (learned, held), scenarios, seed, left_out) if teach else ()
    parts = seen, mira, benchmark, guards[PROPOSED], _watch(calibrating, seed), left_out, *taught
    return Check(tuple(gate for gate in gates if gate.name not in left_out), *parts)


def _check_wanted(
    rate: float, accuracy: float | None, monitorability: float | None, mira: float | None, mcc: float
) -> None:
    for name, value, low, high in (
        ("false_alarm_rate", rate, 0, 1),
        ("least_accuracy", accuracy, 0, 1),
        ("least_monitorability", monitorability, 0, 1),
        ("least_mira", mira, -1, math.inf),
        ("least_mcc", mcc, -1, 1),
    ):
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            raise InputError(f"expected {name} as a number from {low} to {high}, got {value}")


def _split(data: Any, test: Any, seed: int, ignore_index: int, left_out: Reasons) -> tuple[Pair, Pair, Pair]:
    inputs, labels = _without_ignored(_labelled(data, "data"), "data", ignore_index, left_out)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    cuts = (0.6, 0.8) if test is None else (0.75, 1.0)
    first, second = (round(share * len(order)) for share in cuts)
    parts = [
        (rows(inputs, part), labels[part]) for part in (order[:first], order[first:second], order[second:])
    ]
    if test is not None:
        parts[2] = _without_ignored(_labelled(test, "test"), "test", ignore_index, left_out)
        check_apart((inputs, labels), parts[2], ("data", "test"))
    return parts[0], parts[1], parts[2]


def _without_ignored(data: Pair, name: str, ignore_index: int, left_out: Reasons) -> Pair:
    """The rows with a label; how many others there were goes to `left_out`."""
    inputs, labels = data
    ignored = labels == ignore_index
    if not ignored.any():
        return data
    left_out[f"{int(ignored.sum())} rows of {name}"] = f"their label is {ignore_index}, which is ignored"
    return rows(inputs, ~ignored), labels[~ignored]


def _labelled(data: Any, name: str) -> Pair:
    if not isinstance(data, tuple | list) or len(data) != 2 or data[1] is None:
        raise InputError(
            f"expected {name} as (inputs, labels), got {type(data).__name__} without labels; "
            "a check needs to know what is right"
        )
    inputs, labels = tensor_or_texts(data[0]), class_numbers(data[1])
    if length(inputs) != len(labels) or (name == "data" and len(labels) < FEWEST):
        raise InputError(
            f"expected at least {FEWEST} inputs with a label each in {name}, got {length(inputs)} inputs "
            f"and {len(labels)} labels; gather more"
        )
    return inputs, labels


def _named(candidates: Mapping[str, Monitor] | None) -> Mapping[str, Monitor]:
    """The candidates; an error if one has the name of the default guard."""
    if PROPOSED in (candidates or {}):
        raise InputError(f"expected candidates with other names, got {PROPOSED!r}, which is always there")
    return candidates or {}


def _usual(network: Network) -> dict[str, Monitor]:
    """Monitors that need only a Trace, so that black boxes can be checked too: of outputs and, where layers
    are watched, of the first of them."""
    chosen: tuple[Monitor, ...]
    if network.layers:
        layer = network.layers[0]
        chosen = (
            monitors.MaxSoftmax(),
            monitors.Energy(),
            monitors.Mahalanobis(layer=layer),
            monitors.KNN(layer=layer),
            monitors.ActivationBox(layer=layer),
        )
    else:  # often probabilities, of which the energy says nothing
        chosen = (monitors.MaxSoftmax(), monitors.Entropy(), monitors.GEN(), monitors.KLMatching())
    return {type(monitor).__name__: monitor for monitor in chosen}


def _guards(
    network: Network, candidates: Mapping[str, Monitor], trace: Trace, held: Trace, rate: float, seed: int
) -> dict[str, Guard]:
    """The proposed guard and those of the candidates, fitted on the Trace and calibrated on rows held out."""
    fitted: dict[str, Monitor] = {PROPOSED: fitted_monitor(network, trace, seed=seed)}
    fitted |= {name: monitor.fit(trace) for name, monitor in candidates.items()}
    return {name: Guard(network, monitor).calibrate(held, rate) for name, monitor in fitted.items()}


def _monitorability(
    network: Network, fitted: Trace, test: Pair, seed: int
) -> tuple[Monitorability | None, str]:
    """What the panel says, or the reason why it cannot be asked."""
    try:
        return monitorability(network, fitted, test, seed=seed), ""
    except InputError as error:
        return None, str(error).rstrip(".")


def _mira(
    network: Network, train: Pair, test: Pair, fitted: Trace, settings: MiraSettings, obstacle: str
) -> tuple[MiraResult | None, str]:
    """The score, or why there is none: no layer, an `obstacle` to gradients, or what went wrong."""
    if obstacle or not network.layers:
        return None, obstacle if network.layers else NO_LAYERS
    shrinking = replace(settings, estimator=_estimator(fitted))
    try:
        return scores(network, train, test, [network.layers[0]], shrinking)[0], ""
    except (InputError, GradientError) as error:
        return None, str(error)


def _estimator(fitted: Trace) -> str:
    """The estimator of MIRA's covariance: one that shrinks if there are few rows for the width."""
    count, width = next(iter(fitted.features.values())).shape
    return "empirical" if count > 2 * width else "ledoit_wolf"


def _watch(clean: Trace, seed: int) -> VolatilityWatch:
    return VolatilityWatch(min(LARGEST_WINDOW, len(clean) // 2)).calibrate(clean, seed=seed)


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


def _monitorability_gate(found: Monitorability | None, reason: str, least: float | None) -> Gate:
    least = LEAST_MONITORABILITY if least is None else least
    wanted = f"above {least:g}"
    if found is None:
        words = f"Monitorability could not be measured: {reason}."
        return Gate(MONITORABILITY, math.nan, UNKNOWN, least, wanted, None, words)
    interval = found.lower, found.upper
    passed = decided(interval, least)
    verdict = {
        True: "what the network does not know shows, and a monitor can see it",
        False: "what the network does not know hardly shows, so no monitor of it will see much",
        None: "too few test inputs, or too mixed a picture, to tell whether failures will show",
    }[passed]
    words = (
        f"The best monitor tells known inputs from inputs that make no sense with an AUROC of "
        f"{found.score:.3f} on average (95 % interval {found.lower:.3f} to {found.upper:.3f}; 0.5 is "
        f"guessing): {verdict}. The best single one is {found.best_monitor} ({found.best_layer})."
    )
    return Gate(MONITORABILITY, found.score, interval, least, wanted, passed, words)


def _mira_gate(found: MiraResult | None, reason: str, least: float) -> Gate:
    wanted = f"above {least:g}"
    if found is None:
        words = f"The MIRA score could not be measured: {reason.rstrip('.')}."
        return Gate(MIRA, math.nan, UNKNOWN, least, wanted, None, words)
    low, high = found.interval
    passed = decided(found.interval, least)
    verdict = {
        True: "inputs pushed across a decision boundary look more unusual from inside than you asked for",
        False: "inputs pushed across a decision boundary look less unusual from inside than you asked for",
        None: "these test inputs are too few to tell whether that is above what you asked for",
    }[passed]
    words = f"The MIRA score is {found.score:.3g} ({low:.3g} to {high:.3g}): {verdict}."
    return Gate(MIRA, found.score, found.interval, least, wanted, passed, words)


def _detection_gate(result: BenchmarkResult, least: float) -> Gate:
    value = float(result.by_guard().set_index("guard")["specific_mcc"][PROPOSED])
    low, high = result.interval(PROPOSED)
    passed = decided((low, high), least)
    verdict = {
        True: "it is the guard to ship",
        False: "too little to rely on; try other layers or monitors",
        None: f"too few test inputs to tell whether that is at least {least:g}; gather more",
    }[passed]
    other = rival(result)
    words = (
        f"The alarms of the {PROPOSED} agree with the faults of {result.table['scenario'].nunique()} "
        f"scenarios by a mean MCC of {value:.2f} (95 % interval {low:.2f} to {high:.2f}; 0 is guessing): "
        f"{verdict}.{'' if other is None else ' ' + other.words}"
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
