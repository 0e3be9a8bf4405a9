"""Can a layer predict the network's own errors? Definition 1 of the MIRA paper, measured."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from assay.errors import InputError, UndecidedError
from assay.faults.lessons import labelled_rows
from assay.mira.panel_figures import visibility_figure
from assay.mira.sweep import watching
from assay.monitors import MaxSoftmax
from assay.network import Network
from assay.notebook import Shown
from assay.statistics import auroc, check_level
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 5000
FEWEST_OF_EACH = 10
"""Errors, and right answers, without which nothing can be learned about either."""
FOLDS = 5
TREES = 200

Array = NDArray[np.float64]


@storable("ErrorVisibility")
@dataclass(frozen=True, eq=False)
class ErrorVisibility(Shown):
    """`auroc` says how well features of a layer tell the network's errors from its right answers.

    1 is a layer that knows every error (l-monitorable in the paper's words), 0.5 one that knows none.
    `confidence_auroc` is what the network's own top probability does on the same rows. `scores` and `wrong`
    are behind the figure.
    """

    title: ClassVar[str] = "Does the network know when it errs?"

    layer: str
    auroc: float
    lower: float
    upper: float
    level: float
    confidence_auroc: float
    rows: int
    errors: int
    scores: Array
    wrong: NDArray[np.bool_]

    @tabled
    def to_frame(self) -> pd.DataFrame:
        names = ("layer", "auroc", "lower", "upper", "confidence_auroc", "rows", "errors")
        return pd.DataFrame([{name: getattr(self, name) for name in names}])

    def summary(self) -> str:
        verdict = (
            "its errors show there"
            if self.lower > 0.5
            else "these rows do not show that its errors are visible there"
        )
        return (
            f"Features of layer {self.layer} tell {self.errors:,} errors from {self.rows - self.errors:,} "
            f"right answers with an AUROC of {self.auroc:.3f} ({self.level:.0%} interval {self.lower:.3f} to "
            f"{self.upper:.3f}; 0.5 is guessing): {verdict}. The network's own confidence has "
            f"{self.confidence_auroc:.3f}."
        )

    def plot(self) -> "Figure":
        return visibility_figure(self.scores, self.wrong, self.auroc)


def error_visibility(
    network: Network,
    data: Any,
    layer: str = "penultimate",
    *,
    epsilon: float | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> ErrorVisibility:
    """How nearly a network is l-monitorable: can its errors be told from features of layer l? (Definition 1.)

    The paper calls f l-monitorable if some set Z of features holds exactly the inputs whose loss is at most
    epsilon. Here a forest of randomised trees (Geurts et al. 2006) learns that set on four fifths of `data`
    (labelled, not trained on) and ranks the last fifth, in turn; the AUROC is that of the ranks.

    Without `epsilon`, an error is a wrong answer; with it, an answer whose cross-entropy is above it. It must
    be under log 2: the paper allows log C, but among three classes or more a loss between the two can belong
    to a wrong answer.
    """
    check_level(level)
    if epsilon is not None and not 0 < epsilon < math.log(2):
        raise InputError(f"expected an epsilon between 0 and log 2, 0.693, got {epsilon:g}; see Definition 1")
    watched = watching(network, [layer])
    trace = watched.observe(labelled_rows(watched, data, MOST_ROWS, seed))
    wrong = _errors(trace, epsilon)
    if min(wrong.sum(), (~wrong).sum()) < FEWEST_OF_EACH:
        raise UndecidedError(
            f"expected at least {FEWEST_OF_EACH} errors and {FEWEST_OF_EACH} right answers to learn from, "
            f"got {wrong.sum()} and {(~wrong).sum()}; pass more rows"
        )
    scores = _cross_fitted(trace.layer(layer).double().numpy(), wrong, seed)
    own = MaxSoftmax().fit(trace).score(trace).numpy()
    area = auroc(scores[~wrong], scores[wrong], level)
    return ErrorVisibility(
        layer,
        *area,
        level,
        auroc(own[~wrong], own[wrong]).value,
        len(trace),
        int(wrong.sum()),
        scores,
        wrong,
    )


def _errors(trace: Trace, epsilon: float | None) -> NDArray[np.bool_]:
    if epsilon is None:
        return np.asarray((~trace.correct).numpy())
    losses = torch.nn.functional.cross_entropy(trace.logits.double(), trace.known_labels, reduction="none")
    return np.asarray((losses > epsilon).numpy())


def _cross_fitted(features: Array, wrong: NDArray[np.bool_], seed: int) -> Array:
    """For every row the share of trees that call it an error, learned on the folds it is not in."""
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    trees = ExtraTreesClassifier(TREES, min_samples_leaf=3, class_weight="balanced", random_state=seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found = cross_val_predict(trees, features, wrong, cv=folds, method="predict_proba")
    scores: Array = np.asarray(found)[:, 1]
    return scores
