"""The parents of all watches of a stream: state, alarm, and counts that outlive the process."""

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import pandas as pd

from assay.errors import InputError, NotFittedError
from assay.identity import digest
from assay.notebook import Shown
from assay.storage import load, save
from assay.table import tabled

HISTORY = 1000
"""Number of windows or rounds in the history."""


class StreamState(Protocol):
    """The state of a watch at some moment."""

    @property
    def alarm(self) -> bool: ...


State = TypeVar("State", bound=StreamState, covariant=True)


class StreamWatch(Shown, ABC, Generic[State]):
    """A stream of predictions, watched: ask for its state or alarm, keep it in a file, resume from there."""

    kept_as: ClassVar[str]
    """The kind of object that `keep` writes."""

    @abstractmethod
    def state_now(self) -> State:
        """The state after everything seen so far."""

    @property
    def alarm(self) -> bool:
        """Whether the watch has raised the alarm; it stays raised."""
        return self.state_now().alarm

    def keep(self, path: str | os.PathLike[str]) -> None:
        """Write everything seen so far to `path`, whole or not at all."""
        save(self._record(), path)

    def resume(self, path: str | os.PathLike[str]) -> bool:
        """Continue from what `keep` wrote, if the file exists; False if it does not.

        A file with other settings or another clean reference is refused.
        """
        if not Path(path).exists():
            return False
        record = load(path, kind=self.kept_as)
        if differences := self._differences(record):
            raise InputError(
                f"expected {path} to contain what this watch counted, got another "
                f"{' and '.join(differences)}; continue with the same settings, or move the file away"
            )
        self._continue_from(record)
        return True

    @abstractmethod
    def _record(self) -> object:
        """Everything seen so far, as a storable object."""

    @abstractmethod
    def _differences(self, record: Any) -> list[str]:
        """Names of the settings in which a record differs from this watch."""

    @abstractmethod
    def _continue_from(self, record: Any) -> None: ...


class SequentialWatch(StreamWatch[State]):
    """A test of "the stream is like the clean data" that may be looked at after every row.

    Constructor arguments are attributes; names of what was learned and seen end in an underscore. A file of
    the watch contains both.
    """

    columns: ClassVar[tuple[str, ...]]
    """Of the history: the row a window or round ends with, and what was found in it."""

    def __init__(self, *, false_alarm_rate: float, block: int) -> None:
        if not 0 < false_alarm_rate < 1:
            raise InputError(f"expected a false_alarm_rate between 0 and 1, got {false_alarm_rate}")
        if block < 1:
            raise InputError(f"expected a block of at least 1 row, got {block}")
        self.false_alarm_rate = false_alarm_rate
        self.block = block

    def reset(self) -> Self:
        """Forget the stream, keep the reference: for a new stream, or after an alarm was dealt with."""
        self.rows_ = 0
        self.history_: deque[tuple[float, ...]] = deque(maxlen=HISTORY)
        self._forget()
        return self

    @abstractmethod
    def _forget(self) -> None:
        """Forget what else was seen of the stream."""

    @abstractmethod
    def _reference_facts(self) -> tuple[Any, ...]:
        """The clean reference, for the fingerprint."""

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_")}

    @property
    def fingerprint(self) -> str:
        """A hash of settings and clean reference; what the stream did does not change it."""
        return digest(self.settings, *self._reference_facts())

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per window or round, the last 1,000."""
        frame = pd.DataFrame(list(self.history_), columns=list(self.columns), dtype=float)
        return frame.astype({"row": int})

    def state(self) -> dict[str, Any]:
        return vars(self) | {"history_": np.array(self.history_).reshape(-1, len(self.columns))}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        watch = cls(**{name: value for name, value in state.items() if not name.endswith("_")})
        vars(watch).update(state)
        watch.history_ = deque(map(tuple, state["history_"].tolist()), maxlen=HISTORY)
        return watch

    def _record(self) -> Self:
        return self

    def _differences(self, record: Self) -> list[str]:
        return [] if record.fingerprint == self.fingerprint else ["clean reference"]

    def _continue_from(self, record: Self) -> None:
        vars(self).update(vars(record))

    def _promise(self) -> str:
        rows = (
            "of independent rows" if self.block == 1 else f"whose blocks of {self.block} rows are independent"
        )
        return (
            f"On a clean stream {rows} the alarm sounds with a chance of at most "
            f"{self.false_alarm_rate:.1%}, ever."
        )

    def _not_calibrated(self, clean: str) -> NotFittedError:
        return NotFittedError(
            f"expected a calibrated {type(self).__name__}, got an uncalibrated one; call calibrate({clean}) "
            "first"
        )
