"""The logarithm of the upper incomplete gamma function, where the function itself would underflow."""

import math

import torch
from torch import Tensor

_TERMS = 60
"""Of the series and of the continued fraction: double precision for shapes up to about 20."""


def log_upper_gamma(shape: float, values: Tensor) -> Tensor:
    """ln Q(shape, x) = ln P(Gamma(shape) > x), in tensor operations that graphs have too.

    torch.special.gammaincc underflows beyond x = 745 and is not in ONNX. Below shape + 1 the series of 1 - Q
    (Abramowitz and Stegun 6.5.29), above it Legendre's continued fraction (6.5.31), evaluated backwards.

    >>> log_upper_gamma(1.0, torch.tensor([0.5, 2.0, 5000.0], dtype=torch.float64)).round(decimals=9).tolist()
    [-0.5, -2.0, -5000.0]
    """
    split = shape + 1
    near, far = values.clamp(min=1e-300, max=split), values.clamp(min=split)
    series = torch.ones_like(near)
    fraction = far + 2 * _TERMS + 1 - shape
    for term in range(_TERMS, 0, -1):
        series = 1 + series * near / (shape + term)
        fraction = far + (2 * term - 1) - shape - term * (term - shape) / fraction
    below = (shape * near.log() - near - math.lgamma(shape + 1)).exp() * series
    above = shape * far.log() - far - math.lgamma(shape) - fraction.log()
    return torch.where(values < split, torch.log1p(-below), above)
