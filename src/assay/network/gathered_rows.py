"""What a network did on one batch after another, gathered into one Trace."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from assay.labels import check_labels
from assay.network.buffers import RowBuffer
from assay.network.prediction_rows import PredictionRows
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace

Part = tuple[str, str]


@dataclass(frozen=True)
class BatchRows:
    """The rows of one batch: as in a Trace, but unchecked, and on whatever device they were made.

    `source` counts from the first input of the batch; None where every input has a row.
    """

    logits: Tensor
    features: Mapping[str, Tensor]
    labels: Tensor | None = None
    source: Tensor | None = None
    input_count: int = 0
    ignored: int = 0

    def on_cpu(self) -> Trace:
        """The same as a Trace, still differentiable."""
        features = {name: values.cpu() for name, values in self.features.items()}
        return Trace(
            self.logits.cpu(),
            features,
            self.labels,
            source=self.source,
            input_count=self.input_count,
            outputs=LOGITS,
        )

    def labelled(self, known: Any, rule: PredictionRows | None, ignore_index: int) -> "BatchRows":
        """With the labels of the batch, where they are known, and without the rows to be ignored.

        Where every input has a row (no `rule`), those were left out before the network ran.
        """
        if known is None:
            return self
        if rule is None:
            check_labels(known, self.logits.shape[1])  # now, not after the last batch
            return replace(self, labels=known)
        trace = self.on_cpu()
        labels = rule.labels(known, trace)
        without = labels == ignore_index
        kept, labels = trace[~without], labels[~without]
        check_labels(labels, self.logits.shape[1])
        return BatchRows(
            kept.logits, kept.features, labels, kept.source, self.input_count, int(without.sum())
        )


class GatheredRows:
    """Rows and inputs in the order they came, in little more memory than the Trace they become."""

    def __init__(self) -> None:
        self._buffers: dict[Part, RowBuffer] = {}
        self._inputs = 0
        self._ignored = 0

    def add(self, rows: BatchRows, inputs: Inputs | None) -> None:
        """`inputs` are those of the batch, where they are to be kept."""
        parts = {("logits", ""): rows.logits}
        parts |= {("features", name): values for name, values in rows.features.items()}
        if rows.labels is not None:
            parts["labels", ""] = rows.labels
        if rows.source is not None:
            parts["source", ""] = rows.source + self._inputs
        if inputs is not None:
            named = {"": inputs} if isinstance(inputs, Tensor) else inputs
            parts |= {("inputs", name): tensor for name, tensor in named.items()}
        for key, tensor in parts.items():
            self._buffers.setdefault(key, RowBuffer()).add(tensor)
        self._inputs += rows.input_count
        self._ignored += rows.ignored

    def trace(self, kept: Inputs | None = None, ignored: int = 0) -> Trace:
        """Everything added, with the inputs as they were `kept` elsewhere, and `ignored` more rows left
        out."""
        found: dict[str, dict[str, Tensor]] = {}
        for (part, name), buffer in self._buffers.items():
            found.setdefault(part, {})[name] = buffer.tensor()
        inputs: Inputs | None = found.get("inputs", kept)
        return Trace(
            found["logits"][""],
            found.get("features", {}),
            found.get("labels", {}).get(""),
            inputs[""] if isinstance(inputs, Mapping) and "" in inputs else inputs,
            found.get("source", {}).get(""),
            self._inputs,
            self._ignored + ignored,
            outputs=LOGITS,
        )
