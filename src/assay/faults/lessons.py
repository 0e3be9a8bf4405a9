"""Lessons: what a network does on labelled inputs under every fault, for methods that learn from it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from assay.engine.progress import progress
from assay.errors import InputError
from assay.faults.attacks import ADVERSARIAL, Attack
from assay.faults.template import SEVERITIES, Template, check_severity
from assay.network import Network, length, rows
from assay.trace import Trace

CLEAN = "clean"
"""Name and category of the lesson without a fault."""

ATTACKS = ("fgsm", "pgd")
ATTACKED_ROWS = 200
"""Attacks need gradients, ten times the price of an answer: they are taught on so many rows at most."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """The labelled inputs under one fault at one severity, as a Trace."""

    fault: str
    category: str
    severity: int
    trace: Trace
    places: Tensor | None = None
    """The rows of the inputs that the Trace is about; None for all."""


