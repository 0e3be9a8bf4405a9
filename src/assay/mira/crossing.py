"""The smallest perturbation that brings accuracy down to a threshold, by bracketing and bisection."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from assay.errors import InputError, UndecidedError

Accuracy = Callable[[float], float]


@dataclass(frozen=True)
class Crossing:
    """Accuracy is above the threshold at `below` and at or under it at `epsilon`."""

    epsilon: float
    below: float
    evaluations: int


def first_crossing(
    accuracy: Accuracy,
    clean: float,
    threshold: float,
    *,
    start: float,
    limit: float,
    growth: float = 2.0,
    tolerance: float = 1e-3,
) -> Crossing:
    """The smallest epsilon with accuracy(epsilon) <= threshold, to within `tolerance` times itself.

    From `start`, epsilon grows or shrinks by `growth` (and soon by 2) until the threshold lies between two
    values. This bracket is then cut where a straight line between its ends meets the threshold, and in half
    whenever that gains little. Both ends of the answer are measured. If accuracy rises again along the
    attack, a dip between two of the values tried while bracketing goes unseen.

    >>> first_crossing(lambda e: 1 - e, 1.0, 0.5, start=0.1, limit=10.0).epsilon
    0.5
    """
    if clean <= threshold:
        raise UndecidedError(
            f"expected accuracy on clean inputs above the threshold {threshold:g}, got {clean:.4g}; "
            "train the network further, or lower accuracy_threshold for all networks you compare"
        )
    bracket = _Bracket(accuracy, threshold, {0.0: clean})
    _enclose_crossing(bracket, start, limit, growth)
    turn = 0
    while bracket.width > tolerance * bracket.high:
        before = bracket.width
        bracket.measure(bracket.between(tolerance) if turn % 3 < 2 else (bracket.low + bracket.high) / 2)
        turn = turn + 1 if bracket.width > before / 2 else 0
    return Crossing(bracket.high, bracket.low, len(bracket.values) - 1)


class _Bracket:
    """Accuracies measured so far, and the bracket around the crossing."""

    def __init__(self, accuracy: Accuracy, threshold: float, values: dict[float, float]) -> None:
        self._accuracy = accuracy
        self._threshold = threshold
        self.values = values
        self.low, self.high = 0.0, float("inf")

    def measure(self, epsilon: float) -> bool:
        """Whether accuracy is still above the threshold there; the bracket follows."""
        self.values[epsilon] = self._accuracy(epsilon)
        above = self.values[epsilon] > self._threshold
        if above:
            self.low = max(self.low, epsilon)
        else:
            self.high = min(self.high, epsilon)
        return above

    def never_fell(self, limit: float) -> NoReturn:
        lowest = min(self.values, key=lambda epsilon: self.values[epsilon])
        raise UndecidedError(
            f"expected accuracy to fall to {self._threshold:g} under perturbation, but it never did: the "
            f"lowest was {self.values[lowest]:.4g} at epsilon {lowest:.4g}, the largest tried {limit:.4g}; "
            "raise accuracy_threshold for all networks you compare, or pass epsilon_range"
        )

    @property
    def width(self) -> float:
        return self.high - self.low

    def between(self, tolerance: float) -> float:
        """Where the straight line meets the threshold, but no nearer to an end than just under `tolerance`:
        one more measurement beyond a good guess then closes the bracket."""
        top, bottom = self.values[self.low], self.values[self.high]
        guess = self.low + self.width * (top - self._threshold) / (top - bottom)
        margin = min(0.9 * tolerance * self.high, self.width / 2)
        return min(max(guess, self.low + margin), self.high - margin)


def _enclose_crossing(bracket: _Bracket, start: float, limit: float, growth: float) -> None:
    epsilon = min(start, limit)
    if bracket.measure(epsilon):
        while bracket.high > limit and epsilon < limit:
            epsilon = min(epsilon * growth, limit)
            growth = _next_growth(growth)
            bracket.measure(epsilon)
        if bracket.high > limit:
            bracket.never_fell(limit)
        return
    while bracket.low == 0 and epsilon > 1e-9 * start:
        epsilon /= growth
        growth = _next_growth(growth)
        bracket.measure(epsilon)
    if bracket.low == 0:
        raise InputError(
            f"expected accuracy to fall gradually, but it is {bracket.values[epsilon]:.4g} at epsilon "
            f"{epsilon:.3g} already; check that the inputs lie within the bounds given for them"
        )


def _next_growth(growth: float) -> float:
    """The square, up to 2: short first steps in case the start is a good guess, then long ones."""
    return min(growth * growth, max(growth, 2.0))
