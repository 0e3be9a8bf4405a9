"""Material: the in-distribution test data that scenarios are made from."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.benchmark.scenario import Labels, LastInputs, Scenario, novelty_labels
from assay.faults import Attack, Template
from assay.identity import digest
from assay.network import Network, length, rows


@dataclass(frozen=True, eq=False)
class Material:
    """Inputs and labels, the share of them that stays untouched, and the seed of every random choice."""

    inputs: Any
    labels: Labels
    network: Network | None
    clean_share: float
    seed: int
    last_inputs: LastInputs = field(default_factory=LastInputs)
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        fingerprint = digest(self.inputs, self.labels, self.clean_share, self.seed)
        object.__setattr__(self, "fingerprint", fingerprint)

    def faulty(self, template: Template | Attack, severity: int) -> Scenario:
        """Every row once, `clean_share` of them untouched: the same ones at every severity."""
        seed = self._seed_of(template.name)
        generator = torch.Generator().manual_seed(seed)
        count = len(self.labels)
        clean = min(count - 1, max(1, round(self.clean_share * count)))
        order = torch.randperm(count, generator=generator)
        is_fault = torch.randperm(count, generator=generator) >= clean
        name = f"{template.name} ({severity})"

        def make() -> Any:
            stream, struck = rows(self.inputs, order), is_fault.nonzero().flatten()
            originals = rows(stream, struck)
            if isinstance(template, Attack):
                assert self.network is not None
                labels = rows(self.labels, order[struck])
                changed = template(originals, severity, seed, network=self.network, labels=labels)
            else:
                changed = template(originals, severity, seed)
            return _with_rows_replaced(stream, struck, changed)

        return Scenario(
            name,
            template.category,
            severity,
            rows(self.labels, order),
            is_fault,
            partial(self.last_inputs.of, name, make),
            digest(self.fingerprint, name, self._attacked_network(template)),
            order,
        )

    def novel(self, name: str, others: Any) -> Scenario:
        """Every novel row once, and known rows to make up `clean_share`, or all there are."""
        generator = torch.Generator().manual_seed(self._seed_of(name))
        count = length(others)
        wanted = max(1, round(count * self.clean_share / (1 - self.clean_share)))
        known = torch.randperm(len(self.labels), generator=generator)[:wanted]
        order = torch.randperm(count + len(known), generator=generator)
        unknown = novelty_labels(count, self.labels)
        origins = torch.cat([torch.full((count,), -1), known])

        def make() -> Any:
            familiar = rows(self.inputs, known)
            return rows(joined(others, familiar), order)

        return Scenario(
            name,
            "novelty",
            0,
            rows(joined(unknown, rows(self.labels, known)), order),
            order < count,
            partial(self.last_inputs.of, name, make),
            digest(self.fingerprint, name, others),
            origins[order],
        )

    def _attacked_network(self, template: Template | Attack) -> str | None:
        """The fingerprint of the network that the faulty rows depend on; None if they depend on none."""
        if not isinstance(template, Attack) or self.network is None:
            return None
        return self.network.fingerprint

    def _seed_of(self, name: str) -> int:
        """A seed that depends on the name only, so that choosing fewer faults changes none of the others."""
        return zlib.crc32(f"{self.seed} {name}".encode())


def joined(first: Any, second: Any) -> Any:
    """The rows of both, in the form of the second: a tensor, a dict of tensors, or a list."""
    if isinstance(second, Tensor):
        return torch.cat([first.to(second.dtype), second])
    if isinstance(second, Mapping):
        return {name: joined(first[name], tensor) for name, tensor in second.items()}
    return [*first, *second]


def _with_rows_replaced(stream: Any, places: Tensor, changed: Any) -> Any:
    """The stream with some rows replaced, in place."""
    if isinstance(stream, Tensor):
        stream[places] = changed
        return stream
    if isinstance(stream, Mapping):
        return {name: _with_rows_replaced(tensor, places, changed[name]) for name, tensor in stream.items()}
    for row, text in zip(places.tolist(), changed, strict=True):
        stream[row] = text
    return stream
