"""The contract of a fault template: `template(inputs, severity, seed=0)` returns the inputs with a fault.

Severity runs from 1 (mild) to 5 (severe). Rows keep their order and so their labels. The same seed gives
the same result, and draws the same random numbers at every severity, so that a higher severity is the same
fault, further along.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from assay.errors import InputError

SEVERITIES = range(1, 6)

CHUNK = 2**19
"""Numbers worked on at once: few enough to stay in the processor's cache, many enough to be vectorised."""

WHITE = 255
"""The value of a white pixel in images of type uint8."""

Corrupt: TypeAlias = Callable[[Tensor, int, torch.Generator], Tensor]
"""From images (n, C, H, W), the severity and a source of randomness to images."""


class Template(Protocol):
    """The attributes of every fault; `kind` is the kind of input it takes: "image", "tabular", "text",
    "tokens" or "bytes"."""

    @property
    def name(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def kind(self) -> str: ...
    def __call__(self, inputs: Any, severity: int, seed: int = 0) -> Any: ...


@dataclass(frozen=True)
class ImageFault:
    """A fault of images (N, C, H, W) or (N, H, W) with values in [0, 1] or uint8, from 8x8 upwards.

    Works through chunks of images, so memory is the result plus a few times CHUNK numbers; uint8 images stay
    uint8, rounded to the nearest value as a camera would. With `whole`, every chunk meets the same random
    numbers, since a broken sensor is broken in the same place in each image, and the set's first image.
    """

    name: str
    category: str
    corrupt: Corrupt
    whole: bool = False
    kind: str = "image"

    def __call__(self, inputs: Tensor, severity: int, seed: int = 0) -> Tensor:
        check_severity(severity)
        check_images(inputs)
        images = inputs[:, None] if inputs.ndim == 3 else inputs
        generator = torch.Generator().manual_seed(seed)
        result = torch.empty_like(images)
        size = max(1, CHUNK // images[0].numel())
        for start in range(0, len(images), size):
            place = slice(start, start + size)
            part = as_fractions(images[place])
            if self.whole:
                generator.manual_seed(seed)
                first = as_fractions(images[:1])  # the set's, at which a camera may have frozen
                changed = self.corrupt(torch.cat([first, part]), severity, generator)[1:]
            else:
                changed = self.corrupt(part, severity, generator)
            if changed.dtype == images.dtype:
                torch.clamp(changed, 0, 1, out=result[place])
            else:
                result[place] = as_pixels(changed, images.dtype)
        return result.view_as(inputs)


def as_fractions(images: Tensor) -> Tensor:
    """Images in [0, 1], in single precision or what they are: uint8 and half precision are converted."""
    if images.dtype == torch.uint8:
        return images.float() / WHITE
    return images.float() if images.dtype in (torch.float16, torch.bfloat16) else images


def as_pixels(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Images cut to [0, 1], as this type; uint8 is rounded to the nearest of its values."""
    cut = images.clamp(0, 1)
    return cut.mul_(WHITE).round_().to(dtype) if dtype == torch.uint8 else cut.to(dtype)


def family(category: str, faults: dict[str, Corrupt], *, whole: bool = False) -> dict[str, ImageFault]:
    """Image faults of one category, by name."""
    return {name: ImageFault(name, category, corrupt, whole) for name, corrupt in faults.items()}


def check_severity(severity: int) -> None:
    if severity not in SEVERITIES:
        raise InputError(f"expected a severity from 1 to 5, got {severity}; 1 is mild, 5 is severe")


def check_images(images: Tensor) -> None:
    """Shape, type and range; one pass over the data."""
    kind = isinstance(images, Tensor) and (images.is_floating_point() or images.dtype == torch.uint8)
    if not kind or images.ndim not in (3, 4):
        found = (
            f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        )
        raise InputError(
            f"expected images of shape (N, C, H, W) or (N, H, W), floating-point or uint8, got {found}; "
            "convert, for example torch.as_tensor(images).float() / 255"
        )
    if not len(images) or min(images.shape[-2:]) < 8:
        raise InputError(f"expected at least one image of at least 8x8, got shape {tuple(images.shape)}")
    if images.dtype == torch.uint8:
        return
    low, high = (float(bound) for bound in images.aminmax())
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"expected images with values in [0, 1], got {low:.3g} to {high:.3g}; "
            "scale them, and put normalisation inside the network"
        )
