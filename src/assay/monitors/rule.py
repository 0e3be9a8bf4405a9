"""Rule: doubt what breaks an assertion of the user (model assertions, Kang et al. 2020)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.parts.user_code import _UserCode, one_score_per_row
from assay.trace import Trace


class Rule(_UserCode):
    """s(x) = predicate(trace), one truth value (True: violated, scores 1) or number per row.

    Model assertions (Kang et al. 2020), the rule-based monitors of the safety-monitor benchmark. The
    predicate gets the whole Trace and answers for each row from that row alone. It is code, so a Rule cannot
    be saved (InputRange and AllowedClasses can); saved results identify it by `name`. `fit` learns nothing
    and tries the predicate once.
    layers: those whose features the predicate reads. needs_inputs: whether it reads `trace.inputs`.

    >>> import torch
    >>> trace = Trace(torch.tensor([[9.0, 0.0], [0.1, 0.0]]))
    >>> unsure = Rule(lambda trace: trace.probabilities.amax(dim=1) < 0.9, needs_inputs=False)
    >>> unsure.fit(trace).score(trace).tolist()
    [0.0, 1.0]
    """

    metadata = Metadata(
        score="what a function of the Trace says",
        needs=Needs(inputs=True, inputs_in_fit=True, user_code=True),
        cost="",
        paper="Kang et al.",
        year=2020,
    )

    code = "predicate"
    instead = "a predicate is code: build it again after loading, or use InputRange or AllowedClasses"

    def __init__(
        self,
        predicate: Callable[[Trace], Any],
        *,
        name: str | None = None,
        layers: Sequence[str] = (),
        needs_inputs: bool = True,
    ) -> None:
        if not callable(predicate):
            raise InputError(
                f"expected a predicate that takes a Trace, got {type(predicate).__name__}; pass a function"
            )
        self.predicate = predicate
        self.name = name
        self._layers = (layers,) if isinstance(layers, str) else tuple(layers)
        self.needs_inputs = needs_inputs

    @property
    def needs(self) -> Needs:
        return replace(self.metadata.needs, inputs=self.needs_inputs, inputs_in_fit=self.needs_inputs)

    @property
    def layers(self) -> tuple[str, ...]:
        return self._layers

    def _fit(self, traces: Iterator[Trace]) -> None:
        self._score(next(traces))
        for _ in traces:
            pass

    def _score(self, trace: Trace) -> Tensor:
        return one_score_per_row(self.predicate(trace), trace, f"the predicate of rule {self.name or self!r}")
