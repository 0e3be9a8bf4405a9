"""The whole contract of a monitor. A monitor takes Traces and gives scores; a Guard decides.

A new monitor is one file with one class that implements `_gather`, `_describe` and `_score`; all that
monitors share (checks, streaming, merging, storage) is here.
"""

import inspect
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError, NotFittedError
from assay.identity import digest
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.parts.gathered import Gathered
from assay.network.graph import under_tracer
from assay.outputs import LOGITS
from assay.sharded_trace import ShardedTrace
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

    _gathered: dict[str, Gathered] | None = None
    """What the fit gathered, by which it can be merged; a file has it if it was asked to."""

    _fits: tuple[str, ...] = ()
    """Hashes of the fits merged into this one, so that none counts twice."""

    remedy_: str = ""
    """What fitting did where the data did not determine the state, and what to do; else empty."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            room = "monitors" if cls.__module__.startswith("assay.") else cls.__module__
            storable(f"{room}.{cls.__name__}", cls.version)(cls)

    def fit(
        self, traces: Trace | Iterable[Trace], *, engine: str = "here", workers: int | None = None
    ) -> Self:
        """Learn what is normal from one Trace, a stream of them or a ShardedTrace; all give the same state.

        On an engine ("processes" or "ray") every shard, or Trace of a stream, is a job, and what the workers
        gathered is merged.
        """
        self._forget()
        try:
            if engine == "here":
                self._collect(traces)
            else:
                self._collect_on(traces, engine, workers)
            self._conclude()
        except BaseException:  # also an interrupt: half a fit must not pass for one
            self._forget()
            raise
        return self

    def merge(self, *others: Self) -> Self:
        """Take in what others with the same settings were fitted on, as if it had been fitted on all of it.

        The order does not matter, nor how rows were split: samples are the same to the last bit, sums to
        rounding. A fit from a file can be merged if it was saved with `assay.save(..., mergeable=True)`.
        """
        for one in (self, *others):
            self._check_mergeable(one)
        fits = self._different_fits((self, *others))
        try:
            for other in others:
                self._join(other)
            self._fits = fits
            self._conclude()
        except BaseException:
            self._forget()
            raise
        return self

    def score(
        self, trace: Trace | ShardedTrace, *, engine: str = "here", workers: int | None = None
    ) -> Tensor:
        """One number per input, in double precision; of a ShardedTrace shard by shard."""
        self._check_fitted()
        if isinstance(trace, ShardedTrace) or engine != "here":
            from assay.monitors.parts.shard_fit import scores_on

            return scores_on(self, trace, engine, workers)
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

    @property
    def merge_obstacle(self) -> str:
        """Why fits of it cannot be merged; empty where they can."""
        if type(self)._fit is not Monitor._fit:
            return self.metadata.unmergeable or "it fits in one piece (it has no _gather)"
        return next((part.merge_obstacle for part in self._parts if part.merge_obstacle), "")

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        """What is needed of a stream of at least one Trace, each checked to be finite: sums and samples, by
        name; `classes_` and `dimensions_` are set.

        A monitor that learns nothing leaves this as it is: the stream is only checked.
        """
        for _ in traces:
            pass
        return {}

    def _describe(self, *_: Any, **gathered: Any) -> None:
        """Set the fitted state from what `_gather` returned, by its names; with nothing, there is none."""
        assert not gathered

    def _fit(self, traces: Iterator[Trace]) -> None:
        """Both at once; a monitor that implements this instead cannot be merged."""
        self._gathered = self._gather(traces)

    @property
    def _parts(self) -> Sequence["Monitor"]:
        """Monitors that it gathers for, too, on the same rows."""
        return ()

    def _collect(self, traces: Trace | Iterable[Trace]) -> None:
        """The part of a fit that reads rows: one machine may do it for its share of them."""
        self._fit(
            self._with_sizes_set(self._checked(iter([traces] if isinstance(traces, Trace) else traces)))
        )

    def _conclude(self) -> None:
        """The part of a fit that comes after the last row."""
        for part in self._parts:
            part._conclude()
        if self._gathered is not None:
            vars(self).pop("remedy_", None)
            self._describe(**self._gathered)

    def _join(self, other: Self) -> None:
        """What the other gathered, too."""
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine._join(theirs)
        assert self._gathered is not None
        assert other._gathered is not None  # refused before
        for name, gathered in self._gathered.items():
            gathered.merge(other._gathered[name])

    def _adopt(self, other: Self) -> None:
        """Become what the other is, in place; the monitors it is made of, too."""
        vars(self).update({name: value for name, value in vars(other).items() if name.endswith("_")})
        self._gathered = other._gathered
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            mine._adopt(theirs)

    def _collect_on(self, traces: Trace | Iterable[Trace], engine: str, workers: int | None) -> None:
        from assay.monitors.parts.shard_fit import collect_on

        collect_on(self, traces, engine, workers)

    def _known_fits(self) -> tuple[str, ...]:
        """A hash of what each fit merged so far had gathered; empty where it learned nothing."""
        repeatable = all(part.repeatable for part in (self._gathered or {}).values())
        return self._fits or (() if repeatable else (fingerprint_of(self._gathered),))

    @abstractmethod
    def _score(self, trace: Trace) -> Tensor:
        """The scores; a row that is not finite may score NaN, never raise."""

    def _traced_score(self, trace: Trace) -> Tensor:
        """`_score` in tensor operations that hold for any number of rows: no branch on values, no loop over
        blocks. Implement it where `_score` is not that already; it may cost more."""
        return self._score(trace)

    def settings(self) -> tuple[Any, ...]:
        """Class and arguments in a form that can be compared; fits merge where these are equal."""
        names = inspect.signature(type(self)).parameters
        return type(self).__name__, *((name, _comparable(getattr(self, name))) for name in names)

    def state(self) -> dict[str, Any]:
        return {
            "parameters": {name: getattr(self, name) for name in inspect.signature(type(self)).parameters},
            "fitted": {name: value for name, value in vars(self).items() if name.endswith("_")},
        }

    def mergeable_state(self) -> dict[str, Any]:
        """The state with what the fit gathered; `assay.save(..., mergeable=True)` writes it."""
        return self.state() | {"gathered": self._gathered, "fits": self._known_fits()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        monitor = cls(**state["parameters"])
        monitor._gathered, monitor._fits = state.get("gathered"), state.get("fits", ())
        for name, value in state["fitted"].items():
            setattr(monitor, name, value)
        return monitor

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.state()["parameters"].items())
        return f"{type(self).__name__}({arguments})"

    def _needed_of(self, trace: Trace) -> Trace:
        """The Trace without features and inputs that the monitor does not read."""
        features = {layer: trace.layer(layer) for layer in self.layers}
        inputs = trace.inputs if self.needs.inputs or self.needs.inputs_in_fit else None
        return replace(trace, features=features, inputs=inputs, outputs=LOGITS)

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        self._gathered, self._fits = None, ()

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

    def _check_mergeable(self, other: object) -> None:
        name = type(self).__name__
        if self.merge_obstacle:
            raise InputError(
                f"expected a monitor whose fits merge, got {name}: {self.merge_obstacle}; fit it on all rows"
            )
        if not isinstance(other, Monitor) or self.settings() != other.settings():
            raise InputError(
                f"expected fits of {self!r} to merge, got {other!r}; fit both alike, with the same settings"
            )
        other._check_fitted()
        if (self.classes_, self.dimensions_) != (other.classes_, other.dimensions_):
            raise InputError(
                f"expected fits of {name} with {self.classes_} classes and features {self.dimensions_}, got "
                f"{other.classes_} and {other.dimensions_}; fit both alike, on Traces of one network"
            )
        if other._gathered is None:
            raise InputError(
                f"expected a fit of {name} with what it had gathered, got one from a file without it; save "
                "it with assay.save(monitor, path, mergeable=True)"
            )

    def _different_fits(self, monitors: Sequence["Monitor"]) -> tuple[str, ...]:
        """What identifies every fit; an error if one comes twice."""
        known = Counter(fit for monitor in monitors for fit in monitor._known_fits())
        if any(count > 1 for count in known.values()):
            raise InputError(
                f"expected fits of {type(self).__name__} on different rows, got one that is merged already, "
                "and its rows would count twice; merge each once"
            )
        return tuple(known)

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


def _comparable(value: Any) -> Any:
    """A value that `==` compares: monitors by their settings, networks and tensors by their hash."""
    if isinstance(value, Monitor):
        return value.settings()
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, Tensor):
        return digest(value)
    return getattr(value, "fingerprint", value)


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
