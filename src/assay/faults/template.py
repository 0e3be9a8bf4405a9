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
    """A fault of images (N, C, H, W) or (N, H, W) with values in [0, 1], from 8x8 upwards.

    Works through chunks of images, so memory is the result plus a few times CHUNK numbers. With `whole`,
    the fault sees all images at once: a broken sensor is broken in the same place in each.
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
        size = len(images) if self.whole else max(1, CHUNK // images[0].numel())
        for start in range(0, len(images), size):
            part = images[start : start + size]
            torch.clamp(self.corrupt(part, severity, generator), 0, 1, out=result[start : start + size])
        return result.view_as(inputs)


def family(category: str, faults: dict[str, Corrupt], *, whole: bool = False) -> dict[str, ImageFault]:
    """Image faults of one category, by name."""
    return {name: ImageFault(name, category, corrupt, whole) for name, corrupt in faults.items()}


def check_severity(severity: int) -> None:
    if severity not in SEVERITIES:
        raise InputError(f"expected a severity from 1 to 5, got {severity}; 1 is mild, 5 is severe")


def check_images(images: Tensor) -> None:
    """Shape, type and range; one pass over the data."""
    if not isinstance(images, Tensor) or images.ndim not in (3, 4) or not images.is_floating_point():
        found = (
            f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        )
        raise InputError(
            f"expected floating-point images of shape (N, C, H, W) or (N, H, W), got {found}; "
            "convert, for example torch.as_tensor(images).float() / 255"
        )
    if not len(images) or min(images.shape[-2:]) < 8:
        raise InputError(f"expected at least one image of at least 8x8, got shape {tuple(images.shape)}")
    low, high = (float(bound) for bound in images.aminmax())
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"expected images with values in [0, 1], got {low:.3g} to {high:.3g}; "
            "scale them, and put normalisation inside the network"
        )
