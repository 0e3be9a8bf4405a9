"""Who teaches: the fault library where there is a network, else what you pass, else noise on the logits."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from assay.accuracy.answer import NOT_TEACHING
from assay.accuracy.logit_noise import noisy
from assay.accuracy.predictions import LabelledPredictions, labelled_trace
from assay.errors import InputError
from assay.faults.lessons import CLEAN, Lesson, lessons
from assay.network import Network, all_finite
from assay.outputs import LOGITS
from assay.trace import Trace

LOGIT_NOISE = "noise on logits"
PERTURBED = "perturbed"
"""Lessons that come from no fault of the library: only the methods of the table learn from them."""

Folder = str | os.PathLike[str] | None


def lesson_stream(
    reference: Any, perturbed: Iterable[Any], network: Network | None, folder: Folder, seed: int
) -> Iterator[Lesson]:
    """Lessons, the first without a fault."""
    given = list(perturbed)
    if network is not None and given:
        raise InputError(
            "expected network=, whose faults teach, or perturbed=, got both; leave one of them out"
        )
    if network is None and folder is not None:
        raise InputError(
            "expected network= beside folder=, which keeps what faults do to it, got none; leave folder= out"
        )
    if network is not None:
        return lessons(network, reference, folder=folder, seed=seed)
    return _without_network(labelled_trace(reference), given, seed)


def _without_network(reference: Trace, perturbed: list[Any], seed: int) -> Iterator[Lesson]:
    if any(isinstance(one, Lesson) for one in perturbed):
        yield from _given_lessons(reference, perturbed)
        return
    yield Lesson(CLEAN, CLEAN, 0, reference)
    name = PERTURBED if perturbed else LOGIT_NOISE
    for number, one in enumerate(perturbed or noisy(reference, seed), 1):
        yield Lesson(name, name, number, labelled_trace(one))


def _given_lessons(reference: Trace, given: list[Any]) -> Iterator[Lesson]:
    if strangers := {type(one).__name__ for one in given if not isinstance(one, Lesson)}:
        raise InputError(f"expected only Lessons, as the first one, got also {sorted(strangers)}")
    if given[0].fault != CLEAN:
        yield Lesson(CLEAN, CLEAN, 0, reference)
    yield from given


def without_features(clean: Lesson) -> Lesson:
    """For an answer that nothing teaches what becomes of features; operational predictions may have none."""
    return replace(clean, trace=Trace(clean.trace.logits, labels=clean.trace.labels, outputs=LOGITS))


@dataclass
class Overheard:
    """What the methods of the table learn from lessons while the answer reads them.

    A fault under which outputs or features are no longer finite teaches nothing: rows that are not finite are
    refused in operation, too.
    """

    taught: list[LabelledPredictions] = field(default_factory=list)

    def listen(self, stream: Iterable[Lesson]) -> Iterator[Lesson]:
        for lesson in stream:
            if lesson.category != CLEAN and not _is_finite(lesson.trace):
                continue
            if lesson.category not in (CLEAN, *NOT_TEACHING):
                self.taught.append(LabelledPredictions.of(lesson.trace))
            if lesson.category not in (LOGIT_NOISE, PERTURBED):
                yield lesson


def _is_finite(trace: Trace) -> bool:
    return all_finite({"logits": trace.logits, **trace.features})
