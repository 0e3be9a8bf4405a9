"""Everything a MIRA score depends on besides networks and data, checked before any work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from assay.errors import InputError
from assay.faults.norms import Norm, check_norm
from assay.mira.distance import FeatureDistance, Reference, Still
from assay.mira.perturbation import Attack, checked_attack
from assay.mira.weights import Weight
from assay.statistics import check_level

Form = Literal["squared", "literal"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of `mira_score`; their meaning is stated there."""

    accuracy_threshold: float = 0.5
    steps: int = 30
    seed: int = 0
    epsilon_range: tuple[float, float] | None = None
    weight: Weight | None = None
    perturbation: Attack = "fgsm"
    norm: Norm = "linf"
    low: float | None = None
    high: float | None = None
    covariance: str = "tied"
    estimator: str = "empirical"
    reference: Reference = "nearest"
    still: Still = "drop"
    form: Form = "squared"
    tolerance: float = 5e-3
    resamples: int = 1000
    level: float = 0.95

    def __post_init__(self) -> None:
        check_norm(self.norm)
        checked_attack(self.perturbation)
        self.distance(["penultimate"])
        _between(self.accuracy_threshold, "accuracy_threshold", 0, 1)
        check_level(self.level)
        _between(self.tolerance, "tolerance", 0, 1)
        if self.steps < 1 or self.resamples < 1:
            raise InputError(
                f"expected at least one step and one resample, got {self.steps} and {self.resamples}"
            )
        if self.form not in ("squared", "literal"):
            raise InputError(f"expected form to be 'squared' or 'literal', got {self.form!r}")
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low < high:
            raise InputError(
                f"expected low below high, got {self.low} and {self.high}; pass the smallest and the largest "
                "value that an input may take"
            )
        if self.epsilon_range is not None:
            _check_range(self.epsilon_range)

    def distance(self, layers: Sequence[str]) -> FeatureDistance:
        return FeatureDistance(
            layers,
            covariance=self.covariance,
            estimator=self.estimator,
            reference=self.reference,
            still=self.still,
        )


def _between(value: float, name: str, low: float, high: float) -> None:
    if not low < value < high:
        raise InputError(f"expected {name} between {low} and {high}, got {value}")


def _check_range(bounds: tuple[float, float]) -> None:
    if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1] < float("inf"):
        raise InputError(
            f"expected epsilon_range as (smallest, largest) with 0 < smallest <= largest, got {bounds!r}"
        )
