"""ODIN: top probability at high temperature, after a step that raises it (Liang et al. 2018)."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import doubt
from assay.monitors.parts.input_step import INPUT_STEP, perturbed_scores
from assay.network import Network
from assay.trace import Trace


class ODIN(Monitor):
    """s(x) = 1 - max_k S_k(x~; T), with S(x; T) = softmax(f(x) / T) and Eq. 2 of Liang et al.

    x~ = x - magnitude sign(-grad_x log max_k S_k(x; T)). Nothing is clipped to an input range, as in the
    paper; the magnitude is in units of the network's inputs. With magnitude 0 it reads the logits alone.
    """

    metadata = Metadata(
        score="1 - max softmax(f(x~) / T), x~ one step up the top probability",
        needs=INPUT_STEP,
        paper="Liang et al.",
        year=2018,
    )

    def __init__(self, network: Network, *, temperature: float = 1000.0, magnitude: float = 0.0014) -> None:
        if not temperature > 0 or magnitude < 0:
            raise InputError(
                f"expected a positive temperature and a magnitude of at least 0, got {temperature} and "
                f"{magnitude}"
            )
        self.network = network
        self.temperature = temperature
        self.magnitude = magnitude

    @property
    def needs(self) -> Needs:
        return self.metadata.needs if self.magnitude > 0 else Needs()

    def _score(self, trace: Trace) -> Tensor:
        if self.magnitude == 0:
            return self._doubt(trace)
        return perturbed_scores(
            self.network, trace, objective=self._log_top, step=self.magnitude, score=self._doubt
        )

    def _log_top(self, trace: Trace) -> Tensor:
        return torch.log_softmax(trace.logits / self.temperature, dim=1).amax(dim=1)

    def _doubt(self, trace: Trace) -> Tensor:
        return doubt(trace.logits, self.temperature)
