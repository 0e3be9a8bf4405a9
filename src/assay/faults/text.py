"""Faults of texts: slips of the keyboard and the scanner, words lost or out of order, and texts cut short.

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

_PAIRS = "l1 I1 o0 O0 s5 S5 b6 B8 g9 q9 z2 Z2 ec uv hb"
MISREAD = np.array([[ord(letter) for letter in pair] for pair in _PAIRS.split()])
"""What scanners read as what."""

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
    characters, lengths = _characters(texts)
    changed = _chosen(lengths, share, generator)
    slip = generator.integers(0, 3, len(characters))
    letters = LETTERS[generator.integers(0, len(LETTERS), len(characters))]
    replaced = np.where(changed & (slip == 0), letters, characters)
    copies = np.where(changed & (slip > 0), (slip == 2) * 2, 1)
    joined = _decoded(replaced.repeat(copies))
    return _cut(joined, np.cumsum(_sums(copies, lengths)))


def word_noise(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """5, 10, 20, 40 or 60 % of the words of each text are left out, doubled or exchanged for others."""
    flat, lengths = _words(texts)
    changed = _chosen(lengths, _SHARES[severity - 1], generator)
    slip = generator.integers(0, 3, len(flat))
    others = flat[generator.permutation(len(flat))]
    flat = np.where(changed & (slip == 0), others, flat)
    copies = np.where(changed & (slip > 0), (slip == 2) * 2, 1)
    return _texts(flat.repeat(copies), _sums(copies, lengths))


def misread_letters(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """10, 20, 40, 70 or 100 % of the letters that scanners misread are misread: l as 1, o as 0, e as c."""
    characters, lengths = _characters(texts)
    alike = np.isin(characters, MISREAD[:, 0])
    struck = alike.nonzero()[0][_chosen(_sums(alike, lengths), _RISING[severity - 1], generator)]
    order = MISREAD[:, 0].argsort()
    result = characters.copy()
    result[struck] = MISREAD[order, 1][np.searchsorted(MISREAD[order, 0], characters[struck])]
    return _cut(_decoded(result), np.cumsum(lengths))


def lost_spaces(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """10, 20, 40, 70 or 100 % of the spaces between words are missing."""
    flat, lengths = _words(texts)
    gaps = _followed(lengths)
    lost = gaps[_chosen(np.maximum(lengths - 1, 0), _RISING[severity - 1], generator)]
    spaces = np.full(len(flat), "", dtype=object)
    spaces[gaps] = " "
    spaces[lost] = ""
    return ["".join(part) for part in _cut(flat + spaces, np.cumsum(lengths))]


def word_order(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """20, 40, 60, 80 or 100 % of the pairs of neighbours have changed places."""
    flat, lengths = _words(texts)
    gaps = _followed(lengths)
    starts = _starts(lengths).repeat(np.maximum(lengths - 1, 0))
    pairs = gaps[(gaps - starts) % 2 == 0]
    one = pairs[_chosen(lengths // 2, severity / 5, generator)]
    swapped = flat.copy()
    swapped[one], swapped[one + 1] = flat[one + 1], flat[one]
    return _texts(swapped, lengths)


def letter_case(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """20, 40, 60, 80 or 100 % of the words are written with the shift key stuck: capital for small."""
    flat, lengths = _words(texts)
    struck = _chosen(lengths, severity / 5, generator)
    flat[struck] = [word.swapcase() for word in flat[struck]]
    return _texts(flat, lengths)


def lost_words(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """5, 10, 20, 40 or 60 % of the words of each text are missing; one is always left."""
    flat, lengths = _words(texts)
    kept = ~_chosen(lengths, _SHARES[severity - 1], generator)
    left = _sums(kept, lengths)
    kept[_starts(lengths)[(left == 0) & (lengths > 0)]] = True
    return _texts(flat[kept], _sums(kept, lengths))


def repeated_words(texts: list[str], severity: int, generator: np.random.Generator) -> list[str]:
    """5, 10, 20, 40 or 60 % of the words repeat the one before, as from a source that is stuck."""
    flat, lengths = _words(texts)
    before = _followed(lengths)[_chosen(np.maximum(lengths - 1, 0), _SHARES[severity - 1], generator)]
    result = flat.copy()
    result[before + 1] = flat[before]
    return _texts(result, lengths)


def truncation(texts: list[str], severity: int, _: np.random.Generator) -> list[str]:
    """Only the first 80, 60, 40, 25 or 10 % of the words of each text arrive, at least one."""
    words = [text.split() for text in texts]
    return [" ".join(part[: max(1, round(_KEPT[severity - 1] * len(part)))]) for part in words]


def lost_start(texts: list[str], severity: int, _: np.random.Generator) -> list[str]:
    """Only the last 80, 60, 40, 25 or 10 % of the words of each text arrive, at least one."""
    words = [text.split() for text in texts]
    return [" ".join(part[-max(1, round(_KEPT[severity - 1] * len(part))) :]) for part in words]


_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)
_RISING = (0.1, 0.2, 0.4, 0.7, 1.0)
_KEPT = (0.8, 0.6, 0.4, 0.25, 0.1)


def _characters(texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """All characters, and how many each text has."""
    joined = "".join(texts).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(joined, dtype=np.uint32), np.array([len(text) for text in texts])


def _decoded(characters: NDArray[np.uint32]) -> str:
    return characters.tobytes().decode("utf-32-le", "surrogatepass")


def _words(texts: list[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """All words, and how many each text has."""
    words = [text.split() for text in texts]
    flat = np.array([word for part in words for word in part], dtype=object)
    return flat, np.array([len(part) for part in words])


def _texts(flat: NDArray[Any], lengths: NDArray[Any]) -> list[str]:
    return [" ".join(part) for part in _cut(flat, np.cumsum(lengths))]


def _sums(values: NDArray[Any], lengths: NDArray[Any]) -> NDArray[Any]:
    """The sum of the values of each text."""
    sums: NDArray[Any] = np.add.reduceat(np.append(values, 0), _starts(lengths)) * (lengths > 0)
    return sums


def _followed(lengths: NDArray[Any]) -> NDArray[Any]:
    """The places of the words that are followed by another in their text."""
    ends = np.zeros(int(lengths.sum()) + 1, dtype=bool)
    ends[np.cumsum(lengths)[lengths > 0] - 1] = True
    places: NDArray[Any] = (~ends[:-1]).nonzero()[0]
    return places


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
        TextFault("lost_spaces", "noise", lost_spaces),
        TextFault("word_order", "noise", word_order),
        TextFault("misread_letters", "shift", misread_letters),
        TextFault("letter_case", "shift", letter_case),
        TextFault("lost_words", "anomaly", lost_words),
        TextFault("repeated_words", "anomaly", repeated_words),
        TextFault("truncation", "anomaly", truncation),
        TextFault("lost_start", "anomaly", lost_start),
    )
}
