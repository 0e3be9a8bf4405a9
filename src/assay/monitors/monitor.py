"""The whole contract of a monitor. A monitor takes Traces and gives scores; a Guard decides.

A new monitor is one file with one class that implements `_fit` and `_score`; all that monitors share
(checks, streaming, storage) is here.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError, NotFittedError
from assay.monitors.metadata import Metadata, Needs
from assay.network.graph import under_tracer
from assay.storage import fingerprint_of, storable
from assay.trace import Trace


class Monitor(ABC):
    """Scores how suspicious each prediction is: higher is more suspicious, for every monitor.

    Constructor arguments are kept under their own names; fitted state ends in `_`, as in scikit-learn, so
    that saving, loading and counting bytes need no code in the monitors.
    """

    version: ClassVar[int] = 1
    """Version of the fitted state in files; raise it when old files can no longer be read."""

    metadata: ClassVar[Metadata] = Metadata()
    """What the class needs with its default arguments, what it costs, and its paper."""

    classes_: int
    dimensions_: dict[str, int]

    remedy_: str = ""
    """What fitting did where the data did not determine the state, and what to do; else empty."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            room = "monitors" if cls.__module__.startswith("assay.") else cls.__module__
            storable(f"{room}.{cls.__name__}", cls.version)(cls)

    def fit(self, traces: Trace | Iterable[Trace]) -> Self:
        """Learn what is normal from one Trace or a stream of them; both give the same state."""
        self._forget()
        stream = iter([traces] if isinstance(traces, Trace) else traces)
        try:
            self._fit(self._with_sizes_set(self._checked(stream)))
        except BaseException:  # also an interrupt: half a fit must not pass for one
            self._forget()
            raise
        return self

    def score(self, trace: Trace) -> Tensor:
        """One number per input, in double precision."""
        self._check_fitted()
        self._check_sizes(trace)
        # Under a tracer (`Guard.export`) the operations become a graph that is run on other rows.
        scores = self._traced_score(trace) if under_tracer() else self._score(trace)
        return scores.double()

    def score_and_evidence(self, trace: Trace) -> tuple[Tensor, Tensor | None]:
        """The scores and, of a combination, each member's evidence (N, members)."""
        return self.score(trace), None

    @property
    def member_names(self) -> tuple[str, ...]:
        """The names of the monitors that a combination is made of; none for any other."""
        return ()

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers whose features it reads."""
        layer = getattr(self, "layer", None)
        return () if layer is None else (layer,)

    @property
    def needs(self) -> Needs:
        """What this monitor needs; overridden where that depends on the arguments."""
        return self.metadata.needs

    @property
    def obstacle(self) -> str:
        """Why its score is no function of logits, features and inputs alone, as an exported graph needs;
        empty where it is."""
        return self.needs.obstacle

    @property
    def fingerprint(self) -> str:
        """A hash of class, parameters and fitted state: new after another fit, the same after loading."""
        return fingerprint_of(self)

    @property
    def nbytes(self) -> int:
        """Bytes of the fitted state."""
        return _nbytes(self.state()["fitted"])

    def _fit(self, traces: Iterator[Trace]) -> None:
        """Set the fitted state from a stream of at least one Trace, each checked to be finite; `classes_` and
        `dimensions_` are set.

        A monitor that learns nothing leaves this as it is: the stream is only checked.
        """
        for _ in traces:
            pass

    @abstractmethod
    def _score(self, trace: Trace) -> Tensor:
        """The scores; a row that is not finite may score NaN, never raise."""

    def _traced_score(self, trace: Trace) -> Tensor:
        """`_score` in tensor operations that hold for any number of rows: no branch on values, no loop over
        blocks. Implement it where `_score` is not that already; it may cost more."""
        return self._score(trace)

    def state(self) -> dict[str, Any]:
        return {
            "parameters": {name: getattr(self, name) for name in inspect.signature(type(self)).parameters},
            "fitted": {name: value for name, value in vars(self).items() if name.endswith("_")},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        monitor = cls(**state["parameters"])
        for name, value in state["fitted"].items():
            setattr(monitor, name, value)
        return monitor

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.state()["parameters"].items())
        return f"{type(self).__name__}({arguments})"

    def _forget(self) -> None:
        for name in self.state()["fitted"]:
            delattr(self, name)

    def _with_sizes_set(self, checked: Iterator[Trace]) -> Iterator[Trace]:
        """The same stream with its first Trace read, so that `_fit` finds the sizes set."""
        first = next(checked)
        return chain([first], checked)

    def _checked(self, traces: Iterator[Trace]) -> Iterator[Trace]:
        seen = 0
        for trace in traces:
            if not hasattr(self, "classes_"):
                self.classes_ = trace.logits.shape[1]
                self.dimensions_ = {layer: trace.layer(layer).shape[1] for layer in self.layers}
            self._check_sizes(trace)
            self._check_finite(trace)
            seen += len(trace)
            yield trace
        if not seen:
            raise InputError(
                f"expected data to fit {type(self).__name__} on, got none; pass a Trace with rows"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(
                f"expected a fitted {type(self).__name__}, got an unfitted one; call fit(trace) first"
            )

    def _check_sizes(self, trace: Trace) -> None:
        if trace.source is not None and self.needs.forward:
            raise InputError(
                f"expected a Trace with one row per input for {type(self).__name__}, which runs the network "
                "again, got one with several; use a monitor that reads logits, features or inputs alone"
            )
        self._check_size("logits", trace.logits, self.classes_)
        for layer, size in self.dimensions_.items():
            self._check_size(layer, trace.layer(layer), size)

    def _check_size(self, name: str, rows: Tensor, size: int) -> None:
        if rows.shape[1] != size:
            raise InputError(
                f"expected {name} of size {size} as in fit, got {rows.shape[1]}; "
                "fit and score Traces of the same network"
            )

    def _check_finite(self, trace: Trace) -> None:
        for name in ("logits", *self.layers):
            values = trace.logits if name == "logits" else trace.layer(name)
            # A finite sum has finite terms, and is found much faster; an infinite one may have, too.
            if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
                raise InputError(
                    f"expected finite {name} to fit {type(self).__name__} on, got NaN or infinity; "
                    "remove those rows first"
                )


def _nbytes(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Monitor):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_nbytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_nbytes(item) for item in value)
    return 8 if isinstance(value, int | float) else 0
