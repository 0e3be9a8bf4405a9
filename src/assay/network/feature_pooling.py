"""One row of features per input, whatever the shape of a layer's output."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from assay.errors import InputError

Pool: TypeAlias = str | Callable[[Tensor], Tensor]
"""How a layer's output becomes (N, d): "mean", "first", "last", "flatten", or a function of the output."""

NAMES = ("mean", "first", "last", "flatten")

_CHANNELS_FIRST = (
    nn.Conv1d,
    nn.ConvTranspose1d,
    nn.BatchNorm1d,
    nn.MaxPool1d,
    nn.AvgPool1d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool1d,
)


def check_pool(pool: Pool | Mapping[str, Pool] | None) -> None:
    """Refuse anything that is neither a function nor one of the names."""
    for choice in pool.values() if isinstance(pool, Mapping) else [pool]:
        if choice is not None and not callable(choice) and choice not in NAMES:
            raise InputError(f"expected pool to be a function or one of {list(NAMES)}, got {choice!r}")


def named_pool(pool: Pool | Mapping[str, Pool] | None) -> Any:
    """The choice as plain values; a function is identified by its module and name."""
    if isinstance(pool, Mapping):
        return {layer: named_pool(choice) for layer, choice in pool.items()}
    if pool is None or isinstance(pool, str):
        return pool
    return name_of(pool)


def name_of(function: object) -> str:
    """Module and name of a function, by which a setting that is one is known."""
    own = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}.{own}"


def channels_first(layer: nn.Module) -> bool:
    """Whether three axes of its output are (N, C, L): one-dimensional convolution, normalisation, pooling."""
    return isinstance(layer, _CHANNELS_FIRST)


def pooled(value: Tensor, pool: Pool | None, mask: Tensor | None, channels_first: bool = False) -> Tensor:
    """One row per input, by `pool` or, where it is None, by this rule.

    Maps (N, C, H, W) and volumes are averaged over space; so is (N, C, L), where `channels_first` says that
    three axes are that. Any other (N, T, d) is a sequence: its first token, where encoders put [CLS]. "last"
    is the last token that is not padding by `attention_mask`.
    """
    if value.is_quantized:
        value = value.dequantize()
    if callable(pool):
        result = pool(value)
    elif value.ndim == 2:
        result = value
    elif pool == "flatten":
        result = value.flatten(1)
    elif value.ndim == 3 and not channels_first:
        result = _token(value, pool or "first", mask)
    elif value.ndim >= 3:
        result = value.flatten(2).mean(dim=2)
    else:
        result = value
    if result.ndim != 2:
        raise InputError(
            f"expected one row of features per input, got shape {tuple(result.shape)}; "
            "pass pool=, a function from the layer's output to (N, d)"
        )
    return result


def _token(value: Tensor, pool: str, mask: Tensor | None) -> Tensor:
    if pool == "first":
        return value[:, 0]
    weights = torch.ones(value.shape[:2], device=value.device) if mask is None else mask
    if pool == "mean":
        shares = weights / weights.sum(dim=1, keepdim=True).clamp(min=1)
        return (value * shares[:, :, None].to(value.dtype)).sum(dim=1)
    # Counted from the right end, so that left and right padding both work.
    last = value.shape[1] - 1 - weights.bool().flip(1).int().argmax(dim=1)
    return value[torch.arange(len(value), device=value.device), last]
