"""Audit: a judge in code or a model as judge, corrected by people who judged some of the same inputs.

A judge that costs nothing scores every kept input, but it is wrong in its own way. People score a random part
of them. The precision of a bin is share x (the judge's mean over all inputs) + the mean of (people - share x
judge) over the audited ones: unbiased however bad the judge is, and as certain as the judge is right
(prediction-powered inference, Angelopoulos et al. 2023). The share of trust is that of least variance (power
tuning, PPI++, Angelopoulos et al. 2023b, Eq. 5, in the form where the audited inputs are some of those the
judge scored): the slope of people's scores on the judge's within bins. Bins are strata.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.omniinput.annotation.scores import Annotations, Scores, scores_of
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.storage import storable

Array = NDArray[np.float64]


@storable("omniinput.AuditSummary")
@dataclass(frozen=True)
class AuditSummary:
    """How the judge did: inputs judged and audited, the share of trust, and its mean error.

    `bias` is the mean of judge minus people over the audited inputs, every bin counting alike.
    """

    judged: int
    audited: int
    share: float
    bias: float


@dataclass(frozen=True, eq=False)
class Audit:
    """The judge's scores of all inputs, people's of some, and the judge's of these (`guesses`)."""

    judged: Scores
    people: Scores
    guesses: Array

    @property
    def share(self) -> float:
        """How far the judge is trusted, 0 to 1: the slope of people's scores on its own, pooled over bins."""
        weights, bins = self.people.item_weights, self.people.item_bins
        people, guesses = (_centred(one, weights, bins) for one in (self.people.item_scores, self.guesses))
        spread = float((weights * guesses**2).sum())
        if spread < 1e-12:
            return 1.0
        return float(np.clip((weights * people * guesses).sum() / spread, 0.0, 1.0))

    def judge_part(self, bins: int) -> Array:
        """The judge's own precision of every bin, times the share."""
        return self.share * self.judged.bin_precision(bins)

    @property
    def corrections(self) -> Scores:
        """Labels that say what the trusted share of the judge leaves out; from -1 to 1."""
        left = self.people.label_scores - self.share * self.guesses[self.people.label_items]
        return replace(self.people, label_scores=left)

    def bin_precision(self, bins: int) -> Array:
        """The corrected precision of every audited bin."""
        return np.clip(self.judge_part(bins) + self.corrections.bin_precision(bins), 0.0, 1.0)

    def summary(self) -> AuditSummary:
        apart = replace(self.people, label_scores=self.guesses[self.people.label_items])
        bins = int(self.people.item_bins.max()) + 1
        bias = np.nanmean(apart.bin_precision(bins) - self.people.bin_precision(bins))
        return AuditSummary(
            len(self.judged.item_bins), len(self.people.item_bins), self.share, round(float(bias), 12)
        )


def audit_of(dist: OutputDistribution, annotations: Annotations, audit: pd.DataFrame) -> Audit:
    """The judge's scores and people's of the same kept inputs, matched by their rows."""
    if not isinstance(audit, pd.DataFrame):
        raise InputError(
            f"expected audit= as a DataFrame of people's labels, got {type(audit).__name__}; read a store or "
            "a file with assay.read_annotations, and pass the judge as annotations"
        )
    judged, people = scores_of(dist, annotations), scores_of(dist, audit)
    place = np.full(len(dist.kept.bins) + 1, -1)
    place[judged.item_rows] = np.arange(len(judged.item_rows))
    found = place[people.item_rows]
    missing = int(((found < 0) | (people.item_rows < 0)).sum())
    if missing:
        raise InputError(
            f"expected audited inputs among those that the judge scored, with their rows, got {missing} of "
            f"{len(found)} without; label inputs of choose_items and let the judge score every kept input"
        )
    return Audit(judged, people, judged.item_scores[found])


def _centred(values: Array, weights: Array, bins: NDArray[np.int64]) -> Array:
    """Less the weighted mean of their bin."""
    totals = np.bincount(bins, weights=weights)
    means = np.bincount(bins, weights=weights * values) / np.maximum(totals, 1e-300)
    return np.asarray(values - means[bins])
