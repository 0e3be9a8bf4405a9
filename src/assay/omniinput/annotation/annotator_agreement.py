"""annotator_agreement: how far annotators agree with each other and with themselves."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.notebook import Shown
from assay.omniinput.annotation.review import by_annotators
from assay.statistics import percentile_interval
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

METRICS = ("interval", "ordinal", "nominal")
RESAMPLES = 500


@storable("AnnotatorAgreement")
@dataclass(frozen=True, eq=False)
class AnnotatorAgreement(Shown):
    """Krippendorff's alpha over items judged by several annotators, and the consistency of each annotator.

    An alpha of 1 is perfect agreement, 0 is chance. `interval` is its 95 % interval from resampling items.
    `people` has a row per annotator: labels, mean score, mean difference from the others on shared items,
    hidden repeats and the mean difference between the two showings.
    """

    title: ClassVar[str] = "Agreement between annotators"

    krippendorff_alpha: float
    interval: tuple[float, float]
    shared: int
    people: pd.DataFrame

    def summary(self) -> str:
        if not self.shared:
            return "No input was judged by more than one annotator, so their agreement is unknown."
        lower, upper = self.interval
        words = (
            f"On {self.shared} inputs judged by several, Krippendorff's alpha is "
            f"{self.krippendorff_alpha:.2f} (95 % interval {lower:.2f} to {upper:.2f}; 1 is perfect "
            "agreement, 0 chance)."
        )
        repeated = int(self.people["repeats"].sum())
        if repeated:
            weights = self.people["repeats"].to_numpy(dtype=np.float64)
            apart = np.nansum(self.people["self_difference"].to_numpy() * weights) / repeated
            words += f" Scores of {repeated} inputs shown twice differ by {apart:.2f} on average."
        return words

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per annotator."""
        return self.people

    def plot(self) -> "Figure":
        """How far each annotator scores above or below the others."""
        from matplotlib.figure import Figure

        from assay.omniinput.sampling.figures import BLUE, GREY

        figure = Figure(figsize=(7, 0.4 * len(self.people) + 1.2), layout="constrained")
        axes = figure.add_subplot()
        axes.barh(self.people["annotator"], self.people["difference"].fillna(0.0), color=BLUE)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.set_xlabel("mean score minus that of the others, on shared inputs")
        axes.set_title(self.title)
        return figure


def annotator_agreement(labels: pd.DataFrame, metric: str = "interval", seed: int = 0) -> AnnotatorAgreement:
    """The agreement in labels with columns item, annotator, score and, for self-consistency, repeat."""
    missing = [name for name in ("item", "annotator", "score") if name not in labels]
    if missing:
        raise InputError(
            f"expected labels with columns item, annotator and score, got no {' and '.join(missing)}; "
            "agreement needs to know who judged what"
        )
    given = by_annotators(labels)  # a review is made with the others' scores in view
    scored = given[given["score"].notna()]
    first = scored[scored["repeat"] == 0] if "repeat" in scored else scored
    table = first.pivot_table(index="item", columns="annotator", values="score", aggfunc="first")
    ratings = table.to_numpy(dtype=np.float64)
    several = ratings[(~np.isnan(ratings)).sum(axis=1) > 1]
    alpha = krippendorff_alpha(several, metric)
    generator = np.random.default_rng(seed)
    resamples = [
        krippendorff_alpha(several[generator.integers(len(several), size=len(several))], metric)
        for _ in range(RESAMPLES if len(several) > 1 else 0)
    ]
    finite = np.array([value for value in resamples if not np.isnan(value)])
    interval = percentile_interval(finite) if len(finite) else (np.nan, np.nan)
    return AnnotatorAgreement(alpha, interval, len(several), _people(scored, table))


def krippendorff_alpha(ratings: Array, metric: str = "interval") -> float:
    """1 - observed / expected disagreement of ratings (units, observers), in which NaN is a missing rating.

    Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): units with one rating do not count, and
    each ordered pair of a unit with m ratings counts 1 / (m - 1). The result is NaN if all ratings are equal.
    """
    if metric not in METRICS:
        raise InputError(f"expected a metric among {', '.join(METRICS)}, got {metric!r}")
    present = ~np.isnan(ratings)
    paired = present & (present.sum(axis=1, keepdims=True) > 1)
    values = np.unique(ratings[paired])
    if len(values) < 2:
        return float("nan")
    codes = np.searchsorted(values, np.where(paired, ratings, values[0]))
    by_value = [((codes == code) & paired).sum(axis=1) for code in range(len(values))]
    counts = np.stack(by_value, axis=1).astype(np.float64)
    counts = counts[counts.sum(axis=1) > 1]
    pairs = counts[:, :, None] * counts[:, None, :] - np.eye(len(values)) * counts[:, :, None]
    coincidences = (pairs / (counts.sum(axis=1) - 1)[:, None, None]).sum(axis=0)
    totals = coincidences.sum(axis=1)
    distance = _distance(values, totals, metric)
    expected = (np.outer(totals, totals) * distance).sum() / (totals.sum() - 1)
    return float(1 - (coincidences * distance).sum() / expected)


def _distance(values: Array, totals: Array, metric: str) -> Array:
    """Squared differences between two ratings."""
    if metric == "nominal":
        return 1 - np.eye(len(values))
    if metric == "interval":
        return np.asarray((values[:, None] - values) ** 2)
    middle = np.cumsum(totals) - totals / 2  # ordinal: by how many ratings lie between the two
    return np.asarray((middle[:, None] - middle) ** 2)


def _people(labels: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for name in table.columns:
        others = table.drop(columns=name).mean(axis=1)
        twice = _shown_twice(labels[labels["annotator"] == name])
        rows.append(
            {
                "annotator": str(name),
                "labels": int(table[name].notna().sum()),
                "mean_score": float(table[name].mean()),
                "difference": float((table[name] - others).mean()),
                "repeats": len(twice),
                "self_difference": float(twice.mean()) if len(twice) else float("nan"),
            }
        )
    return pd.DataFrame(rows)


def _shown_twice(labels: pd.DataFrame) -> "pd.Series[float]":
    """|first - second| score of the inputs shown twice."""
    if "repeat" not in labels:
        return pd.Series(dtype=np.float64)
    both = labels.pivot_table(index="item", columns="repeat", values="score", aggfunc="first")
    return (both[0] - both[1]).abs().dropna() if {0, 1} <= set(both) else pd.Series(dtype=np.float64)
