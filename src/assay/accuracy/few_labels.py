"""Labels of a few operational rows, in the forms people have them in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
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
    def of(cls, labels: Any, total: int) -> "FewLabels":
        """From (RowsToLabel, labels), (rows, labels) or a mapping of rows to labels; `total` rows there are.

        Rows that do not come from `rows_to_label` count as drawn uniformly.
        """
        if isinstance(labels, Mapping):
            labels = list(labels), list(labels.values())
        if not isinstance(labels, tuple | list) or len(labels) != 2:
            raise InputError(
                "expected labels as (rows, labels), with rows from rows_to_label or drawn uniformly, or as a "
                f"mapping of rows to labels, got {type(labels).__name__}"
            )
        rows = checked_rows_drawn(labels[0], total)
        found = class_numbers(labels[1]).numpy()
        if len(found) != len(rows):
            raise InputError(
                f"expected a label for each of {len(rows)} rows, got {len(found)}; label all rows that were "
                "drawn: leaving out difficult ones makes the accuracy look better"
            )
        return cls(rows, found, labels[0].probabilities if isinstance(labels[0], RowsToLabel) else None)

    def correct(self, predictions: Predictions) -> Doubles:
        """1 for each labelled row whose prediction is right, 0 for the others."""
        check_labels(torch.from_numpy(self.labels), predictions.probabilities.shape[1])
        return np.asarray(predictions.classes[self.rows] == self.labels, np.float64)


def checked_rows_drawn(rows: Any, total: int) -> Whole:
    """Places of labelled rows among `total`, each once."""
    if isinstance(rows, RowsToLabel):
        if rows.total != total:
            raise InputError(
                f"expected rows drawn from these {total} rows, got rows drawn from {rows.total}; pass the "
                "operational rows that were passed to rows_to_label"
            )
        return rows.rows
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
