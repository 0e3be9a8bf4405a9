"""Which columns of a table of saved predictions hold the probabilities, and which one the labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from assay.data.delimited import LABEL_NAMES, column_of
from assay.data.labelled import from_names, numbered
from assay.errors import InputError

TABLES = ("probabilities", "probs", "scores")
"""Names under which all probabilities are found together: an array of a file, or a column of lists."""

OTHERS = ("", "confidence", "id", "index", "predicted", "prediction", "predictions", "unnamed: 0")
"""Columns that saved predictions often have besides probabilities and labels."""

_PREFIX = re.compile(r"(p|prob|proba|probability|probabilities)[_ .:]+", re.IGNORECASE)
"""How the names of columns of probabilities often begin."""


@dataclass(frozen=True)
class PredictionColumns:
    """The columns to read, by position; `classes` are what the names of the columns call the classes."""

    probabilities: tuple[int, ...]
    label: int | None
    classes: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Sequence[Any], label: str | int | None, columns: Sequence[str | int] | None, source: Path
    ) -> "PredictionColumns":
        """The columns asked for; else the label under a usual name, and the probabilities.

        These are the column called probabilities, probs or scores, where it holds lists; else the columns
        that begin with p_, prob_ or the like; else all that are left, without numbers and names of rows,
        predictions and confidences.
        """
        frame = pd.DataFrame(columns=list(names))
        folded = [str(name).strip().lower() for name in names]
        known = label is not None or any(name in LABEL_NAMES for name in folded)
        of_label = _place(frame, column_of(frame, label, LABEL_NAMES, "label", source)) if known else None
        if columns is not None:
            places = [_place(frame, column_of(frame, name, (), "columns", source)) for name in columns]
        else:
            places = _usual(folded, of_label)
        if not places or of_label in places:
            raise InputError(
                f"{source}: expected columns of probabilities besides the labels, got {list(names)}; pass "
                "columns= with their names"
            )
        classes = tuple(_PREFIX.sub("", str(names[place]).strip(), count=1) for place in places)
        return cls(tuple(places), of_label, classes)

    def labels(self, column: "pd.Series[Any]", classes: Sequence[str] | None, source: object) -> Tensor:
        """Class numbers: the places of the labels among the classes, or the labels themselves."""
        texts = column.astype(str).str.strip()
        names = tuple(classes or self.classes)
        if classes is not None or texts.isin(names).all():
            return from_names(list(texts), names, source)[0]
        numbers = pd.to_numeric(texts, errors="coerce")
        if numbers.isna().any():
            return from_names(list(texts), names, source)[0]  # raises, with the first name that is unknown
        return numbered(torch.from_numpy(numbers.to_numpy(copy=True)), len(column), source)


def are_names(cells: Sequence[str]) -> bool:
    """Whether the first line of a table names its columns: words, or the numbers 0, 1, 2 and so on, as pandas
    writes them. (0, 1) alone are the probabilities of two classes."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError:
        return True
    return len(cells) > 2 and numbers == list(range(len(cells)))


def _usual(folded: Sequence[str], of_label: int | None) -> list[int]:
    rest = [place for place in range(len(folded)) if place != of_label]
    whole = [place for place in rest if folded[place] in TABLES]
    prefixed = [place for place in rest if _PREFIX.match(folded[place])]
    return whole[:1] or prefixed or [place for place in rest if folded[place] not in OTHERS]


def _place(frame: pd.DataFrame, name: Any) -> int:
    return list(frame.columns).index(name)
