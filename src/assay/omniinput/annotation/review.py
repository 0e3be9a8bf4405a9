"""Reviews: the answer that counts for an item on which annotators disagree."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

APART = 0.5
"""Scores of two annotators at least this far apart are a disagreement: half the scale."""


def counted(labels: pd.DataFrame) -> pd.DataFrame:
    """The labels that count: of an item with a review the review alone, of any other all.

    >>> labels = pd.DataFrame({"item": [1, 1, 1, 2], "score": [0, 1, 1, 0], "reviewed": [0, 0, 1, 0]})
    >>> counted(labels).index.tolist()
    [2, 3]
    """
    reviewed = is_review(labels)
    return labels[reviewed | ~labels["item"].isin(labels["item"][reviewed])] if reviewed.any() else labels


def by_annotators(labels: pd.DataFrame) -> pd.DataFrame:
    """The labels without the reviews."""
    return labels[~is_review(labels)]


def is_review(labels: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows are reviews."""
    if "reviewed" not in labels:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(labels["reviewed"].fillna(False).astype(bool))


def disagreements(labels: pd.DataFrame) -> list[int]:
    """The items on whose first showing two annotators are at least `APART`, the furthest apart first.

    >>> scores = {"item": [1, 1, 2, 2, 3], "score": [0.0, 0.5, 1.0, 0.0, 1.0], "repeat": 0}
    >>> disagreements(pd.DataFrame(scores))
    [2, 1]
    """
    first = by_annotators(labels).query("repeat == 0")
    scores = first.groupby("item")["score"]
    apart = scores.max() - scores.min()
    return [int(item) for item in apart[apart >= APART].sort_values(ascending=False, kind="stable").index]
