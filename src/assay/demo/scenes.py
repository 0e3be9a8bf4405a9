"""Scenes: several handwritten digits on one canvas, with a class per pixel and a box per digit."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.labels import IGNORED

CELL = 14
"""A canvas is two by two cells; a digit lies somewhere within its cell."""

SIDE = 2 * CELL
SMALLEST, LARGEST = 8, 12
"""The side of a digit, which is 8 pixels as scikit-learn has it."""

INK, PAPER = 0.35, 0.15
"""Pixels at least this dark belong to their digit, those below the second to the background; what is between
has no label."""

Boxes = list[dict[str, Tensor]]
"""For every scene its boxes (digits, 4), as left, top, right, bottom, and their labels (digits,)."""


@dataclass(frozen=True, eq=False)
class Scenes:
    """Images (N, 1, 28, 28) in [0, 1], maps of classes (N, 28, 28) and boxes; the background is a class."""

    images: Tensor
    maps: Tensor
    boxes: Boxes
    background: int


def scenes(digits: tuple[Tensor, Tensor], count: int, *, classes: int = 10, seed: int = 0) -> Scenes:
    """`count` scenes of one to four digits each, in sizes of 8 to 12 pixels.

    Every digit is drawn from `digits`, labelled images (N, 1, 8, 8); the background is class `classes`. The
    same seed gives the same scenes.
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, 1, SIDE, SIDE)
    maps = torch.full((count, SIDE, SIDE), classes)
    boxes: Boxes = []
    for scene in range(count):
        cells = torch.randperm(4, generator=generator)[: 1 + int(_drawn(4, generator))].tolist()
        placed = [_place(digits, divmod(cell, 2), generator) for cell in cells]
        for digit, label, (left, top, right, bottom) in placed:
            images[scene, 0, top:bottom, left:right] = digit
            own = maps[scene, top:bottom, left:right]
            own[digit >= PAPER] = IGNORED
            own[digit >= INK] = label
        boxes.append(
            {
                "boxes": torch.tensor([box for _, _, box in placed], dtype=torch.float32),
                "labels": torch.tensor([label for _, label, _ in placed]),
            }
        )
    return Scenes(images, maps, boxes, classes)


def _place(
    digits: tuple[Tensor, Tensor], cell: tuple[int, int], generator: torch.Generator
) -> tuple[Tensor, int, tuple[int, int, int, int]]:
    """A digit, its label, and the box that it fills in its cell."""
    images, labels = digits
    chosen = int(_drawn(len(labels), generator))
    size = SMALLEST + int(_drawn(LARGEST - SMALLEST + 1, generator))
    top, left = (CELL * place + int(_drawn(CELL - size + 1, generator)) for place in cell)
    digit = interpolate(images[chosen : chosen + 1], size=(size, size), mode="bilinear", antialias=True)
    return digit[0, 0].clamp(0, 1), int(labels[chosen]), (left, top, left + size, top + size)


def _drawn(below: int, generator: torch.Generator) -> Tensor:
    return torch.randint(below, (1,), generator=generator)
