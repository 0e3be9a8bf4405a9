"""The protocol of a guard: what Watch, the service and the commands use, in torch or in ONNX."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from assay.errors import NotFittedError
from assay.guard.alarm_stream import AlarmStream
from assay.guard.verdict import Answer, Verdict
from assay.notebook import Shown
from assay.trace import Trace


class AnyGuard(Shown, ABC):
    """A network and its monitor as one system: `Guard` in torch, `OnnxGuard` as one exported graph."""

    def __call__(self, inputs: Any) -> Verdict:
        """Predict and judge a batch of inputs."""
        return self.answer(inputs).verdict

    calibration: dict[str, Any]
    """How the threshold was set, and what it promises; empty for a threshold of your own."""

    def summary(self) -> str:
        """What is watched, and when the alarm is raised, in words."""
        watched = ", ".join(self.layers) or "the outputs"
        words = f"{self.monitor_name} watches {watched} and raises the alarm "
        try:
            threshold = self.decided_threshold()
        except NotFittedError:
            return f"{words}never: it has no threshold yet, call calibrate(trace)."
        above = (
            f"{float(threshold):.4g}" if threshold.numel() == 1 else "the threshold of the predicted class"
        )
        rate, rows = (self.calibration.get(name) for name in ("false_alarm_rate", "rows"))
        promise = "" if rate is None else f", set on {rows:,} clean rows for at most {rate:.1%} false alarms"
        return f"{words}where its score is above {above}{promise}."

    def stream(self, k: int = 3, of: int = 5, **options: Any) -> AlarmStream:
        """An alarm over time, for rows that come one after another; `options` are those of `AlarmStream`.

        k of n: at least `k` alarms among the last `of` rows. With `rows_per_hour` and `false_alarms_per_hour`
        instead a sequential test on the scores, which keeps that rate on clean data.
        """
        return AlarmStream(self, k=k, of=of, **options)

    @abstractmethod
    def answer(self, inputs: Any) -> Answer:
        """Predict and judge; also returns the Trace and the seconds it took."""

    @abstractmethod
    def judge(self, trace: Trace) -> Verdict:
        """Scores and alarms for a Trace; UndecidedError if the Trace lacks something."""

    @abstractmethod
    def watching(self, layers: Sequence[str]) -> Self:
        """The same guard, whose answers also contain these layers if it can add any."""

    @abstractmethod
    def decided_threshold(self) -> Tensor:
        """The threshold, one number or one per class; an error if there is none yet."""

    @property
    @abstractmethod
    def layers(self) -> tuple[str, ...]:
        """The layers whose features an answer contains."""

    @property
    @abstractmethod
    def separable(self) -> bool:
        """Whether network and monitor can be run and timed apart, as the benchmark does."""

    @property
    @abstractmethod
    def members(self) -> tuple[str, ...]:
        """The names of the monitors that may raise the alarm: `verdict.reasons` uses them."""

    @property
    @abstractmethod
    def monitor_name(self) -> str:
        """The class of the monitor."""

    @property
    @abstractmethod
    def network_fingerprint(self) -> str:
        """A hash of the network, by which bins recognise it."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of network, fitted monitor and threshold, by which counts recognise the guard; an
        exported guard has the same one."""
