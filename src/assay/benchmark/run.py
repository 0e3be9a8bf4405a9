"""Send every scenario through every system under test, a network with its monitor, and measure."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.benchmark.finished_cells import FinishedCells
from assay.benchmark.mean_mcc import MeanMcc
from assay.benchmark.measures import all_measures, answer_mcc
from assay.benchmark.oracle import overall_outcome, overall_truth, specific_outcome, specific_truth
from assay.benchmark.result import BenchmarkResult
from assay.benchmark.scenario import NO_LABEL, Scenario
from assay.engine import checked_engine, mapped
from assay.errors import InputError, NotFittedError
from assay.guard import CANCELLED, AnyGuard, Guard
from assay.network.inputs import batches
from assay.statistics import check_level
from assay.table import tabled


def run_benchmark(
    guards: Mapping[str, Guard],
    scenarios: Iterable[Scenario],
    *,
    batch_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    readouts: str | os.PathLike[str] | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    engine: str = "here",
) -> BenchmarkResult:
    """Judge every row of every scenario by every guard; an alarm cancels the prediction.

    `batch_size=1` judges one input at a time and measures latency, as the paper does; None uses the network's
    batches and measures throughput. Guards that share a network share its forward pass; the seconds of a
    monitor are its own. With `checkpoint`, a folder, every finished guard and scenario is written to disk,
    and a run that was stopped resumes there. With `readouts`, a folder, the readout of every input is kept as
    parquet. Time is that of the forward passes and the monitors; one scenario is in memory at a time.
    `engine` runs scenarios in other processes ("processes") or on a Ray cluster ("ray"), with the same result
    except for the seconds, which are then those of busy machines.
    """
    chosen = list(scenarios)
    _check(guards, chosen, batch_size, level, resamples)
    checked_engine(engine)
    settings = {"level": level, "resamples": resamples, "seed": seed}
    cells = FinishedCells(guards, checkpoint, readouts, settings | {"batch_size": batch_size})
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    means = {name: MeanMcc() for name in guards}
    unfinished: list[tuple[Scenario, list[str]]] = []
    for scenario in chosen:
        for name in guards:
            if (cell := cells.read(name, scenario)) is not None:
                rows[scenario.name, name], alarm = cell
                means[name].add(scenario, alarm)
        if wanted := [name for name in guards if (scenario.name, name) not in rows]:
            unfinished.append((scenario, wanted))
    # Other processes need the inputs with the scenario; here they are made when their turn comes.
    jobs = unfinished if engine == "here" else ((s.self_contained(), names) for s, names in unfinished)
    judge = partial(_judge_scenario, dict(guards), batch_size, settings)
    results = mapped(judge, jobs, engine, description="scenarios", total=len(unfinished))
    for (scenario, _), judged in zip(unfinished, results, strict=True):
        for name, row, readout in judged:
            cells.write(name, scenario, row, readout.to_frame(scenario))
            rows[scenario.name, name] = row
            means[name].add(scenario, readout.alarm)
    table = pd.DataFrame([rows[scenario.name, name] for scenario in chosen for name in guards])
    return BenchmarkResult(table, level, {name: mean.error for name, mean in means.items()})


@dataclass(frozen=True, eq=False)
class Readout:
    """One guard's predictions, scores and alarms for every row of a scenario, and the seconds they took."""

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float64]
    scores: NDArray[np.float64]
    alarm: NDArray[np.bool_]
    model_seconds: NDArray[np.float64]
    monitor_seconds: NDArray[np.float64]

    def flags(self, scenario: Scenario) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """is_fault, is_novelty, correct: with `alarm`, what the oracle needs."""
        correct = self.predictions == scenario.labels.numpy()
        return scenario.is_fault.numpy(), np.full(len(correct), scenario.is_novelty), correct

    @tabled
    def to_frame(self, scenario: Scenario) -> pd.DataFrame:
        """A row per input in stream order; outcomes by the names of `Outcome`, right is a true one."""
        flags = self.flags(scenario)
        specific, overall = (oracle(*flags, self.alarm) for oracle in (specific_outcome, overall_outcome))
        return pd.DataFrame(
            {
                "label": scenario.labels.numpy(),
                "is_fault": flags[0],
                "prediction": self.predictions,
                "confidence": self.confidences,
                "score": self.scores,
                "alarm": self.alarm,
                "specific_outcome": specific,
                "specific_right": specific % 2 == 0,
                "overall_outcome": overall,
                "overall_right": overall % 2 == 0,
                "model_seconds": self.model_seconds,
                "monitor_seconds": self.monitor_seconds,
            }
        )


def _judge_scenario(
    guards: Mapping[str, Guard],
    batch_size: int | None,
    settings: Mapping[str, Any],
    job: tuple[Scenario, list[str]],
) -> list[tuple[str, dict[str, Any], Readout]]:
    """The rows and readouts of some guards on one scenario."""
    scenario, wanted = job
    return [
        (name, _row(name, guards[name], scenario, readout, settings), readout)
        for name, readout in _readouts({name: guards[name] for name in wanted}, scenario, batch_size)
    ]


def _readouts(
    guards: Mapping[str, Guard], scenario: Scenario, batch_size: int | None
) -> Iterator[tuple[str, Readout]]:
    """Every guard's readout; guards with the same network and the same need of inputs share a Trace."""
    groups: dict[tuple[int, bool], dict[str, Guard]] = {}
    for name, guard in guards.items():
        groups.setdefault((id(guard.network), guard.monitor.needs.inputs), {})[name] = guard
    for group in groups.values():
        parts: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in group}
        first = next(iter(group.values()))
        size = batch_size or first.network.batch_size
        for batch in batches(scenario.inputs, size):
            start = perf_counter()
            trace = first.observe(batch)
            observed = (perf_counter() - start) / len(trace)
            sure = trace.probabilities.amax(dim=1)
            for name, guard in group.items():
                start = perf_counter()
                verdict = guard.judge(trace)
                judged = (perf_counter() - start) / len(trace)
                times = torch.tensor([[observed, judged]], dtype=torch.float64).expand(len(trace), 2)
                parts[name].append((verdict.predictions, sure, verdict.scores, verdict.alarm, times))
        for name, pieces in parts.items():
            predictions, confidences, scores, alarm, seconds = (
                torch.cat(column).numpy() for column in zip(*pieces, strict=True)
            )
            yield name, Readout(predictions, confidences, scores, alarm, seconds[:, 0], seconds[:, 1])


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
        "faults": int(is_fault.sum()),
    }
    for prefix, oracle, truth in (
        ("specific", specific_outcome, specific_truth),
        ("overall", overall_outcome, overall_truth),
    ):
        outcomes = oracle(is_fault, is_novelty, correct, readout.alarm)
        should = truth(is_fault, is_novelty, correct)
        row |= all_measures(prefix, should, outcomes, readout.scores, settings)
    labels, answers = scenario.labels.numpy(), np.where(readout.alarm, CANCELLED, readout.predictions)
    clean = ~is_fault
    for title, given in (("model_mcc", readout.predictions), ("system_mcc", answers)):
        row |= answer_mcc(title, labels, given, settings)
        row |= answer_mcc(f"clean_{title}", labels[clean], given[clean], settings)
    return row | {
        "clean_false_alarms": float(readout.alarm[clean].mean()) if clean.any() else float("nan"),
        "accuracy": float(correct.mean()),
        "model_seconds": float(readout.model_seconds.mean()),
        "monitor_seconds": float(readout.monitor_seconds.mean()),
        "model_bytes": sum(part.nbytes for part in guard.network.module.state_dict().values()),
        "monitor_bytes": guard.monitor.nbytes,
    }


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
    for scenario in scenarios:
        if scenario.labels.min() < NO_LABEL or scenario.labels.max() >= classes:
            raise InputError(
                f"expected labels from 0 to {classes - 1} in scenario {scenario.name!r}, and {NO_LABEL} for "
                f"novelties, got {int(scenario.labels.min())} to {int(scenario.labels.max())}"
            )
    names = [scenario.name for scenario in scenarios]
    if not scenarios or len(set(names)) < len(names):
        raise InputError(
            f"expected at least one scenario and each name once, got {names}; see assay.build_scenarios"
        )
    check_level(level)
    if (batch_size is not None and batch_size < 1) or resamples < 1:
        raise InputError(f"expected batch_size and resamples of at least 1, got {batch_size} and {resamples}")
