"""Adam on a cosine schedule, for networks that are trained in a second.

It takes the steps of torch.optim.Adam with CosineAnnealingLR, to the last bit. The first use of torch.optim
loads torch's compiler, which takes longer than such a training.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.999, 1e-8
"""The paper's beta_1, beta_2 and epsilon."""


class Adam:
    """Kingma and Ba, *Adam: a method for stochastic optimization* (2015), Algorithm 1."""

    def __init__(self, parameters: Iterable[Tensor], rate: float, steps: int) -> None:
        self.parameters = list(parameters)
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.rate, self.steps, self.taken = rate, steps, 0

    @torch.no_grad()
    def step(self, gradients: Iterable[Tensor]) -> None:
        """One step down these gradients, of the parameters in their order."""
        self.taken += 1
        bias, square_bias = 1 - DECAY**self.taken, 1 - SQUARE_DECAY**self.taken
        moments = zip(self.parameters, gradients, self.means, self.squares, strict=True)
        for parameter, gradient, mean, square in moments:
            mean.lerp_(gradient, 1 - DECAY)
            square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - SQUARE_DECAY)
            spread = (square.sqrt() / math.sqrt(square_bias)).add_(EPSILON)
            parameter.addcdiv_(mean, spread, value=-self.rate / bias)
        self.rate *= self._height(self.taken) / self._height(self.taken - 1)

    def _height(self, step: int) -> float:
        """The schedule relative to its start, times two: from 2 down to 0."""
        return 1 + math.cos(math.pi * step / self.steps)
