"""VC of the last W certainties, kept up to date row by row.

The W margins lie in three sorted zones: below the central 60 %, central, and above. A row that enters or
leaves changes one place in one zone and moves at most one element over each border, so only a handful of the
log-ratios of Eq. 6 change. A zone is a list of short sorted lists: finding a place takes a number of steps
that grows with log W, and inserting there moves a few hundred pointers, whatever W.

Hand-written because no library keeps a sum over neighbours. The sum is a whole number of 2^-96: adding and
taking away the same term leaves no rounding behind, so after any number of rows the value is that of the rows
in the window, and a window restored from its rows alone continues bit for bit.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from math import ldexp, log
from typing import Any, Self

import numpy as np

from assay.storage import storable
from assay.volatility.certainty import FEWEST, OFFSET, RESOLUTION, central

_LOAD = 1024
"""A short list is split in two when it is twice as long."""
_SCALE = 2.0**96


class Zone:
    """Floats in ascending order."""

    __slots__ = ("lists", "maxima", "size")

    def __init__(self, ascending: Iterable[float] = ()) -> None:
        values = list(ascending)
        self.lists = [values[start : start + _LOAD] for start in range(0, len(values), _LOAD)]
        self.maxima = [part[-1] for part in self.lists]
        self.size = len(values)

    def add(self, value: float) -> None:
        part = bisect_left(self.maxima, value)
        if part == len(self.maxima):
            part -= 1
        self._insert(part, bisect_left(self.lists[part], value) if self.lists else 0, value)

    def remove(self, value: float) -> None:
        """Remove one element that equals `value`, which must be there."""
        part = bisect_left(self.maxima, value)
        self._delete(part, bisect_left(self.lists[part], value))

    def pop_first(self) -> float:
        value = self.lists[0][0]
        self._delete(0, 0)
        return value

    def pop_last(self) -> float:
        value = self.maxima[-1]
        self._delete(len(self.lists) - 1, len(self.lists[-1]) - 1)
        return value

    def _insert(self, part: int, place: int, value: float) -> None:
        """Put `value` before the element at `place` of the list `part`."""
        self.size += 1
        if not self.lists:
            self.lists.append([value])
            self.maxima.append(value)
            return
        values = self.lists[part]
        values.insert(place, value)
        self.maxima[part] = values[-1]
        if len(values) > 2 * _LOAD:
            self.lists.insert(part + 1, values[_LOAD:])
            del values[_LOAD:]
            self.maxima[part : part + 1] = values[-1], self.maxima[part]

    def _delete(self, part: int, place: int) -> None:
        self.size -= 1
        values = self.lists[part]
        del values[place]
        if values:
            self.maxima[part] = values[-1]
        else:
            del self.lists[part], self.maxima[part]


class CentralZone(Zone):
    """A zone that also keeps the sum of Eq. 6 over its neighbours, in units of 2^-96."""

    __slots__ = ("offset", "total")

    def __init__(self, ascending: Iterable[float] = (), offset: float = OFFSET) -> None:
        super().__init__(ascending)
        self.offset = offset
        pairs = pairwise(chain(*self.lists))
        self.total = sum(self._term(lower, upper) for lower, upper in pairs)

    def _insert(self, part: int, place: int, value: float) -> None:
        if self.lists:
            self.total += self._gain(part, place, place, value)
        Zone._insert(self, part, place, value)

    def _delete(self, part: int, place: int) -> None:
        self.total -= self._gain(part, place, place + 1, self.lists[part][place])
        Zone._delete(self, part, place)

    def _gain(self, part: int, left: int, right: int, value: float) -> int:
        """What the sum gains by `value` between the elements before `left` and from `right` on."""
        values = self.lists[part]
        lower: float | None
        upper: float | None
        if left:
            lower = values[left - 1]
        elif part:
            lower = self.maxima[part - 1]
        else:
            lower = None
        if right < len(values):
            upper = values[right]
        elif part + 1 < len(self.lists):
            upper = self.lists[part + 1][0]
        else:
            upper = None
        if lower is None:
            return 0 if upper is None else self._term(value, upper)
        if upper is None:
            return self._term(lower, value)
        term = self._term
        return term(lower, value) + term(value, upper) - term(lower, upper)

    def _term(self, lower: float, upper: float) -> int:
        """Eq. 6 in units of 2^-96."""
        root = log((upper or RESOLUTION) / (lower + self.offset or RESOLUTION))
        return int(root * root * _SCALE)


@storable("volatility.RollingVolatility")
class RollingVolatility:
    """The last `window` margins, in order of arrival and of size, and their VC.

    An update costs a few microseconds whatever the window. Memory is about 50 bytes per row of the window.
    """

    def __init__(self, window: int, margins: Iterable[float] = (), offset: float = OFFSET) -> None:
        self.window = window
        self.arrivals = deque(list(margins)[-window:])
        first, last = central(len(self.arrivals))
        ordered = sorted(self.arrivals)
        self.below = Zone(ordered[: first - 1] if first else ())
        self.central = CentralZone(ordered[max(0, first - 1) : last + 1], offset)
        self.above = Zone(ordered[last + 1 :])
        self.first, self.last = first, last

    def __len__(self) -> int:
        return len(self.arrivals)

    def state(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "margins": np.array(self.arrivals, float),
            "offset": self.central.offset,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        return cls(state["window"], state["margins"].tolist(), state["offset"])

    def extend(self, margins: Iterable[float]) -> None:
        """Add rows one after the other; once the window is full, each pushes the oldest out."""
        arrivals, zone, window = self.arrivals, self._zone, self.window
        below, middle = self.below, self.central
        for margin in margins:
            if len(arrivals) == window:
                oldest = arrivals.popleft()
                zone(oldest).remove(oldest)
            else:
                self.first, self.last = central(len(arrivals) + 1)
            arrivals.append(margin)
            zone(margin).add(margin)
            if below.size != self.first - 1 or middle.size != self.last - self.first + 2:
                self._rebalance()

    @property
    def log_vc(self) -> float:
        """log of Eq. 7 over the rows in the window; NaN below five rows."""
        count = len(self.arrivals)
        if count < FEWEST:
            return float("nan")
        return log(ldexp(self.central.total, -96) / (0.6 * count))

    def _zone(self, margin: float) -> Zone:
        """Where a margin belongs; one that equals a border is also in the central zone."""
        lists = self.central.lists
        if lists and margin < lists[0][0]:
            return self.below
        return self.above if lists and margin > self.central.maxima[-1] else self.central

    def _rebalance(self) -> None:
        """Move elements over the borders until the central zone contains ranks first to last + 1."""
        below, middle, above = self.below, self.central, self.above
        while below.size > self.first - 1:
            middle.add(below.pop_last())
        while below.size < self.first - 1:
            if not middle.size:
                middle.add(above.pop_first())
            below.add(middle.pop_first())
        while middle.size > self.last - self.first + 2:
            above.add(middle.pop_last())
        while middle.size < self.last - self.first + 2:
            middle.add(above.pop_first())
