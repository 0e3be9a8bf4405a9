"""A bounded, seeded sample of a stream of Traces, with all their parts."""

from collections.abc import Mapping

from torch import Tensor

from assay.errors import InputError
from assay.monitors.parts.reservoir import Reservoir
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace

Part = tuple[str, str]


class TraceSample:
    """Uniformly `limit` rows of all Traces added, whatever the cuts; None keeps every row.

    One reservoir per part, all with the same seed, so all keep the same rows.
    """

    def __init__(self, limit: int | None, seed: int) -> None:
        self._limit = limit
        self._seed = seed
        self._reservoirs: dict[Part, Reservoir] = {}

    def add(self, trace: Trace) -> None:
        parts = _parts(trace)
        if self._reservoirs and set(parts) != set(self._reservoirs):
            raise InputError(
                "expected every Trace of a stream to have the same parts, got some with and some without "
                f"{sorted(set(parts) ^ set(self._reservoirs))}; observe all with the same options"
            )
        for part, rows in parts.items():
            self._reservoirs.setdefault(part, Reservoir(self._limit, self._seed)).add(rows)

    def trace(self) -> Trace:
        """The rows kept, in the order they came."""
        rows = {part: reservoir.rows() for part, reservoir in self._reservoirs.items()}
        named = {name: value for (kind, name), value in rows.items() if kind == "inputs"}
        inputs: Inputs | None = named.get("", named or None)
        return Trace(
            rows["logits", ""],
            {name: value for (kind, name), value in rows.items() if kind == "features"},
            rows.get(("labels", "")),
            inputs,
            outputs=LOGITS,
        )


def _parts(trace: Trace) -> dict[Part, Tensor]:
    parts = {("logits", ""): trace.logits}
    parts |= {("features", name): value for name, value in trace.features.items()}
    if trace.labels is not None:
        parts["labels", ""] = trace.labels
    if isinstance(trace.inputs, Mapping):
        parts |= {("inputs", name): value for name, value in trace.inputs.items()}
    elif trace.inputs is not None:
        parts["inputs", ""] = trace.inputs
    return parts
