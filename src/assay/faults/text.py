"""Faults of texts: slips of the keyboard, words lost or out of order, and texts cut short.

Texts are joined into one array of characters or words and changed together. With one seed, the places changed
at one severity are changed at all higher ones. Every text with something to change is changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.faults.template import check_severity

LETTERS = np.frombuffer("abcdefghijklmnopqrstuvwxyz".encode("utf-32-le"), dtype=np.uint32)


@dataclass(frozen=True)
class TextFault:
    """A fault of a list of texts."""

    name: str
    category: str
    corrupt: Callable[[list[str], int, np.random.Generator], list[str]]
    kind: str = "text"

    def __call__(self, inputs: Sequence[str], severity: int, seed: int = 0) -> list[str]:
        check_severity(severity)
        if isinstance(inputs, str) or not len(inputs) or not all(isinstance(text, str) for text in inputs):
            raise InputError("expected a list of at least one text; pass strings, not token ids")
        return self.corrupt(list(inputs), severity, np.random.default_rng(seed))


def character_noise(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """2, 5, 10, 20 or 30 % of the characters of each text are replaced by a letter, left out or doubled."""
    share = (0.02, 0.05, 0.1, 0.2, 0.3)[severity - 1]
    lengths = np.array([len(text) for text in texts])
    characters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    changed = _chosen(lengths, share, generator)
    slip = generator.integers(0, 3, len(characters))
    letters = LETTERS[generator.integers(0, len(LETTERS), len(characters))]
    replaced = np.where(changed & (slip == 0), letters, characters)
    copies = np.where(changed & (slip > 0), (slip == 2) * 2, 1)
    joined = replaced.repeat(copies).tobytes().decode("utf-32-le", "surrogatepass")
    ends = np.cumsum(np.add.reduceat(np.append(copies, 0), _starts(lengths)) * (lengths > 0))
    return _cut(joined, ends)


def word_noise(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """5, 10, 20, 40 or 60 % of the words of each text are left out, doubled or exchanged for others."""
    share = (0.05, 0.1, 0.2, 0.4, 0.6)[severity - 1]
    words = [text.split() for text in texts]
    lengths = np.array([len(part) for part in words])
    flat = np.array([word for part in words for word in part], dtype=object)
    changed = _chosen(lengths, share, generator)
    slip = generator.integers(0, 3, len(flat))
    others = flat[generator.permutation(len(flat))]
    flat = np.where(changed & (slip == 0), others, flat)
    copies = np.where(changed & (slip > 0), (slip == 2) * 2, 1)
    ends = np.cumsum(np.add.reduceat(np.append(copies, 0), _starts(lengths)) * (lengths > 0))
    return [" ".join(part) for part in _cut(flat.repeat(copies), ends)]


def truncation(texts: list[str], severity: int, _: np.random.Generator) -> list[str]:
    """Only the first 80, 60, 40, 25 or 10 % of the words of each text arrive, at least one."""
    share = (0.8, 0.6, 0.4, 0.25, 0.1)[severity - 1]
    words = [text.split() for text in texts]
    return [" ".join(part[: max(1, round(share * len(part)))]) for part in words]


def _chosen(lengths: NDArray[Any], share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Mask of a share of the items of every text, rounded up, by their random rank within it."""
    text = np.arange(len(lengths)).repeat(lengths)
    order = np.lexsort((generator.random(len(text)), text))
    rank = np.empty(len(text), dtype=np.int64)
    rank[order] = np.arange(len(text)) - _starts(lengths)[text]
    return rank < np.ceil(share * lengths)[text]


def _starts(lengths: NDArray[Any]) -> NDArray[Any]:
    starts: NDArray[Any] = np.cumsum(lengths) - lengths
    return starts


def _cut(joined: Any, ends: NDArray[Any]) -> list[Any]:
    bounds = [0, *ends.tolist()]
    return [joined[start:end] for start, end in pairwise(bounds)]


TEXT = {
    fault.name: fault
    for fault in (
        TextFault("character_noise", "noise", character_noise),
        TextFault("word_noise", "noise", word_noise),
        TextFault("truncation", "anomaly", truncation),
    )
}
