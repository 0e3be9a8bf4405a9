"""A bounded, seeded sample of a stream of Traces, with all their parts."""

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.reservoir import Reservoir
from assay.network.inputs import rows as rows_of
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace, concatenated

Part = tuple[str, str]


class TraceSample:
    """Uniformly `limit` rows of all Traces added, whatever the cuts; None keeps every row.

    One reservoir per part, all with the same seed, so all keep the same rows. Where inputs have several
    rows, those of the rows kept are kept.
    """

    def __init__(self, limit: int | None, seed: int) -> None:
        self._limit = limit
        self._seed = seed
        self._reservoirs: dict[Part, Reservoir] = {}
        self._inputs = _SourceInputs()

    def add(self, trace: Trace) -> None:
        parts = _parts(trace)
        if trace.source is not None:
            parts["source", ""] = self._inputs.add(trace.source, trace.inputs, trace.input_count)
        if self._reservoirs and set(parts) != set(self._reservoirs):
            raise InputError(
                "expected every Trace of a stream to have the same parts, got some with and some without "
                f"{sorted(set(parts) ^ set(self._reservoirs))}; observe all with the same options"
            )
        for part, rows in parts.items():
            self._reservoirs.setdefault(part, Reservoir(self._limit, self._seed)).add(rows)
        if trace.source is not None:
            self._inputs.keep(self._reservoirs["source", ""].rows())

    def trace(self) -> Trace:
        """The rows kept, in the order they came."""
        rows = {part: reservoir.rows() for part, reservoir in self._reservoirs.items()}
        named = {name: value for (kind, name), value in rows.items() if kind == "inputs"}
        inputs: Inputs | None = named.get("", named or None)
        parts = (
            rows["logits", ""],
            {name: value for (kind, name), value in rows.items() if kind == "features"},
            rows.get(("labels", "")),
        )
        if ("source", "") not in rows:
            return Trace(*parts, inputs, outputs=LOGITS)
        source = self._inputs.places(rows["source", ""])
        return Trace(*parts, self._inputs.inputs, source, len(self._inputs.numbers), outputs=LOGITS)


class _SourceInputs:
    """The inputs of sampled rows, each once, by their numbers in the stream."""

    def __init__(self) -> None:
        self.numbers = torch.zeros(0, dtype=torch.long)
        self.inputs: Inputs | None = None
        self._seen = 0

    def add(self, source: Tensor, inputs: Inputs | None, count: int) -> Tensor:
        """The sources of a Trace's rows as numbers in the stream."""
        self.numbers = torch.cat([self.numbers, torch.arange(self._seen, self._seen + count)])
        if inputs is not None:
            self.inputs = inputs if self.inputs is None else concatenated([self.inputs, inputs])
        self._seen += count
        return source + self._seen - count

    def keep(self, wanted: Tensor) -> None:
        """Forget the inputs that none of the rows kept came from."""
        used = torch.isin(self.numbers, wanted)
        self.numbers = self.numbers[used]
        self.inputs = None if self.inputs is None else rows_of(self.inputs, used)

    def places(self, source: Tensor) -> Tensor:
        return torch.searchsorted(self.numbers, source)


def _parts(trace: Trace) -> dict[Part, Tensor]:
    parts = {("logits", ""): trace.logits}
    parts |= {("features", name): value for name, value in trace.features.items()}
    if trace.labels is not None:
        parts["labels", ""] = trace.labels
    if trace.source is not None:
        return parts
    if isinstance(trace.inputs, Mapping):
        parts |= {("inputs", name): value for name, value in trace.inputs.items()}
    elif trace.inputs is not None:
        parts["inputs", ""] = trace.inputs
    return parts
