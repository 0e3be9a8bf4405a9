"""A bounded, seeded sample of a stream of Traces, with all their parts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.reservoir import Reservoir
from assay.network.inputs import rows as rows_of
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace, concatenated

SOURCE = ("source", "")


class TraceSample(Gathered):
    """Uniformly `limit` rows of all Traces added, whatever the cuts; None keeps every row.

    Where inputs have several rows, those of the rows kept are kept.
    """

    def __init__(self, limit: int | None) -> None:
        self._rows = Reservoir(limit)
        self._numbers = torch.zeros(0, dtype=torch.long)
        """Of the inputs kept, where inputs have several rows: their numbers in the stream."""
        self._inputs: Inputs | None = None
        self._seen = 0

    def add(self, trace: Trace, keys: Tensor) -> None:
        self._add(_parts(trace), keys)
        if trace.source is not None:
            self._take_inputs(torch.arange(trace.input_count), trace.inputs, trace.input_count)

    def merge(self, other: "TraceSample") -> None:
        self._add(dict(other._rows.columns()), other._rows.keys)
        if len(other._numbers):
            self._take_inputs(other._numbers, other._inputs, other._seen)

    def trace(self) -> Trace:
        """The rows kept, in the order of their keys."""
        rows: dict[Any, Tensor] = dict(self._rows.columns())
        named = {name: value for (kind, name), value in rows.items() if kind == "inputs"}
        inputs: Inputs | None = named.get("", named or None)
        parts = (
            rows["logits", ""],
            {name: value for (kind, name), value in rows.items() if kind == "features"},
            rows.get(("labels", "")),
        )
        if SOURCE not in rows:
            return Trace(*parts, inputs, outputs=LOGITS)
        source = torch.searchsorted(self._numbers, rows[SOURCE])
        return Trace(*parts, self._inputs, source, len(self._numbers), outputs=LOGITS)

    def _add(self, parts: dict[tuple[str, str], Tensor], keys: Tensor) -> None:
        if SOURCE in parts:  # numbers in the stream
            parts = parts | {SOURCE: parts[SOURCE] + self._seen}
        self._rows.add(keys, parts)

    def _take_inputs(self, numbers: Tensor, inputs: Inputs | None, count: int) -> None:
        """Keep the inputs, by their numbers, that rows kept came from; forget all others."""
        numbers = torch.cat([self._numbers, numbers + self._seen])
        used = torch.isin(numbers, self._rows.rows(SOURCE))
        self._numbers = numbers[used]
        if inputs is not None:
            inputs = inputs if self._inputs is None else concatenated([self._inputs, inputs])
            self._inputs = rows_of(inputs, used)
        self._seen += count


def _parts(trace: Trace) -> dict[tuple[str, str], Tensor]:
    parts = {("logits", ""): trace.logits}
    parts |= {("features", name): value for name, value in trace.features.items()}
    if trace.labels is not None:
        parts["labels", ""] = trace.labels
    if trace.source is not None:
        return parts | {SOURCE: trace.source}
    if isinstance(trace.inputs, Mapping):
        parts |= {("inputs", name): value for name, value in trace.inputs.items()}
    elif trace.inputs is not None:
        parts["inputs", ""] = trace.inputs
    return parts
