"""MiraResult: the score, the range it was measured over, and how certain it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from assay.mira.figures import class_figure, curve_figure, feature_figure
from assay.notebook import Shown
from assay.statistics import Measured
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("mira.FeatureSample")
@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Features of a few test inputs before and after the smallest perturbation, for the t-SNE figure."""

    clean: Tensor
    perturbed: Tensor
    labels: Tensor
    correct: Tensor
    """Whether the perturbed inputs are still classified correctly."""


@storable("MiraResult")
@dataclass(frozen=True, eq=False)
class MiraResult(Shown):
    """How much more surprising features become as inputs approach and cross the decision boundary.

    `curve` has a row per step: epsilon, weight, surprisal (mean, in nats), accuracy. `per_class` has a row
    per label: label, inputs, baseline, score, lower, upper, accuracy (clean), accuracy_at_epsilon_min.
    `interval`, at `level`, says how the score varies with the test inputs; the fitted features and the range
    are taken as they are. `draws` are the bootstrap scores behind it. `warnings` are sentences to read.
    """

    title: ClassVar[str] = "How monitorable is this network?"

    score: float
    epsilon_min: float
    epsilon_max: float
    baseline: float
    curve: pd.DataFrame
    per_class: pd.DataFrame
    interval: tuple[float, float]
    level: float
    accuracy: float
    accuracy_threshold: float
    layer: str
    dimensions: int
    fitted_rows: int
    warnings: tuple[str, ...]
    draws: NDArray[np.float64]
    sample: FeatureSample

    def summary(self) -> str:
        low, high = self.interval
        verdict = (
            "Inputs that were pushed across its decision boundary look more unusual from inside than clean "
            "ones."
            if low > 0
            else "Inputs that were pushed across its decision boundary look no more unusual from inside than "
            "clean ones."
            if high <= 0
            else "The interval contains 0: these test inputs do not show whether inputs pushed across its "
            "decision boundary look unusual from inside."
        )
        weakest = self.per_class.iloc[int(self.per_class["score"].fillna(np.inf).argmin())]
        words = (
            f"The MIRA score at layer {self.layer} is {self.score:.4g} ({self.level:.0%} interval "
            f"{low:.4g} to {high:.4g}): perturbed inputs are on average {1 + self.score:.4g} times as "
            f"surprising as clean ones. {verdict} The weakest class is {weakest['label']:.0f} "
            f"({weakest['score']:.4g}). Compare scores only at the same accuracy threshold "
            f"({self.accuracy_threshold:.0%}). Whether monitors will detect failures is another question: on "
            "networks that the score was not chosen on it did not predict that; assay.monitorability does "
            "better (docs/monitorability.md)."
        )
        return " ".join([words, *(f"Note: {warning}." for warning in self.warnings)])

    def measures(self) -> list[Measured]:
        """What two results are compared by."""
        return [Measured(f"MIRA score of layer {self.layer}", self.score, self.interval)]

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """The score and what it depends on, in one row."""
        return pd.DataFrame(
            [
                {
                    "layer": self.layer,
                    "score": self.score,
                    "lower": self.interval[0],
                    "upper": self.interval[1],
                    "baseline": self.baseline,
                    "epsilon_min": self.epsilon_min,
                    "epsilon_max": self.epsilon_max,
                    "accuracy": self.accuracy,
                    "accuracy_threshold": self.accuracy_threshold,
                    "dimensions": self.dimensions,
                    "fitted_rows": self.fitted_rows,
                    "warnings": "; ".join(self.warnings),
                }
            ]
        )

    def plot(self) -> "Figure":
        """Mean surprisal and accuracy against epsilon."""
        return curve_figure(self.curve, self.baseline, self.accuracy)

    def figures(self) -> list["Figure"]:
        """The curve, the score of each class, and a t-SNE map of features, clean and perturbed."""
        sample = self.sample
        return [
            self.plot(),
            class_figure(self.per_class, self.score),
            feature_figure(sample.clean, sample.perturbed, sample.labels, sample.correct),
        ]
