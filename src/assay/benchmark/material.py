"""Material: the in-distribution test data that scenarios are made of."""

import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.benchmark.scenario import NO_LABEL, LastMade, Scenario, row_count, rows_of
from assay.faults import Attack, Template
from assay.identity import digest
from assay.network import Network


@dataclass(frozen=True, eq=False)
class Material:
    """Inputs and labels, how much of them stays untouched, and the seed of all that is random."""

    inputs: Any
    labels: Tensor
    network: Network | None
    clean_share: float
    seed: int
    last_made: LastMade = field(default_factory=LastMade)
    mark: str = field(init=False)

    def __post_init__(self) -> None:
        mark = digest(self.inputs, self.labels, self.clean_share, self.seed)
        object.__setattr__(self, "mark", mark)

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
            stream, struck = rows_of(self.inputs, order), is_fault.nonzero().flatten()
            originals = rows_of(stream, struck)
            if isinstance(template, Attack):
                assert self.network is not None
                labels = self.labels[order][is_fault]
                changed = template(originals, severity, seed, network=self.network, labels=labels)
            else:
                changed = template(originals, severity, seed)
            return _placed(stream, struck, changed)

        return Scenario(
            name,
            template.category,
            severity,
            self.labels[order],
            is_fault,
            partial(self.last_made.of, name, make),
            digest(self.mark, name, self._attacked(template)),
            order,
        )

    def novel(self, name: str, others: Any) -> Scenario:
        """Every novel row once, and as many known ones as make up `clean_share`, or all there are."""
        generator = torch.Generator().manual_seed(self._seed_of(name))
        count = row_count(others)
        wanted = max(1, round(count * self.clean_share / (1 - self.clean_share)))
        known = torch.randperm(len(self.labels), generator=generator)[:wanted]
        order = torch.randperm(count + len(known), generator=generator)
        labels = torch.cat([torch.full((count,), NO_LABEL), self.labels[known]])
        rows = torch.cat([torch.full((count,), -1), known])

        def make() -> Any:
            familiar = rows_of(self.inputs, known)
            if isinstance(familiar, Tensor):
                return torch.cat([others.to(familiar.dtype), familiar])[order]
            return rows_of([*others, *familiar], order)

        return Scenario(
            name,
            "novelty",
            0,
            labels[order],
            order < count,
            partial(self.last_made.of, name, make),
            digest(self.mark, name, others),
            rows[order],
        )

    def _attacked(self, template: Template | Attack) -> str | None:
        """The network that the rows depend on, where they do."""
        if not isinstance(template, Attack) or self.network is None:
            return None
        return self.network.fingerprint

    def _seed_of(self, name: str) -> int:
        """A seed that depends on the name only, so that choosing fewer faults changes none of the others."""
        return zlib.crc32(f"{self.seed} {name}".encode())


def _placed(stream: Any, rows: Tensor, changed: Any) -> Any:
    """The stream, which is ours, with some rows exchanged."""
    if isinstance(stream, Tensor):
        stream[rows] = changed
        return stream
    for row, text in zip(rows.tolist(), changed, strict=True):
        stream[row] = text
    return stream
