"""The protocol of a guard: what Watch, the service and the commands use, in torch or in ONNX."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from assay.guard.verdict import Answer, Verdict
from assay.trace import Trace


class AnyGuard(ABC):
    """A network and its monitor as one system: `Guard` in torch, `OnnxGuard` as one exported graph."""

    def __call__(self, inputs: Any) -> Verdict:
        """Predict and judge a batch of inputs."""
        return self.answer(inputs).verdict

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
