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
    template): a [CLS] token, padding, the frame of an image. `allowed` are the values that free positions
    may take if not all of them, as a list of values or as a mask over all of them.

    `end` makes the length vary: after this value a sequence contains nothing else, so that the space is all
    sequences of up to that many values. Samplers count positions by the number of a value among the allowed.

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
    allowed: Tensor | None = None
    end: int | None = None

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
        if self.allowed is not None:
            object.__setattr__(self, "allowed", self._allowed(torch.as_tensor(self.allowed)))
        if self.end is not None and (self.end_site is None or self.choices < 2 or len(self.shape) > 1):
            raise InputError(
                f"expected an end value among the allowed ones and another beside it, for sequences, got "
                f"end={self.end} and shape {self.shape}; allow it, or leave end out"
            )

    def _allowed(self, allowed: Tensor) -> Tensor:
        """In ascending order, each once."""
        chosen = allowed.nonzero()[:, 0] if allowed.dtype is torch.bool else torch.unique(allowed)
        too_long = allowed.dtype is torch.bool and tuple(allowed.shape) != (self.values,)
        if too_long or not len(chosen) or int(chosen.min()) < 0 or int(chosen.max()) >= self.values:
            got = (
                "none"
                if not len(chosen)
                else f"{len(allowed)} from {int(chosen.min())} to {int(chosen.max())}"
            )
            raise InputError(
                f"expected some allowed values from 0 to {self.values - 1}, or a mask of {self.values}, got "
                f"{got}; allow at least one value"
            )
        return chosen.to(torch.int64)

    @property
    def choices(self) -> int:
        """How many values a free position can take."""
        return self.values if self.allowed is None else len(self.allowed)

    @property
    def end_site(self) -> int | None:
        """The number of the end value among the allowed ones."""
        if self.end is None or not 0 <= self.end < self.values:
            return None
        if self.allowed is None:
            return self.end
        found = (self.allowed == self.end).nonzero()
        return int(found[0, 0]) if len(found) else None

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
        if self.end is None:
            return self.sites * math.log(self.choices)
        return float(torch.logsumexp(self._log_lengths, dim=0))

    @cached_property
    def _log_lengths(self) -> Tensor:
        """The log number of sequences with 0, 1, ... values before their end; the last never ends."""
        return torch.arange(self.sites + 1, dtype=torch.float64) * math.log(self.choices - 1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Uniform independent inputs, as the values at the free sites: (count, sites)."""
        drawn = torch.randint(self.choices - (self.end is not None), (count, self.sites), generator=generator)
        if self.end_site is None:
            return drawn
        shares = torch.softmax(self._log_lengths, dim=0)
        lengths = torch.multinomial(shares, count, replacement=True, generator=generator)
        drawn += drawn >= self.end_site  # the numbers of all values but the end
        return torch.where(torch.arange(self.sites) < lengths[:, None], drawn, self.end_site)

    def embed(self, site_values: Tensor) -> Tensor:
        """Numbers of values at the free sites (count, sites) as whole inputs (count, *shape)."""
        if self.allowed is not None:
            site_values = self.allowed[site_values]
        if self.sites == math.prod(self.shape):
            return site_values.reshape(-1, *self.shape)  # everything may change
        assert self.template is not None
        inputs = self.template.to(site_values.dtype).flatten().repeat(len(site_values), 1)
        inputs[:, self.positions] = site_values
        return inputs.reshape(-1, *self.shape)

    def extract(self, inputs: Tensor) -> Tensor:
        """Whole inputs (count, *shape) as the numbers of values at the free sites; the inverse of `embed`."""
        found = inputs.reshape(len(inputs), -1)[:, self.positions]
        return found if self.allowed is None else torch.searchsorted(self.allowed, found.contiguous())
