"""The order in which an annotator sees the items: random, different for each, with a few hidden repeats."""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

GAP = 10
"""At least this many other items come between the two showings of one, if there are enough."""


class Turn(NamedTuple):
    """One showing of an item: repeat 0 is the first, 1 the hidden second."""

    item: int
    repeat: int = 0


def order_of(items: Sequence[int], annotator: str, seed: int, repeats: float) -> list[Turn]:
    """Every item once, and a share of them twice, in an order that depends on annotator and seed alone.

    >>> [turn.item for turn in order_of([7, 8, 9], "ann", 0, 0.0)]
    [8, 7, 9]
    """
    words = hashlib.blake2b(f"{seed}\n{annotator}".encode(), digest_size=8).digest()
    generator = np.random.default_rng(int.from_bytes(words))
    first = [Turn(items[place]) for place in generator.permutation(len(items))]
    again = generator.choice(len(first), size=math.ceil(repeats * len(first)), replace=False)
    after: dict[int, list[Turn]] = {}
    for place in sorted(int(place) for place in again):
        earliest = min(place + GAP, len(first) - 1)
        later = int(generator.integers(earliest, len(first)))
        after.setdefault(later, []).append(Turn(first[place].item, 1))
    return [shown for place, turn in enumerate(first) for shown in (turn, *after.get(place, ()))]
