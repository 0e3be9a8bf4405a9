"""Labels of a few operational rows, in the forms people have them in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from assay.accuracy.label_draw import RowsToLabel
from assay.accuracy.predictions import Predictions, Whole
from assay.errors import InputError
from assay.labels import check_labels, class_numbers
from assay.volatility.certainty import Doubles


@dataclass(frozen=True, eq=False)
class FewLabels:
    """Labels of some operational rows, and the probability with which each row was drawn."""

    rows: Whole
    labels: Whole
    probabilities: Doubles | None = None
    """None: the rows were drawn uniformly."""

    @classmethod
    def of(cls, labels: Any, drawn: Any, total: int) -> "FewLabels":
        """`labels` of the rows in `drawn`, in its order; `total` rows there are.

        `drawn`: what `rows_to_label` gave, or its table as it comes back from a file (columns row and
        probability), or the places of rows that were drawn uniformly.
        """
        if drawn is None:
            raise InputError(
                "expected the places of the labelled rows beside their labels, got labels only; pass drawn=, "
                "as rows_to_label gave it or the places of rows drawn uniformly"
            )
        rows, probabilities = rows_and_probabilities(drawn, total)
        found = class_numbers(labels).numpy()
        if len(found) != len(rows):
            raise InputError(
                f"expected a label for each of {len(rows)} rows, got {len(found)}; label all rows that were "
                "drawn: leaving out difficult ones makes the accuracy look better"
            )
        return cls(rows, found, probabilities)

    def correct(self, predictions: Predictions) -> Doubles:
        """1 for each labelled row whose prediction is right, 0 for the others."""
        check_labels(torch.from_numpy(self.labels), predictions.probabilities.shape[1])
        return np.asarray(predictions.classes[self.rows] == self.labels, np.float64)


def rows_and_probabilities(drawn: Any, total: int) -> tuple[Whole, Doubles | None]:
    """Places of labelled rows among `total`, each once, and the chance of each to be drawn; None: uniform."""
    if isinstance(drawn, RowsToLabel):
        if drawn.total != total:
            raise InputError(
                f"expected rows drawn from these {total} rows, got rows drawn from {drawn.total}; pass the "
                "operational rows that were passed to rows_to_label"
            )
        return drawn.rows, drawn.probabilities
    if isinstance(drawn, pd.DataFrame):
        if missing := {"row", "probability"} - set(drawn.columns):
            raise InputError(
                f"expected a table with the columns row and probability, as rows_to_label gives it, got one "
                f"without {' and '.join(sorted(missing))}"
            )
        return _checked_places(drawn["row"], total), drawn["probability"].to_numpy(np.float64)
    return _checked_places(drawn, total), None


def _checked_places(rows: Any, total: int) -> Whole:
    found = np.asarray(rows.cpu() if isinstance(rows, torch.Tensor) else rows)
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu":
        raise InputError(
            f"expected the places of labelled rows as whole numbers, got {found.dtype} {found.shape}; count "
            "the operational rows from 0"
        )
    if not 0 <= found.min() <= found.max() < total:
        raise InputError(
            f"expected labels of rows 0 to {total - 1}, got rows {found.min()} to {found.max()}; pass the "
            "operational rows from which they were drawn"
        )
    if len(np.unique(found)) < len(found):
        raise InputError("expected each row to be labelled once, got a row twice; agree on one label for it")
    return found.astype(np.int64)
