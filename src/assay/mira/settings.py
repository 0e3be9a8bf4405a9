"""The options of MIRA: stated, documented and checked here, and shown by every function that takes them."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from assay.errors import InputError
from assay.faults.norms import Norm, check_norm
from assay.mira.distance import FeatureDistance, FitOn, ReferenceClass, Still
from assay.mira.perturbation import PerturbationMethod, check_method
from assay.mira.weights import Weight
from assay.statistics import check_level

SurprisalForm: TypeAlias = Literal["squared", "literal"]

AUTHORS_CODE: dict[str, Any] = {"reference": "label", "covariance": "per_class", "fit_on": "correct"}
"""What the authors' public code does and the paper does not say (May 2025, before the surprisal form).

It also clamps perturbed inputs to [0, 1]: pass `low=0, high=1` for images.
"""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class MiraSettings:
    """Everything a MIRA score depends on besides network, layer and data; checked before any work."""

    accuracy_threshold: float = 0.5
    """The range of perturbations starts where accuracy has fallen to this."""
    steps: int = 30
    """Number of perturbation sizes in the range."""
    seed: int = 0
    """Seed of the bootstrap, of random signs, and of the sample on which the range is first searched."""
    epsilon_range: tuple[float, float] | None = None
    """(smallest, largest) perturbation size, instead of searching for it."""
    weight: Weight | None = None
    """p(epsilon) of Eq. 4: a density over the range, or one weight per step. None weighs all alike."""
    perturbation: PerturbationMethod = "fgsm"
    """An attack by name, "fgsm", "pgd" or "random_sign", or a function of your own (`PerturbationMethod`)."""
    norm: Norm = "linf"
    """Measure of the size of a perturbation: "linf", "l2" or "l1"."""
    low: float | None = None
    """Smallest value that a perturbed input may take."""
    high: float | None = None
    """Largest value that a perturbed input may take."""
    covariance: str = "tied"
    """One covariance for all classes ("tied"), or one for each ("per_class")."""
    estimator: str = "empirical"
    """Estimator of the covariance: "empirical", "ledoit_wolf" or "oas"."""
    reference: ReferenceClass = "nearest"
    """The class that distances are measured to: the "nearest", the "predicted" one, or the "label"."""
    fit_on: FitOn = "all"
    """Training rows that features are fitted on: "all", or those that the network gets right, "correct"."""
    still: Still = "drop"
    """Either "drop" or "shrink" directions in which training features do not vary, such as dead neurons."""
    form: SurprisalForm = "squared"
    """Surprisal of the "squared" distance, or Eq. 3 as printed: "literal"."""
    tolerance: float = 5e-3
    """Relative error allowed in the smallest perturbation size."""
    resamples: int = 1000
    """Number of bootstrap draws for the intervals."""
    level: float = 0.95
    """Probability with which the intervals hold."""

    def __post_init__(self) -> None:
        check_norm(self.norm)
        check_method(self.perturbation)
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
            fit_on=self.fit_on,
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


def shows_mira_options(function: Function) -> Function:
    """Show the fields of MiraSettings in the signature of a function that passes `**options` to it."""
    own = inspect.signature(function)
    stated = [parameter for name, parameter in own.parameters.items() if name != "options"]
    options = inspect.signature(MiraSettings).parameters.values()
    function.__signature__ = own.replace(parameters=[*stated, *options])  # type: ignore[attr-defined]
    return function
