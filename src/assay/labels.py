"""Labels in any common form, as class numbers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError

MOST_ORDERED = 2000
"""With more classes, no better order of them is searched; this many take a second."""


IGNORED = -100
"""The label of a row that is not to be judged, as in torch's losses (`ignore_index`)."""


def class_numbers(labels: Any) -> Tensor:
    """Labels as int64, one per input; whole floats and a column (N, 1), as read from tables, are accepted.

    >>> class_numbers([[2.0], [0.0]])
    tensor([2, 0])
    """
    values = labels if isinstance(labels, Tensor) else label_tensor(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.is_complex():
        raise InputError(
            f"expected labels as one class number per input, got {values.dtype} {tuple(values.shape)}; "
            "pass class numbers, not one-hot rows or probabilities; a network for maps of labels has rows="
        )
    if values.is_floating_point() and not (whole := values.isfinite() & (values == values.trunc())).all():
        raise InputError(
            f"expected labels as whole class numbers, got {values[~whole][0].item():g}; "
            "pass class numbers, since assay judges classifiers and not regression"
        )
    return values.long()


def label_column(labels: Any, label: int) -> Any:
    """The answers to one of several yes-or-no questions, (N,), from rows of all (N, questions) or as given.

    >>> label_column([[0, 1], [1, 1]], 0)
    tensor([0, 1])
    """
    values = labels if isinstance(labels, Tensor) else label_tensor(labels)
    if values.ndim != 2 or values.shape[1] == 1:
        return values
    if label >= values.shape[1]:
        raise InputError(
            f"expected labels for at least {label + 1} questions, got rows of {values.shape[1]}; pass the "
            "answers to all, or to the one that is watched"
        )
    return values[:, label]


def check_labels(labels: Tensor, classes: int) -> None:
    """Raise unless every label is the number of an output of the network."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise InputError(
            f"expected labels from 0 to {classes - 1}, one per output of the network, got "
            f"{int(labels.min())} to {int(labels.max())}; leave out rows of unknown classes, or number the "
            "classes as the network does"
        )


def order_hint(labels: Tensor, predictions: Tensor) -> str:
    """A sentence if the predictions fit the labels far better in another order of the classes, else empty.

    The best order is an assignment of labels to outputs. It is far better if it moves at least two classes
    that occur, if each of those is then right in most of its rows, and if that is beyond chance (three
    standard deviations of a sign test). A network that guesses, or always says the same, gives no hint.

    >>> order_hint(torch.tensor([0, 1] * 20), torch.tensor([1, 0] * 20))[:54]
    'in another order of the classes 100.0% instead of 0.0%'
    """
    from scipy.optimize import linear_sum_assignment

    names, codes = np.unique(torch.cat([labels, predictions]).numpy(), return_inverse=True)
    size = len(names)
    if size > MOST_ORDERED:
        return ""
    pairs = codes[: len(labels)] * size + codes[len(labels) :]
    table = np.bincount(pairs, minlength=size**2).reshape(size, size)
    order = linear_sum_assignment(table, maximize=True)[1]
    rows, before, after = table.sum(axis=1), table.diagonal(), table[np.arange(size), order]
    moved = (order != np.arange(size)) & (rows > 0)
    gain, chance = (after - before)[moved].sum(), np.sqrt((after + before)[moved].sum())
    if moved.sum() < 2 or (2 * after <= rows)[moved].any() or gain <= 3 * chance:
        return ""
    places = [f"{names[one]} as {names[order[one]]}" for one in moved.nonzero()[0]]
    shown = places if len(places) <= 10 else [*places[:9], "..."]
    return (
        f"in another order of the classes {after.sum() / len(labels):.1%} instead of "
        f"{before.sum() / len(labels):.1%} of the answers would be right (label {', '.join(shown)}); check "
        "which class each label stands for, and pass classes= in the order of the network's outputs"
    )


def label_tensor(labels: Any) -> Tensor:
    """Numbers of any shape as a tensor."""
    try:
        array = np.asarray(labels)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"expected one label per input, got rows of several lengths ({error})") from error
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"expected labels as class numbers, got an array of type {array.dtype}; number the classes from 0"
        )
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))  # torch needs the native byte order
