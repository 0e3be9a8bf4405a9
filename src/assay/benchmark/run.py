"""Send every scenario through every system under test, a network with its monitor, and measure."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from assay.benchmark.examples import Examples, examples_of
from assay.benchmark.finished_cells import FinishedCells
from assay.benchmark.mean_mcc import MeanMcc
from assay.benchmark.measures import all_measures, answer_mcc
from assay.benchmark.oracle import Flags, overall_outcome, overall_truth, specific_outcome, specific_truth
from assay.benchmark.readout import Readout, readouts
from assay.benchmark.result import REASON, BenchmarkResult
from assay.benchmark.scenario import Scenario, check_scenario_labels
from assay.engine import checked_engine, mapped
from assay.errors import InputError, NotFittedError
from assay.guard import CANCELLED, AnyGuard, Guard
from assay.sharded_trace import ShardedTrace
from assay.statistics import check_level


def run_benchmark(
    guards: Mapping[str, Guard],
    scenarios: Iterable[Scenario],
    *,
    batch_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    readouts: str | os.PathLike[str] | None = None,
    keep_features: bool = False,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    engine: str = "here",
    workers: int | None = None,
) -> BenchmarkResult:
    """Judge every row of every scenario by every guard; an alarm cancels the prediction.

    `batch_size=1` judges one input at a time and measures latency, as the paper does; None uses the network's
    batches and measures throughput. Where inputs have several predictions, every one of them is judged and
    measured, and whole inputs as well (`input_*`); intervals take inputs as independent, not their rows.
    Guards that share a network share its forward pass; the seconds of a
    monitor are its own. With `checkpoint`, a folder, every finished guard and scenario is written to disk,
    and a run that was stopped resumes there. With `readouts`, a folder, the readout of every input is kept as
    parquet, with `keep_features` also what the watched layers put out. Time is that of the forward passes and
    the monitors; one scenario is in memory at a time.
    `engine` runs scenarios in other processes ("processes") or on a Ray cluster ("ray"), with the same result
    except for the seconds, which are then those of busy machines. The shards of a ShardedTrace are judged
    each by any worker.
    """
    chosen = list(scenarios)
    _check(guards, chosen, batch_size, level, resamples)
    checked_engine(engine, workers)
    settings = {"level": level, "resamples": resamples, "seed": seed}
    kept = {"keep_features": True} if keep_features else {}  # cells of earlier versions stay valid
    cells = FinishedCells(guards, checkpoint, readouts, settings | {"batch_size": batch_size} | kept)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    means = {name: MeanMcc() for name in guards}
    examples: Examples | None = None
    unfinished: list[tuple[Scenario, list[str]]] = []
    for scenario in chosen:
        for name in guards:
            if (cell := cells.read(name, scenario)) is not None:
                rows[scenario.name, name], alarm, sources = cell
                means[name].add(scenario, alarm, sources)
        if wanted := [name for name in guards if (scenario.name, name) not in rows]:
            unfinished.append((scenario, wanted))
    judge = partial(_judge_part, dict(guards), batch_size, settings, keep_features)
    for scenario, name, judged in _judged_cells(guards, unfinished, judge, settings, engine, workers):
        row, readout, mistakes = judged
        if mistakes is not None:
            examples = mistakes if examples is None else examples.joined(mistakes)
        cells.write(name, scenario, row, readout.to_frame(scenario), readout.sources)
        rows[scenario.name, name] = row
        means[name].add(scenario, readout.alarm, readout.sources)
    table = pd.DataFrame([rows[scenario.name, name] for scenario in chosen for name in guards])
    result = BenchmarkResult(table, level, {name: mean.error for name, mean in means.items()})
    return result if examples is None else result.with_examples(examples)


Judged = tuple[dict[str, Any], Readout, Examples | None]
"""What was measured of a guard, its readout, and inputs that it got wrong."""


def _judged_cells(
    guards: Mapping[str, Guard],
    unfinished: Sequence[tuple[Scenario, list[str]]],
    judge: Callable[[tuple[Scenario, list[str]]], dict[str, Judged]],
    settings: Mapping[str, Any],
    engine: str,
    workers: int | None,
) -> Iterator[tuple[Scenario, str, Judged]]:
    """The guards that each scenario lacks, on the engine; shards of recorded rows are jobs of their own."""
    jobs = ((part, wanted) for scenario, wanted in unfinished for part in scenario.parts())
    # Other processes need the inputs with the scenario; here they are made when their turn comes.
    sent = jobs if engine == "here" else ((part.self_contained(), wanted) for part, wanted in jobs)
    total = sum(len(scenario.parts()) for scenario, _ in unfinished)
    judged = mapped(judge, sent, engine, workers=workers, description="scenarios", total=total)
    for scenario, wanted in unfinished:
        parts = list(islice(judged, len(scenario.parts())))
        for name in wanted:
            judgements = [part[name] for part in parts]
            yield scenario, name, _of_whole(name, guards[name], scenario, judgements, settings)


def _judge_part(
    guards: Mapping[str, Guard],
    batch_size: int | None,
    settings: Mapping[str, Any],
    keep_features: bool,
    job: tuple[Scenario, list[str]],
) -> dict[str, Judged]:
    """Some guards on one scenario, or on a shard of it, which is measured with the others."""
    scenario, wanted = job
    found = readouts({name: guards[name] for name in wanted}, scenario, batch_size, keep_features)
    if scenario.recorded is not None:
        return {name: ({}, readout, None) for name, readout in found}
    return {
        name: (
            _row(name, guards[name], scenario, readout, settings),
            readout,
            examples_of(name, scenario, readout),
        )
        for name, readout in found
    }


def _of_whole(
    name: str, guard: Guard, scenario: Scenario, parts: list[Judged], settings: Mapping[str, Any]
) -> Judged:
    if scenario.recorded is None:
        return parts[0]
    readout = Readout.joined([readout for _, readout, _ in parts])
    return _row(name, guard, scenario, readout, settings), readout, None


def _row(
    name: str, guard: Guard, scenario: Scenario, readout: Readout, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything measured of one guard on one scenario."""
    is_fault, is_novelty, correct = readout.flags(scenario)
    row: dict[str, Any] = {
        "guard": name,
        "scenario": scenario.name,
        "category": scenario.category,
        "severity": scenario.severity,
        "inputs": len(scenario),
        "faults": int(scenario.is_fault.sum()),
    }
    for prefix, oracle, truth in (
        ("specific", specific_outcome, specific_truth),
        ("overall", overall_outcome, overall_truth),
    ):
        outcomes = oracle(is_fault, is_novelty, correct, readout.alarm)
        should = truth(is_fault, is_novelty, correct)
        row |= all_measures(prefix, should, outcomes, readout.scores, settings, readout.sources)
    row |= _input_measures(scenario, readout, settings) | _reason_shares(guard, is_fault, readout)
    labels, answers = readout.labels, np.where(readout.alarm, CANCELLED, readout.predictions)
    clean, sources = ~is_fault, readout.sources
    for title, given in (("model_mcc", readout.predictions), ("system_mcc", answers)):
        row |= answer_mcc(title, labels, given, settings, sources)
        of_clean = None if sources is None else sources[clean]
        row |= answer_mcc(f"clean_{title}", labels[clean], given[clean], settings, of_clean)
    return row | {
        "clean_false_alarms": float(readout.alarm[clean].mean()) if clean.any() else float("nan"),
        "accuracy": float(correct.mean()) if len(correct) else float("nan"),
        "model_seconds": float(readout.model_seconds.mean()) if len(correct) else float("nan"),
        "monitor_seconds": float(readout.monitor_seconds.mean()) if len(correct) else float("nan"),
        "model_bytes": sum(part.nbytes for part in guard.network.module.state_dict().values()),
        "monitor_bytes": guard.monitor.nbytes,
    }


def _reason_shares(guard: Guard, is_fault: Flags, readout: Readout) -> dict[str, float]:
    """Of the alarms on faults, the share in which each member had the most evidence."""
    if readout.reasons is None:
        return {}
    first = [reason.partition(", ")[0] for reason in readout.reasons[is_fault & readout.alarm]]
    return {f"{REASON}{name}": first.count(name) / max(1, len(first)) for name in guard.members}


def _input_measures(
    scenario: Scenario, readout: Readout, settings: Mapping[str, Any]
) -> dict[str, float | int]:
    """Whether alarms on whole inputs say which were made faulty; nothing where every input has one row."""
    if readout.sources is None:
        return {}
    found: dict[str, float | int] = {"rows": len(readout.labels)}
    if readout.per_input is None:
        return found
    is_fault, alarm = scenario.is_fault.numpy(), readout.per_input.alarm.numpy()
    outcomes = specific_outcome(is_fault, is_fault, is_fault, alarm)
    return found | all_measures("input", is_fault, outcomes, readout.per_input.scores.numpy(), settings)


def _check(
    guards: Mapping[str, Guard],
    scenarios: list[Scenario],
    batch_size: int | None,
    level: float,
    resamples: int,
) -> None:
    if not guards:
        raise InputError("expected at least one guard, got none; pass {'name': guard}")
    for name, guard in guards.items():
        if not isinstance(guard, AnyGuard) or not guard.separable:
            raise InputError(
                f"expected an assay.Guard, whose network and monitor can be timed apart, as {name!r}, got "
                f"{type(guard).__name__}; pass {{'name': guard}}"
            )
        if guard.threshold is None:
            raise NotFittedError(
                f"expected calibrated guards, got {name!r} without threshold; call calibrate(trace) first"
            )
    classes = min(guard.monitor.classes_ for guard in guards.values())
    ignored = {guard.network.ignore_index for guard in guards.values()}
    for scenario in scenarios:
        check_scenario_labels(scenario, classes, ignored)
        if scenario.recorded is not None:
            _check_recorded(guards, scenario.recorded, batch_size)
    names = [scenario.name for scenario in scenarios]
    if not scenarios or len(set(names)) < len(names):
        raise InputError(
            f"expected at least one scenario and each name once, got {names}; see assay.build_scenarios"
        )
    check_level(level)
    if (batch_size is not None and batch_size < 1) or resamples < 1:
        raise InputError(f"expected batch_size and resamples of at least 1, got {batch_size} and {resamples}")


def _check_recorded(guards: Mapping[str, Guard], recorded: ShardedTrace, batch_size: int | None) -> None:
    watched = {guard.network.fingerprint for guard in guards.values()}
    if recorded.network is not None and watched != {recorded.network}:
        raise InputError(
            f"expected shards of the network that the guards watch, got those of {recorded.network}; observe "
            "with the same network"
        )
    if batch_size is not None:
        raise InputError(
            f"expected no batch_size for a ShardedTrace, whose network does not run, got {batch_size}; leave "
            "it out"
        )
    if recorded.shards[0].trace().source is not None:
        raise InputError(
            "expected a ShardedTrace with one row per input, got one with several; pass the inputs instead"
        )
