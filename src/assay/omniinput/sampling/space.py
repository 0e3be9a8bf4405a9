"""InputSpace: all inputs a model could get, with 0 to values - 1 at every position that may change."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.errors import InputError
from assay.storage import storable


@storable("InputSpace")
@dataclass(frozen=True, eq=False)
class InputSpace:
    """Every input of a shape whose positions take the integers 0 to values - 1 (paper section 2.1).

    Token sequences are (length,), images (height, width) or (channels, height, width), binary vectors have
    values=2. Positions where the mask `free` is False keep their value in `template` (zero if there is no
    template): a [CLS] token, padding, the frame of an image.

    >>> space = InputSpace(shape=(8,), values=10)
    >>> space.sites, round(math.exp(space.log_size))
    (8, 100000000)
    >>> framed = InputSpace((4,), 30, template=torch.tensor([29, 0, 0, 28]), free=torch.tensor([0, 1, 1, 0]))
    >>> framed.embed(torch.tensor([[5, 6]]))
    tensor([[29,  5,  6, 28]])
    """

    shape: tuple[int, ...]
    values: int
    template: Tensor | None = None
    free: Tensor | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        if not self.shape or min(self.shape) < 1 or not 1 <= self.values < 2**63:
            raise InputError(
                f"expected a shape of positive sizes and from 1 to 2^63 - 1 values, got shape={self.shape} "
                f"and values={self.values}; give, for example, InputSpace(shape=(8,), values=10)"
            )
        template = self._of_shape("template", self.template, torch.int64)
        if not bool(((template >= 0) & (template < self.values)).all()):
            raise InputError(
                f"expected template values from 0 to {self.values - 1}, got {int(template.min())} to "
                f"{int(template.max())}; raise values or correct the template"
            )
        free = torch.ones(self.shape) if self.free is None else self.free
        object.__setattr__(self, "template", template)
        object.__setattr__(self, "free", self._of_shape("free", free, torch.bool))

    def _of_shape(self, name: str, values: Tensor | None, dtype: torch.dtype) -> Tensor:
        tensor = torch.zeros(self.shape) if values is None else torch.as_tensor(values)
        if tuple(tensor.shape) != self.shape:
            raise InputError(
                f"expected {name} of shape {self.shape}, got {tuple(tensor.shape)}; "
                "give one value per position of the input"
            )
        return tensor.to(dtype)

    @cached_property
    def positions(self) -> Tensor:
        """The flat positions that may change, in order."""
        assert self.free is not None
        return self.free.flatten().nonzero()[:, 0]

    @property
    def sites(self) -> int:
        """How many positions may change (D of the paper)."""
        return len(self.positions)

    @property
    def log_size(self) -> float:
        """The natural logarithm of the number of inputs."""
        return self.sites * math.log(self.values)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform independent inputs, as the values at the free sites: (count, sites)."""
        return torch.randint(self.values, (count, self.sites), generator=generator)

    def embed(self, site_values: Tensor) -> Tensor:
        """Values at the free sites (count, sites) as whole inputs (count, *shape)."""
        if self.sites == math.prod(self.shape):
            return site_values.reshape(-1, *self.shape)  # everything may change
        assert self.template is not None
        inputs = self.template.to(site_values.dtype).flatten().repeat(len(site_values), 1)
        inputs[:, self.positions] = site_values
        return inputs.reshape(-1, *self.shape)

    def extract(self, inputs: Tensor) -> Tensor:
        """Whole inputs (count, *shape) as the values at the free sites; the inverse of `embed`."""
        return inputs.reshape(len(inputs), -1)[:, self.positions]
