"""Scenario: one benchmark dataset, a stream of good and faulty inputs in random order."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.identity import digest
from assay.labels import class_numbers, label_tensor
from assay.network import length
from assay.sharded_trace import ShardedTrace

CATEGORIES = ("novelty", "noise", "anomaly", "shift", "adversarial")

NO_LABEL = -1
"""The label of a novelty: no class the network knows."""

Labels: TypeAlias = Tensor | list[Any]
"""One entry per input: class numbers (N,), maps of them (N, H, W), or anything else in a list."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """Inputs with a label and a fault flag each; `inputs` are made when they are read.

    Severity is 1 to 5, and 0 for a novelty. `fingerprint` identifies the data, so that a resumed run does not
    reuse results of other data. `rows` are the rows of the test data that each was made from, -1 for a
    novelty; None if they are not known. Where an input has several predictions, its label is what the network
    takes for one: a map, or a list entry. Made by `build_scenarios`, or from recorded data by `Scenario.of`.
    Where what the network did is recorded, `inputs` are that ShardedTrace, and the network does not run.
    """

    name: str
    category: str
    severity: int
    labels: Labels
    is_fault: Tensor
    make: Callable[[], Any] = field(repr=False)
    fingerprint: str = ""
    rows: Tensor | None = None

    def __post_init__(self) -> None:
        if self.category not in CATEGORIES:
            raise InputError(f"expected a category of {list(CATEGORIES)}, got {self.category!r}")
        if not len(self.labels) or len(self.labels) != len(self.is_fault):
            raise InputError(
                f"expected a label and a fault flag for every row of scenario {self.name!r}, got "
                f"{len(self.labels)} and {len(self.is_fault)}; give at least one row"
            )

    @property
    def inputs(self) -> Any:
        """The rows; made again unless they were the last ones made."""
        return self.make()

    def self_contained(self) -> "Scenario":
        """The same scenario with its inputs inside, to be sent to another process."""
        return replace(self, make=FixedInputs(self.inputs))

    @property
    def recorded(self) -> ShardedTrace | None:
        """What the network did on the rows, where that is on disk."""
        inputs = self.make.inputs if isinstance(self.make, FixedInputs) else None
        return inputs if isinstance(inputs, ShardedTrace) else None

    def parts(self) -> "list[Scenario]":
        """What can be judged apart from the rest: every shard of recorded rows, else the whole."""
        if self.recorded is None:
            return [self]
        ends = accumulate(map(len, self.recorded.shards), initial=0)
        return [self._between(start, stop) for start, stop in pairwise(ends)]

    def _between(self, start: int, stop: int) -> "Scenario":
        assert self.recorded is not None
        rows = slice(start, stop)
        own = FixedInputs(self.recorded[rows])
        return replace(self, labels=self.labels[rows], is_fault=self.is_fault[rows], make=own)

    @property
    def is_novelty(self) -> bool:
        return self.category == "novelty"

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(
        cls, name: str, category: str, inputs: Any, labels: Any, is_fault: Any, *, severity: int = 0
    ) -> "Scenario":
        """A scenario of recorded inputs, with the label of every row (-1 for a novelty) and whether it is a
        fault. A ShardedTrace in place of inputs is judged as it is, shard by shard."""
        if not isinstance(inputs, ShardedTrace):
            inputs = tensor_or_texts(inputs)
        labels, flags = input_labels(labels), torch.as_tensor(is_fault).bool()
        recorded = isinstance(inputs, ShardedTrace)
        if (count := len(inputs) if recorded else length(inputs)) != len(labels):
            raise InputError(
                f"expected one label per input in scenario {name!r}, got {count} inputs and "
                f"{len(labels)} labels"
            )
        mark = digest(name, category, severity, _contents(inputs) if recorded else inputs, labels, flags)
        return cls(name, category, severity, labels, flags, FixedInputs(inputs), mark)


def _contents(recorded: ShardedTrace) -> list[list[Any]]:
    """What identifies the rows, without reading them."""
    return [[shard.digest, shard.start, shard.stop] for shard in recorded.shards]


def input_labels(labels: Any, dense: bool | None = None) -> Labels:
    """A class number per input or, where outputs are dense, whatever stands for the labels of an input.

    Without a word about it, outputs are dense if labels are maps or a list of anything but numbers.
    """
    in_parts = isinstance(labels, list | tuple) and any(isinstance(part, Mapping | Tensor) for part in labels)
    if dense is None:
        dense = any(_are_several(part) for part in labels) if in_parts else _is_maps(labels)
    if not dense:
        return class_numbers(labels)
    if in_parts:
        return list(labels)
    return labels if isinstance(labels, Tensor) else label_tensor(labels)


def _are_several(part: Any) -> bool:
    """Whether this is anything but the one class number of an input."""
    return not isinstance(part, Tensor) or part.numel() != 1


def _is_maps(labels: Any) -> bool:
    try:
        return np.ndim(labels) > 2
    except ValueError:  # rows of several lengths
        return False


def check_scenario_labels(scenario: Scenario, classes: int, ignored: Collection[int]) -> None:
    """Refuse labels that no network has an output for; those in a list are checked where they meet rows."""
    if not isinstance(scenario.labels, Tensor):
        return
    known = scenario.labels[~torch.isin(scenario.labels, torch.tensor(sorted(ignored)))]
    if len(known) and (known.min() < NO_LABEL or known.max() >= classes):
        raise InputError(
            f"expected labels from 0 to {classes - 1} in scenario {scenario.name!r}, and {NO_LABEL} for "
            f"novelties, got {int(known.min())} to {int(known.max())}"
        )


def novelty_labels(count: int, like: Labels) -> Labels:
    """The labels of `count` inputs of which no part belongs to a known class."""
    if isinstance(like, Tensor):
        return torch.full((count, *like.shape[1:]), NO_LABEL)
    return [None] * count


def tensor_or_texts(inputs: Any) -> Any:
    """Arrays as a tensor, texts as a list; tensors and dicts of tensors as they are."""
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(row, str) for row in inputs):
        return list(inputs)
    return inputs if isinstance(inputs, Mapping) else torch.as_tensor(inputs)


@dataclass(frozen=True, eq=False)
class FixedInputs:
    """Inputs that exist already."""

    inputs: Any

    def __call__(self) -> Any:
        return self.inputs


class LastInputs:
    """Keeps only the inputs made last: of 79 scenarios, one is in memory."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._inputs: Any = None

    def of(self, name: str, make: Callable[[], Any]) -> Any:
        if name != self._name:
            self._name, self._inputs = None, None  # free the old ones before making new ones
            self._inputs = make()
            self._name = name
        return self._inputs
