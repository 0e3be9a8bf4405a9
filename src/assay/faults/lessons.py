"""Lessons: what a network does on labelled inputs under every fault, for methods that learn from it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.engine.progress import progress
from assay.errors import InputError
from assay.faults.attack_traces import attack_traces
from assay.faults.kinds import kind_of, templates_of
from assay.faults.template import SEVERITIES, Template, check_severity
from assay.identity import digest
from assay.labels import class_numbers
from assay.network import Network, length, rows
from assay.outputs import LOGITS
from assay.storage import expect_writable, load, made_folder, save
from assay.trace import Trace
from assay.version import VERSION

CLEAN = "clean"
"""Name and category of the lesson without a fault."""
ATTACK = "adversarial"
"""Category of attacks."""

MOST_ROWS = 2000
"""Rows that are taught with, drawn at random: the answers are hardly better with more."""
ATTACKED_ROWS = 300
"""Attacks need gradients, several times the price of an answer: they are taught on so many rows at most."""
ATTACKED_KINDS = ("image", "tabular")

FORMAT = 1
"""Goes into the names of kept lessons; to be raised when faults or lessons change."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """The labelled inputs under one fault at one severity, as a Trace."""

    fault: str
    category: str
    severity: int
    trace: Trace
    places: Tensor | None = None
    """The rows of the inputs that the Trace is about; None for all."""


def lessons(
    network: Network,
    data: Any,
    *,
    faults: Iterable[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    attacks: bool = True,
    rows_at_most: int = MOST_ROWS,
    folder: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Iterator[Lesson]:
    """One lesson after another: labelled inputs as they are, then under every fault at every severity.

    `data`: (inputs, labels), or anything labelled that `network.observe` takes; images, rows of a table,
    texts, tokens or bytes. `faults`: names of the faults of such inputs; all by default. With `attacks`,
    images and tables are attacked as well, FGSM and PGD on at most 300 rows, where the network has gradients.
    `rows_at_most`: if there are more inputs, so many are drawn. `folder`: Traces are kept there and used
    again by the next call with the same network, inputs and seed, also after a kill.

    Costs a forward pass over the inputs per fault and severity. One Trace is in memory at a time.
    """
    for severity in severities:
        check_severity(severity)
    if folder is not None:
        expect_writable(folder, folder=True)
    inputs, labels = labelled_rows(network, data, rows_at_most, seed)
    kind = kind_of(inputs)
    templates = templates_of(kind, network)
    names = list(templates if faults is None else faults)
    if unknown := [name for name in names if name not in templates]:
        raise InputError(f"expected faults of {sorted(templates)}, got {unknown}; choose from these")
    kept = _Kept(network, inputs, labels, folder, seed)
    plans = [(templates[name], severity) for name in names for severity in severities]
    return _lessons(network, inputs, labels, plans, attacks and _attackable(network, kind), kept, seed)


def labelled_rows(
    network: Network, data: Any, rows_at_most: int = MOST_ROWS, seed: int = 0
) -> tuple[Any, Tensor]:
    """At most so many inputs with their labels, in one piece, drawn at random if there are more.

    Those whose label is the network's `ignore_index` are left out, as in `observe`.
    """
    if network.rows is not None:
        raise InputError(
            "expected a network with one prediction per input to teach from faults, got one with several; "
            "pass labelled Traces without network="
        )
    inputs, labels = _in_one_piece(network, data)
    if length(inputs) != len(labels):
        raise InputError(f"expected a label per input ({length(inputs)}), got {len(labels)}")
    counted = labels != network.ignore_index
    if not counted.all():
        inputs, labels = rows(inputs, counted.nonzero()[:, 0]), labels[counted]
    if rows_at_most < 1 or not len(labels):
        raise InputError(
            f"expected labelled inputs to teach from, got {len(labels)}, of which at most {rows_at_most} are "
            "to be used; pass some, and rows_at_most of 1 or more"
        )
    if length(inputs) <= rows_at_most:
        return inputs, labels
    order = torch.randperm(length(inputs), generator=torch.Generator().manual_seed(seed))
    drawn = order[:rows_at_most].sort().values
    return rows(inputs, drawn), labels[drawn]


def _in_one_piece(network: Network, data: Any) -> tuple[Any, Tensor]:
    if isinstance(data, Trace):
        if data.inputs is None or data.labels is None:
            raise InputError(
                "expected a Trace with inputs and labels to teach from, got one without; observe with "
                "keep_inputs=True, or pass (inputs, labels)"
            )
        return data.inputs, data.labels
    if isinstance(data, tuple) and len(data) == 2 and data[1] is not None:
        inputs = data[0] if _is_texts(data[0]) else network.encode(data[0])
        return inputs, class_numbers(data[1])
    if network.embeds:
        raise InputError(
            f"expected (texts, labels) to teach from, got {type(data).__name__}; pass the texts in a list"
        )
    trace = network.observe(data, keep_inputs=True)
    assert trace.inputs is not None
    return trace.inputs, trace.known_labels


def _is_texts(inputs: Any) -> bool:
    return isinstance(inputs, list | tuple) and bool(inputs) and isinstance(inputs[0], str)


def _attackable(network: Network, kind: str) -> bool:
    return kind in ATTACKED_KINDS and bool(getattr(network.module, "differentiable", True))


def _lessons(
    network: Network,
    inputs: Any,
    labels: Tensor,
    plans: Sequence[tuple[Template, int]],
    attacks: bool,
    kept: "_Kept",
    seed: int,
) -> Iterator[Lesson]:
    def observe(name: str, faulty: Callable[[], Any], of: Tensor = labels) -> Trace:
        return kept.trace(name, lambda: network.observe((faulty(), of)))

    clean = observe(CLEAN, lambda: inputs)
    original = inputs if isinstance(inputs, Tensor) else None
    yield Lesson(CLEAN, CLEAN, 0, Trace(clean.logits, clean.features, labels, original, outputs=LOGITS))
    for template, severity in progress(plans, "teaching", len(plans)):
        name = f"{template.name}-{severity}"
        trace = observe(name, lambda: template(inputs, severity, seed=seed))  # noqa: B023
        yield Lesson(template.name, template.category, severity, trace)
    if not attacks:
        return
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    places = order[:ATTACKED_ROWS].sort().values
    some = labels[places]
    found = attack_traces(network, inputs[places], some, lambda name, make: observe(name, make, some), seed)
    for attack, step, trace in found:
        yield Lesson(attack, ATTACK, step, trace, places)


class _Kept:
    """Traces in a folder, by network, inputs and seed; without a folder, nothing is kept."""

    def __init__(
        self, network: Network, inputs: Any, labels: Tensor, folder: str | os.PathLike[str] | None, seed: int
    ) -> None:
        self._folder: Path | None = None
        if folder is not None:
            parts = (FORMAT, VERSION, network.fingerprint, list(network.layers), inputs, labels, seed)
            self._folder = made_folder(Path(folder) / digest(*parts)[:16])

    def trace(self, name: str, observed: Callable[[], Trace]) -> Trace:
        if self._folder is None:
            return observed()
        path = self._folder / f"{name}.safetensors"
        if not path.is_file():
            save(observed(), path)
        found = load(path)
        assert isinstance(found, Trace)
        return found
