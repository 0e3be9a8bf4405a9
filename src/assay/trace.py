"""Trace: the one record of what a network did, a row per prediction. Everything after the network reads
Traces."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.errors import AssayWarning, InputError
from assay.labels import check_labels, class_numbers, order_hint
from assay.notebook import Shown
from assay.outputs import LOGITS, PROBABILITIES, Finding, as_logits, check_kind, expect_kind, found_in
from assay.probability_rows import both_classes, class_rows, expect_probabilities, numbers
from assay.storage import storable
from assay.table import tabled

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
"""The inputs of a network: one tensor, or a dict of tensors, with one row per input."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("Trace")
@dataclass(frozen=True, eq=False)
class Trace(Shown):
    """Logits, features and, if known, labels and inputs of the same N rows, in the same order.

    Immutable: indexing and concatenation give new Traces; a slice shares memory with its parent.

    A network with several predictions per input (pixels, boxes) makes a Trace with a `source`: the number of
    the input that each row came from. There `inputs`, where kept, has a row per input, and a row's own input
    is `inputs[source]`. A slice keeps all inputs and their numbers. Concatenation lines the inputs up one
    after another, so that the numbers of the second Trace start where the inputs of the first end.

    `outputs` says what you pass as logits: "logits", "probabilities" or "log-probabilities". Left out, rows
    that are clearly probabilities are taken as such, with a warning.

    >>> trace = Trace(logits=torch.tensor([[2.0, 0.0], [0.0, 1.0]]), labels=torch.tensor([0, 0]))
    >>> trace.predictions.tolist(), trace.correct.tolist(), len(trace[:1])
    ([0, 1], [True, False], 1)
    """

    logits: Tensor
    features: Mapping[str, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    inputs: Inputs | None = None
    source: Tensor | None = None
    """The number of the input that each row came from; None where every input has one row."""
    input_count: int = -1
    """How many inputs there were: with a `source`, some may have many rows and others none."""
    ignored: int = 0
    """Rows that `Network.observe` left out, since their label was its `ignore_index`."""
    outputs: InitVar[str | None] = field(default=None, kw_only=True)

    def __post_init__(self, outputs: str | None) -> None:
        if self.logits.ndim != 2:
            raise InputError(
                f"expected logits of shape (N, classes), got {tuple(self.logits.shape)}; "
                "give one row of class scores per input"
            )
        check_kind(outputs)
        if (kind := outputs or _recognised(self.logits)) != LOGITS:
            expect_kind(self.logits, kind, "Trace")
            object.__setattr__(self, "logits", as_logits(self.logits, kind))
        object.__setattr__(self, "features", MappingProxyType(dict(self.features)))
        if self.labels is not None:
            object.__setattr__(self, "labels", class_numbers(self.labels))
        object.__setattr__(self, "input_count", self._counted_inputs())
        self._check_lengths()
        if self.labels is not None:
            check_labels(self.labels, self.logits.shape[1])

    @classmethod
    def from_probabilities(cls, probabilities: Any, labels: Any = None) -> "Trace":
        """The Trace of saved predictions: an array, tensor, frame or list of (N, classes) probabilities.

        One column, or (N,), is the probability of the second of two classes. The logits are logarithms; a
        probability of zero counts as 1e-38. Monitors and estimates that read only outputs work from it; those
        that need logits, features or inputs say so.

        >>> Trace.from_probabilities([[0.9, 0.1], [0.2, 0.8]], labels=[0, 0]).correct
        tensor([ True, False])
        """
        rows = expect_probabilities(class_rows(both_classes(numbers(probabilities))))
        tensor = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        return cls(as_logits(tensor, PROBABILITIES), labels=labels, outputs=LOGITS)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Trace":
        return cls(**state, outputs=LOGITS)

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the view of the features, which cannot be pickled, travels as a dict."""
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return Trace.from_state, (state | {"features": dict(self.features)},)

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: int | slice | Tensor) -> "Trace":
        """The rows of a mask, a slice or an index tensor, as a Trace; an integer gives a Trace of one row."""
        if isinstance(rows, int):
            start = range(len(self))[rows]
            rows = slice(start, start + 1)
        parts = (
            self.logits[rows],
            {name: value[rows] for name, value in self.features.items()},
            None if self.labels is None else self.labels[rows],
        )
        if self.source is not None:
            return Trace(
                *parts, self.inputs, self.source[rows], self.input_count, self.ignored, outputs=LOGITS
            )
        inputs = self.inputs
        return Trace(
            *parts,
            {name: value[rows] for name, value in inputs.items()}
            if isinstance(inputs, Mapping)
            else None
            if inputs is None
            else inputs[rows],
            ignored=self.ignored,
            outputs=LOGITS,
        )

    def __add__(self, other: "Trace") -> "Trace":
        return Trace.concatenate([self, other])

    @classmethod
    def concatenate(cls, traces: Iterable["Trace"]) -> "Trace":
        """One Trace with all rows; an error if some part is missing in one of the Traces."""
        parts = list(traces)
        if not parts:
            raise InputError("expected at least one Trace to concatenate, got none")
        names = [tuple(name for name, _ in trace._parts()) for trace in parts]
        if len(set(names)) > 1:
            raise InputError(
                f"expected Traces with the same parts, got {sorted(map(list, set(names)))}; "
                "observe them with the same layers and options"
            )
        first = parts[0]
        return cls(
            torch.cat([trace.logits for trace in parts]),
            {name: torch.cat([trace.features[name] for trace in parts]) for name in first.features},
            None if first.labels is None else torch.cat([trace.known_labels for trace in parts]),
            None if first.inputs is None else concatenated([trace.known_inputs for trace in parts]),
            None if first.source is None else _sources_in_line(parts),
            sum(trace.input_count for trace in parts),
            sum(trace.ignored for trace in parts),
            outputs=LOGITS,
        )

    @property
    def probabilities(self) -> Tensor:
        """Softmax of the logits, in double precision."""
        return torch.softmax(self.logits.double(), dim=1)

    @property
    def predictions(self) -> Tensor:
        return self.logits.argmax(dim=1)

    @property
    def known_labels(self) -> Tensor:
        """The labels; an error if there are none."""
        if self.labels is None:
            raise InputError("expected a Trace with labels, got one without; observe (inputs, labels)")
        return self.labels

    @property
    def known_inputs(self) -> Inputs:
        """The inputs; an error if they were not kept."""
        if self.inputs is None:
            raise InputError("expected a Trace with inputs, got one without; observe with keep_inputs=True")
        return self.inputs

    @property
    def correct(self) -> Tensor:
        return self.predictions == self.known_labels

    def of_inputs(self, values: Tensor) -> Tensor:
        """For every row, the value of its input, from one value per input.

        >>> Trace(torch.zeros(3, 2), source=torch.tensor([0, 0, 2]), input_count=3).of_inputs(
        ...     torch.tensor([0.1, 0.2, 0.3])
        ... )
        tensor([0.1000, 0.1000, 0.3000])
        """
        return values if self.source is None else values[self.source]

    @property
    def order_hint(self) -> str:
        """A sentence if the answers fit the labels far better in another order of the classes, else empty."""
        return order_hint(self.known_labels, self.predictions)

    def layer(self, name: str) -> Tensor:
        """The features of one layer; the error for an unknown name lists the layers."""
        if name not in self.features:
            raise InputError(
                f"expected features of layer {name!r}, got {sorted(self.features) or 'none'}; "
                f"observe with Network(module, layers={name!r})"
            )
        return self.features[name]

    def summary(self) -> str:
        """How many predictions of how many classes, how confident and how right they are."""
        layers = ", ".join(f"{name} ({rows.shape[1]} values)" for name, rows in self.features.items())
        words = f"{len(self):,} predictions of {self.logits.shape[1]} classes; layers: {layers or 'none'}."
        if len(self):
            words += f" Mean confidence {float(self.probabilities.amax(dim=1).mean()):.1%}"
            words += "." if self.labels is None else f", accuracy {float(self.correct.double().mean()):.1%}."
        return words

    def plot(self) -> "Figure":
        """How confident the predictions are; with labels, right and wrong ones apart."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 2.4), layout="constrained")
        axes = figure.subplots()
        found = self.probabilities.amax(dim=1).double()
        if self.labels is None:
            axes.hist(found.numpy(), bins=30, range=(0, 1), color="#0072b2")
        else:
            parts = [found[self.correct == right].numpy() for right in (True, False)]
            colours, words = ["#0072b2", "#d55e00"], ["right", "wrong"]
            axes.hist(parts, bins=30, range=(0, 1), stacked=True, color=colours, label=words)
            axes.legend(frameon=False, fontsize=8)
        axes.set_xlabel("confidence")
        axes.set_ylabel("predictions")
        return figure

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per prediction: its source, where inputs have several, prediction, confidence and, if labels
        are known, label and correct."""
        frame: dict[str, Any] = {} if self.source is None else {"source": self.source.numpy()}
        frame |= {
            "prediction": self.predictions.numpy(),
            "confidence": self.probabilities.amax(dim=1).numpy(),
        }
        if self.labels is not None:
            frame |= {"label": self.labels.numpy(), "correct": self.correct.numpy()}
        return pd.DataFrame(frame)

    def _counted_inputs(self) -> int:
        """The number of inputs, after a look at the sources."""
        if self.source is None:
            return len(self)
        source = self.source
        if source.ndim != 1 or source.is_floating_point() or self.input_count < 0:
            raise InputError(
                f"expected source as one whole number per row, and input_count, got {source.dtype} "
                f"{tuple(source.shape)} and {self.input_count}; number the inputs from 0"
            )
        if len(source) and not 0 <= int(source.min()) <= int(source.max()) < self.input_count:
            raise InputError(
                f"expected sources from 0 to {self.input_count - 1}, one per input, got "
                f"{int(source.min())} to {int(source.max())}; number the inputs from 0"
            )
        return self.input_count

    def _check_lengths(self) -> None:
        count, given = len(self), self.inputs
        inputs = given.values() if isinstance(given, Mapping) else () if given is None else (given,)
        known = (*self.features.values(), *(part for part in (self.labels, self.source) if part is not None))
        if all(len(rows) == count for rows in known) and all(
            len(rows) == self.input_count for rows in inputs
        ):
            return
        for name, rows in self._parts():
            expected = self.input_count if name.startswith("inputs") else count
            if len(rows) != expected:
                raise InputError(
                    f"expected one row of {name} per input ({expected}), got {len(rows)}; "
                    "pass parts of the same inputs"
                )

    def _parts(self) -> list[tuple[str, Tensor]]:
        inputs = self.inputs
        return [
            *((f"features[{name!r}]", value) for name, value in self.features.items()),
            *([] if self.labels is None else [("labels", self.labels)]),
            *([] if self.source is None else [("source", self.source)]),
            *(
                []
                if inputs is None
                else [("inputs", inputs)]
                if isinstance(inputs, Tensor)
                else [(f"inputs[{name!r}]", value) for name, value in inputs.items()]
            ),
        ]


def _sources_in_line(traces: Sequence[Trace]) -> Tensor:
    """The sources of all Traces, each counted on from the inputs of those before."""
    starts = accumulate((trace.input_count for trace in traces), initial=0)
    return torch.cat(
        [
            trace.source + start
            for trace, start in zip(traces, starts, strict=False)
            if trace.source is not None
        ]
    )


def _recognised(values: Tensor) -> str:
    """What was passed as logits: probabilities where they clearly are, said once."""
    if found_in(values) is not Finding.PROBABILITIES:
        return LOGITS
    warnings.warn(
        "the rows passed to Trace as logits are probabilities (they add up to 1), so assay takes their "
        'logarithms; call Trace.from_probabilities, or pass outputs="logits" if they are logits',
        AssayWarning,
        stacklevel=4,
    )
    return PROBABILITIES


def concatenated(inputs: Sequence[Inputs]) -> Inputs:
    """The rows of all, one after another."""
    tensors = [part for part in inputs if isinstance(part, Tensor)]
    mappings = [part for part in inputs if isinstance(part, Mapping)]
    if tensors:
        return torch.cat(tensors)
    return {name: torch.cat([part[name] for part in mappings]) for name in mappings[0]}
