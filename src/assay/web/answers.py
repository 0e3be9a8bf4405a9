"""Bodies in, bodies out: parsed, judged by the guard, counted, written."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch

from assay.errors import InputError
from assay.guard import Answer, AnyGuard
from assay.web.limits import Limits
from assay.web.protocol import grouped, parse_request, response_body
from assay.web.request_line import Outcome
from assay.web.tally import AnyTally, Seen


@dataclass(frozen=True)
class Answers:
    """`answers(bodies)`: the outcome for each; those whose inputs fit together share a forward pass.

    What a guard has judged is counted before there is an outcome.
    """

    guard: AnyGuard
    tally: AnyTally
    limits: Limits
    name: str
    version: str

    def __call__(self, bodies: Sequence[bytes]) -> list[Outcome]:
        outcomes: list[Outcome] = [b""] * len(bodies)
        requests: dict[int, Any] = {}
        inputs: dict[int, Any] = {}
        for place, body in enumerate(bodies):
            try:
                requests[place], inputs[place] = parse_request(body, self.limits.rows)
            except InputError as error:
                outcomes[place] = error
        for places in grouped(inputs, self.limits.rows):
            answers = self._judged([inputs[place] for place in places])
            for place, answer in zip(places, answers, strict=True):
                outcomes[place] = self._written(requests[place], answer)
        return outcomes

    def _judged(self, inputs: Sequence[Any]) -> list[Answer | Exception]:
        """The answer to each of some inputs that fit together, counted."""
        try:
            whole = self.guard.answer(inputs[0] if len(inputs) == 1 else torch.cat(list(inputs)))
        except Exception as error:
            if len(inputs) == 1:
                return [error]
            return [answer for one in inputs for answer in self._judged([one])]  # one must not fail for all
        self.tally.add(Seen.of(whole, self.tally.layers))
        if len(inputs) == 1:
            return [whole]
        ends = list(accumulate(map(len, inputs), initial=0))
        return [whole.of_inputs(start, stop) for start, stop in pairwise(ends)]

    def _written(self, request: dict[str, Any], answer: Answer | Exception) -> Outcome:
        if isinstance(answer, Exception):
            return answer
        try:
            return response_body(request, answer, self.name, self.version, self.limits.body)
        except InputError as error:
            return error
