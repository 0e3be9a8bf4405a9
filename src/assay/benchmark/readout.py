"""Readout: what one guard said about every prediction of a scenario, beside what is true."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.benchmark.measures import Sources
from assay.benchmark.oracle import Flags, overall_outcome, specific_outcome
from assay.benchmark.scenario import NO_LABEL, Labels, Scenario
from assay.guard import Guard, InputVerdict, Verdict
from assay.network import Network, rows
from assay.network.inputs import batches
from assay.outputs import LOGITS
from assay.table import tabled
from assay.trace import Trace


@dataclass(frozen=True, eq=False)
class Readout:
    """A row per prediction, and how long it took.

    Where inputs have several rows, `sources` say which each is of, and `per_input` is the verdict on whole
    inputs; rows without a label are left out.
    """

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float64]
    scores: NDArray[np.float64]
    alarm: NDArray[np.bool_]
    model_seconds: NDArray[np.float64]
    monitor_seconds: NDArray[np.float64]
    labels: NDArray[np.int64]
    sources: Sources | None = None
    per_input: InputVerdict | None = None
    reasons: NDArray[Any] | None = None
    """Which members of a combination raised the alarm; None for a single monitor."""
    features: dict[str, NDArray[np.float32]] | None = None
    """What the watched layers put out, (rows, ...) each: the paper's intermediate values."""

    def flags(self, scenario: Scenario) -> tuple[Flags, Flags, Flags]:
        """is_fault, is_novelty, correct: with `alarm`, what the oracle needs."""
        faulty = scenario.is_fault.numpy()
        return (
            faulty if self.sources is None else faulty[self.sources],
            np.full(len(self.labels), scenario.is_novelty),
            self.predictions == self.labels,
        )

    @classmethod
    def joined(cls, parts: Sequence["Readout"]) -> "Readout":
        """That of all rows of recorded shards, of which every input has one."""
        names = [part.name for part in fields(cls) if getattr(parts[0], part.name) is not None]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in names
            if name != "features"
        }
        if "features" in names:
            columns["features"] = _joined_features([part.features or {} for part in parts])
        return cls(**columns)

    @tabled
    def to_frame(self, scenario: Scenario) -> pd.DataFrame:
        """A row per prediction in stream order; outcomes by the names of `Outcome`, right is a true one.

        Where features were kept, `features <layer>` is the list of a row's values, flat.
        """
        flags = self.flags(scenario)
        specific, overall = (oracle(*flags, self.alarm) for oracle in (specific_outcome, overall_outcome))
        columns: dict[str, Any] = {} if self.sources is None else {"source": self.sources}
        columns |= {
            "label": self.labels,
            "is_fault": flags[0],
            "prediction": self.predictions,
            "confidence": self.confidences,
            "score": self.scores,
            "alarm": self.alarm,
            **({} if self.reasons is None else {"reasons": self.reasons}),
            "specific_outcome": specific,
            "specific_right": specific % 2 == 0,
            "overall_outcome": overall,
            "overall_right": overall % 2 == 0,
            "model_seconds": self.model_seconds,
            "monitor_seconds": self.monitor_seconds,
        }
        for layer, values in (self.features or {}).items():
            columns[f"features {layer}"] = list(values.reshape(len(values), -1))
        return pd.DataFrame(columns)


def readouts(
    guards: Mapping[str, Guard], scenario: Scenario, batch_size: int | None, keep_features: bool = False
) -> Iterator[tuple[str, Readout]]:
    """Every guard's readout; guards with the same network and the same need of inputs share a Trace."""
    groups: dict[tuple[int, bool, bool], dict[str, Guard]] = {}
    for name, guard in guards.items():
        needs = guard.monitor.needs
        groups.setdefault((id(guard.network), needs.inputs, needs.encoded), {})[name] = guard
    for group in groups.values():
        parts: dict[str, list[_Part]] = {name: [] for name in group}
        first = next(iter(group.values()))
        size = batch_size or first.network.batch_size
        for trace, known, observed in _observed(first, scenario, size):
            truth = _Truth.of(first.network, known, trace)
            features = _features(trace, truth.kept) if keep_features else None
            for name, guard in group.items():
                start = perf_counter()
                verdict = guard.judge(trace)
                judged = (perf_counter() - start) / trace.input_count
                parts[name].append(_Part(verdict, truth, observed, judged, features))
        for name, pieces in parts.items():
            yield name, _joined(pieces)


def _observed(guard: Guard, scenario: Scenario, size: int) -> Iterator[tuple[Trace, Labels, float]]:
    """What the network did, the labels, and the seconds of an input, batch by batch; what is recorded is read
    shard by shard, and took none."""
    if scenario.recorded is not None:
        start = 0
        for trace in scenario.recorded:
            yield trace, scenario.labels[start : start + len(trace)], np.nan
            start += len(trace)
        return
    for batch, known in zip(batches(scenario.inputs, size), batches(scenario.labels, size), strict=True):
        begun = perf_counter()
        trace = guard.observe(batch)
        yield trace, known, (perf_counter() - begun) / trace.input_count


@dataclass(frozen=True, eq=False)
class _Truth:
    """Of the rows of a batch that have a label: which they are, their label and their confidence."""

    kept: Tensor
    labels: Tensor
    confidences: Tensor
    inputs: int

    @classmethod
    def of(cls, network: Network, known: Labels, trace: Trace) -> "_Truth":
        labels = _row_labels(network, known, trace)
        kept = labels != network.ignore_index
        return cls(kept, labels[kept], trace.probabilities.amax(dim=1)[kept], trace.input_count)


@dataclass(frozen=True, eq=False)
class _Part:
    """The verdict on one batch, what is true of it, and the seconds per input of network and monitor."""

    verdict: Verdict
    truth: _Truth
    observed: float
    judged: float
    features: dict[str, NDArray[np.float32]] | None = None


def _features(trace: Trace, kept: Tensor) -> dict[str, NDArray[np.float32]]:
    return {layer: values[kept].float().numpy() for layer, values in trace.features.items()}


def _joined_features(parts: Sequence[dict[str, NDArray[np.float32]]]) -> dict[str, NDArray[np.float32]]:
    return {layer: np.concatenate([part[layer] for part in parts]) for layer in parts[0]}


def _row_labels(network: Network, known: Labels, trace: Trace) -> Tensor:
    """The label of every row; NO_LABEL in rows of a novelty."""
    if isinstance(known, Tensor) or trace.source is None:
        return network.row_labels(known, trace)
    has_label = torch.tensor([one is not None for one in known])
    own = trace.of_inputs(has_label)
    part = trace[own]
    assert part.source is not None
    places = has_label.cumsum(0) - 1  # inputs with a label, counted among themselves
    counted = replace(
        part, inputs=None, source=places[part.source], input_count=int(has_label.sum()), outputs=LOGITS
    )
    labels = torch.full((len(trace),), NO_LABEL)
    labels[own] = network.row_labels(rows(known, has_label), counted)
    return labels


def _joined(parts: list[_Part]) -> Readout:
    def column(values: Iterator[Tensor]) -> NDArray[Any]:
        found: NDArray[Any] = torch.cat(list(values)).numpy()
        return found

    def of_rows(name: str) -> NDArray[Any]:
        return column(getattr(part.verdict, name)[part.truth.kept] for part in parts)

    counts = [len(part.truth.labels) for part in parts]
    starts = np.cumsum([0, *(part.truth.inputs for part in parts)])
    several = parts[0].verdict.source is not None
    return Readout(
        of_rows("predictions"),
        column(part.truth.confidences for part in parts),
        of_rows("scores"),
        of_rows("alarm"),
        np.repeat([part.observed for part in parts], counts),
        np.repeat([part.judged for part in parts], counts),
        column(part.truth.labels for part in parts),
        of_rows("source") + np.repeat(starts[:-1], counts) if several else None,
        _joined_inputs([part.verdict.per_input for part in parts]),
        _joined_reasons(parts),
        None if parts[0].features is None else _joined_features([part.features or {} for part in parts]),
    )


def _joined_reasons(parts: list[_Part]) -> NDArray[Any] | None:
    if parts[0].verdict.evidence is None:
        return None
    return np.concatenate(
        [np.array(part.verdict.reasons, dtype=object)[part.truth.kept.numpy()] for part in parts]
    )


def _joined_inputs(verdicts: list[InputVerdict | None]) -> InputVerdict | None:
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return None
    names = ("rows", "alarms", "scores", "alarm")
    return InputVerdict(*(torch.cat([getattr(verdict, name) for verdict in known]) for name in names))
