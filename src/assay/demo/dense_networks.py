"""A small segmentation network and a small detector for scenes of digits, trained in seconds from a seed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, smooth_l1_loss

from assay.demo.adam import Adam
from assay.demo.networks import one_thread
from assay.demo.scenes import SIDE, Boxes, Scenes
from assay.labels import IGNORED
from assay.trace import Trace

STRIDE = 4
"""Pixels from one place of the detector's grid to the next."""

CONFIDENT = 0.5
"""The least probability of being no background with which a place of the grid is a detection."""

OVERLAP = 0.5
"""The least intersection over union with which a detection is of a digit."""


class Segmenter(nn.Module):
    """A class for every pixel: convolutions at half the size, whose logits are enlarged to (N, classes, H,
    W)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(1, 16),
            *_convolution(16, 32, stride=2),
            *_convolution(32, 48),
            *_convolution(48, 48),
        )
        self.head = nn.Conv2d(48, classes, 1)
        self.enlarged = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.enlarged(self.head(self.body(images)))
        return logits


class Detector(nn.Module):
    """For every place of a grid the logits of its class and, if a digit's centre lies there, the digit's box.

    It returns {"logits": (N, classes, 7, 7), "boxes": (N, 4, 7, 7)}.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(1, 16),
            *_convolution(16, 32, stride=2),
            *_convolution(32, 64, stride=2),
            *_convolution(64, 64),
        )
        self.classes = nn.Conv2d(64, classes, 1)
        self.places = nn.Conv2d(64, 4, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        found = self.body(images)
        centre, size = self.places(found).split(2, dim=1)
        middle = _grid(found.shape[-1]) + STRIDE * (centre.sigmoid() - 0.5)
        half = STRIDE * size.exp()
        return {"logits": self.classes(found), "boxes": torch.cat([middle - half, middle + half], dim=1)}


def detections(output: dict[str, Tensor], layers: dict[str, Tensor]) -> tuple[Any, ...]:
    """Rows for `assay.Network(Detector(...), rows=...)`: a place of the grid that is likely no background,
    and likelier so than its neighbours. The boxes stay in the Trace, as features."""
    logits = output["logits"]
    something = 1 - logits.softmax(dim=1)[:, -1:]
    peaks = (something > CONFIDENT) & (something == max_pool2d(something, 3, stride=1, padding=1))
    source, _, row, column = peaks.nonzero(as_tuple=True)
    features = {"boxes": output["boxes"][source, :, row, column]}
    features |= {name: value[source, :, row, column] for name, value in layers.items()}
    return logits[source, :, row, column], source, features


def detected_classes(known: Boxes, trace: Trace) -> Tensor:
    """The label of every detection: that of the digit it overlaps most, or the background where it overlaps
    none by half."""
    labels = torch.full((len(trace),), trace.logits.shape[1] - 1)
    assert trace.source is not None
    for number, scene in enumerate(known):
        rows = (trace.source == number).nonzero().flatten()
        if len(rows):
            shared, digit = _overlap(trace.features["boxes"][rows], scene["boxes"]).max(dim=1)
            labels[rows] = torch.where(shared >= OVERLAP, scene["labels"][digit], labels[rows])
    return labels


def trained_segmenter(data: Scenes, *, seed: int = 0, epochs: int = 8) -> nn.Module:
    """Learns the maps; pixels without a label teach nothing."""
    maps, weights = data.maps, _weights(data.background)

    def loss(module: nn.Module, part: Tensor) -> Tensor:
        return cross_entropy(module(data.images[part]), maps[part], weights, ignore_index=IGNORED)

    return _trained(Segmenter, data, loss, seed, epochs)


def trained_detector(data: Scenes, *, seed: int = 0, epochs: int = 16) -> nn.Module:
    """Learns the class of every place of the grid, and the box where a digit's centre lies."""
    classes, boxes = _targets(data)
    weights = _weights(data.background)

    def loss(module: nn.Module, part: Tensor) -> Tensor:
        output = module(data.images[part])
        digit = classes[part] != data.background
        places = output["boxes"].movedim(1, -1)[digit], boxes[part][digit]
        return cross_entropy(output["logits"], classes[part], weights) + smooth_l1_loss(*places) / STRIDE

    return _trained(Detector, data, loss, seed, epochs)


def _trained(
    architecture: Callable[[int], nn.Module],
    data: Scenes,
    loss: Callable[[nn.Module, Tensor], Tensor],
    seed: int,
    epochs: int,
) -> nn.Module:
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        module = architecture(data.background + 1)
        steps = epochs * -(-len(data.images) // 32)
        optimiser = Adam(module.parameters(), 4e-3, steps)
        for _ in range(epochs):
            for part in torch.split(torch.randperm(len(data.images)), 32):
                optimiser.step(torch.autograd.grad(loss(module, part), optimiser.parameters))
    return module.eval()


def _weights(background: int) -> Tensor:
    """The background is most of a scene, and easily told: it counts less."""
    return torch.tensor([1.0] * background + [0.05])


def _targets(data: Scenes) -> tuple[Tensor, Tensor]:
    """The class (N, 7, 7) and the box (N, 7, 7, 4) of every place of the grid."""
    side = SIDE // STRIDE
    classes = torch.full((len(data.images), side, side), data.background)
    boxes = torch.zeros(len(data.images), side, side, 4)
    for number, scene in enumerate(data.boxes):
        column, row = ((scene["boxes"][:, :2] + scene["boxes"][:, 2:]) / (2 * STRIDE)).long().T
        classes[number, row, column] = scene["labels"]
        boxes[number, row, column] = scene["boxes"]
    return classes, boxes


def _convolution(before: int, after: int, stride: int = 1) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()


def _grid(side: int) -> Tensor:
    """(2, side, side): the middle of every place, across and down."""
    middle = STRIDE * (torch.arange(side) + 0.5)
    return torch.stack(torch.meshgrid(middle, middle, indexing="xy"))


def _overlap(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (R, 4) and (D, 4), as (R, D)."""
    shared = torch.minimum(first[:, None, 2:], second[:, 2:]) - torch.maximum(
        first[:, None, :2], second[:, :2]
    )
    common = shared.clamp(min=0).prod(dim=2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(dim=1) for boxes in (first, second)]
    return common / (areas[0][:, None] + areas[1] - common)
