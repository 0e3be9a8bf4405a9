"""Texts with labels, from csv and tsv files."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from assay.data.delimited import LABEL_NAMES, column_of, read_table
from assay.data.labelled import Labelled, from_column

TEXT_NAMES = ("text", "sentence", "content", "review")


def read_text(
    path: str | PathLike[str],
    text: str | int | None = None,
    label: str | int | None = None,
    *,
    header: bool = True,
    separator: str | None = None,
    quoted: bool | None = None,
    classes: Sequence[str] | None = None,
) -> Labelled[list[str]]:
    """(texts, labels) from a csv or tsv file: a list of str, and int64 labels.

    `text` and `label` are columns by name or position; by default the columns called text, sentence, content
    or review, and label, labels, class, target or y. Double quotes enclose a cell in csv files and are part
    of the text in tsv files, unless `quoted` says otherwise. Labels as in `read_csv`.
    """
    file = Path(path)
    frame = read_table(path, header=header, separator=separator, quoted=quoted, dtype=str)
    texts = frame[column_of(frame, text, TEXT_NAMES, "text", file)]
    column = frame[column_of(frame, label, LABEL_NAMES, "label", file)]
    labels, names = from_column(column, classes, file)
    return Labelled(texts.tolist(), labels, names, in_sorted_order=classes is None)


def text_inputs(
    path: str | PathLike[str],
    text: str | int | None = None,
    *,
    header: bool = True,
    separator: str | None = None,
    quoted: bool | None = None,
) -> list[str]:
    """The texts of `read_text` alone."""
    frame = read_table(path, header=header, separator=separator, quoted=quoted, dtype=str)
    return list(frame[column_of(frame, text, TEXT_NAMES, "text", Path(path))])
