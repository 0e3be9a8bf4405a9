"""Novelty: inputs of classes the network was never taught, from another dataset or by leaving classes out."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.errors import InputError
from assay.faults.template import CHUNK, as_fractions, as_pixels, check_images
from assay.labels import class_numbers
from assay.network import length, rows
from assay.trace import Inputs

GREY = (0.299, 0.587, 0.114)


def leave_out(inputs: Inputs, labels: Tensor, classes: Iterable[int]) -> tuple[Inputs, Tensor, Inputs]:
    """(known inputs, their labels from 0 without gaps, novel inputs): train on the first, hold out the last.

    >>> known, labels, novel = leave_out(torch.arange(4.0)[:, None], torch.tensor([0, 1, 2, 1]), [1])
    >>> known.flatten().tolist(), labels.tolist(), novel.flatten().tolist()
    ([0.0, 2.0], [0, 1], [1.0, 3.0])
    """
    labels = class_numbers(labels)
    if len(labels) != length(inputs):
        raise InputError(
            f"expected one label per input, got {length(inputs)} inputs and {len(labels)} labels"
        )
    out = torch.isin(labels, torch.tensor(sorted(classes), dtype=labels.dtype))
    if out.all() or not out.any():
        raise InputError(
            f"expected to leave out some of the classes {sorted(set(labels.tolist()))}, got {sorted(classes)}"
        )
    known = torch.searchsorted(torch.tensor(sorted(set(labels[~out].tolist()))), labels[~out])
    return rows(inputs, ~out), known, rows(inputs, out)


def matched(images: Tensor, like: Tensor) -> Tensor:
    """Images of another dataset in the shape and type of `like` (N, C, H, W): resized, with its channels."""
    check_images(images)
    result = torch.empty(len(images), *like.shape[1:], dtype=like.dtype)
    size = max(1, CHUNK // max(images[0].numel(), like[0].numel()))
    for start in range(0, len(images), size):
        place = slice(start, start + size)
        result[place] = as_pixels(_matched(as_fractions(images[place]), like), like.dtype)
    return result


def _matched(images: Tensor, like: Tensor) -> Tensor:
    part = images[:, None] if images.ndim == 3 else images
    channels = 1 if like.ndim == 3 else like.shape[1]
    if part.shape[1] != channels and 1 not in (part.shape[1], channels):
        raise InputError(
            f"expected images with 1 or {channels} channels, got {part.shape[1]}; convert the channels first"
        )
    if channels == 1 and part.shape[1] == 3:
        part = (part * torch.tensor(GREY).to(part).view(3, 1, 1)).sum(dim=1, keepdim=True)
    elif channels == 1:
        part = part.mean(dim=1, keepdim=True)
    if part.shape[-2:] != like.shape[-2:]:
        # Antialiased, or a large image made small would show patterns that neither dataset has.
        part = interpolate(part, size=like.shape[-2:], mode="bilinear", antialias=True)
    part = part.expand(-1, channels, -1, -1)
    return part.reshape(len(images), *like.shape[1:])
