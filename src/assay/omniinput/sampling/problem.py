"""Problem: the output function over its space, checked, counted and timed; samplers call nothing else."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import GradientError, InputError
from assay.omniinput.sampling.space import InputSpace

if TYPE_CHECKING:
    from assay.omniinput.sampling.distribution import OutputDistribution

OutputFunction = Callable[[Tensor], Tensor]
"""(B, *shape) integers to (B,) outputs."""


Evaluated = tuple[Tensor, Tensor]
"""Rows of site values that were evaluated, and their outputs."""


class SamplingError(InputError):
    """Sampling could not go on; `partial` is the distribution so far, if anything was sampled."""

    partial: "OutputDistribution | None" = None


@dataclass
class Evaluation:
    """Result of one model call on R inputs: outputs, and row-wise extras that some kernels need."""

    outputs: Tensor
    extras: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Problem:
    """Calls the output function on rows of site values.

    With `gradients`, extras["slopes"] is the first-order change of the output when a site takes another
    value: (R, sites, values) from `relaxed`, which maps one-hot inputs (B, *shape, values) to outputs, or (R,
    sites, 1) per unit of value, from the output function itself called with floats.
    """

    output_fn: OutputFunction
    space: InputSpace
    gradients: bool = False
    relaxed: OutputFunction | None = None
    evaluations: int = 0
    seconds: float = 0.0

    def __call__(self, sites: Tensor) -> Evaluation:
        inputs = self.space.embed(sites)
        with self.timed(len(sites)):
            if self.gradients:
                return self._with_slopes(inputs)
            with torch.no_grad():
                outputs = self.output_fn(inputs)
        return Evaluation(self._checked(outputs, len(sites)))

    def again(self, sites: Tensor) -> Tensor:
        """Outputs of inputs that were evaluated before; they are not counted again."""
        counted = self.evaluations, self.seconds
        try:
            return self(sites).outputs
        finally:
            self.evaluations, self.seconds = counted

    @contextmanager
    def timed(self, evaluations: int) -> Iterator[None]:
        """Count what happens inside as this many evaluations, and as time of the model."""
        self.evaluations += evaluations
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - started

    def prepare(self, betas: NDArray[np.float64]) -> bool:
        """Called with every new ladder; True if extras of earlier states are no longer valid."""
        return False

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Site values to start from: uniform over the space."""
        return self.space.draw(count, generator)

    def _with_slopes(self, inputs: Tensor) -> Evaluation:
        with torch.enable_grad():
            if self.relaxed is None:
                variable = inputs.float().requires_grad_()
                outputs = self.output_fn(variable)
            else:
                variable = torch.nn.functional.one_hot(inputs, self.space.values).float().requires_grad_()
                outputs = self.relaxed(variable)
            checked = self._checked(outputs, len(inputs))
            if not outputs.requires_grad:
                raise GradientError(
                    "expected an output function that is differentiable in its inputs, got one without "
                    "gradients; pass relaxed= (a function of one-hot inputs) or a kernel without gradients"
                )
            (slopes,) = torch.autograd.grad(outputs.sum(), variable)
        flat = slopes.reshape(len(inputs), math.prod(self.space.shape), -1)[:, self.space.positions].cpu()
        if self.space.allowed is not None and self.relaxed is not None:
            flat = flat[:, :, self.space.allowed]
        return Evaluation(checked, {"slopes": flat})

    def _checked(self, outputs: object, rows: int) -> Tensor:
        """Outputs as (rows,) doubles on the CPU; an error if they are not one finite number per row."""
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (rows,):
            got = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
            raise SamplingError(
                f"expected the output function to return a tensor of shape ({rows},), one number per input, "
                f"got {got}; return one output per row"
            )
        result = outputs.detach().to("cpu", torch.float64)
        if not math.isfinite(float(result.sum())) and (wrong := int((~torch.isfinite(result)).sum())):
            raise SamplingError(
                f"expected finite outputs, got NaN or infinity for {wrong} of {rows} inputs; "
                "make the output function finite over the whole space (a log of zero is the usual cause)"
            )
        return result
