"""The inputs that bounds are for: all within a range, or all texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.network import Network
from assay.network.compiled import uncompiled
from assay.network.taps import evaluating, modules_of
from assay.reshaping.bounds.enclosure import Enclosure
from assay.reshaping.bounds.interval import Interval
from assay.trace import Inputs

Limit = float | Tensor
LARGEST_SIDE = 256
MOST_SIZES = 8
SAMPLES_OF_A_KIND = 4


@dataclass(frozen=True, eq=False)
class InputBox:
    """One input as an interval; of a text, the embeddings of any tokens, and the number of tokens."""

    interval: Interval
    vocabulary: int = 0

    @property
    def is_text(self) -> bool:
        return self.vocabulary > 0

    def around(self, value: Enclosure) -> Inputs:
        """What the network runs on, with `value` in place of the numbers."""
        if not self.is_text:
            return value
        tokens = torch.zeros(value.shape[:2], dtype=torch.long)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "inputs_embeds": value}

    def samples(self) -> Inputs:
        """A handful of inputs of different kinds: noise, extremes, one value everywhere, a narrow range."""
        generator = torch.Generator().manual_seed(0)
        if self.is_text:
            shape = (4 * SAMPLES_OF_A_KIND, self.interval.shape[1])
            tokens = torch.randint(0, self.vocabulary, shape, generator=generator)
            lengths = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
            return {"input_ids": tokens, "attention_mask": (torch.arange(shape[1]) < lengths).int()}
        sizes = tuple(self.interval.shape[1:])
        draws = torch.rand(3, SAMPLES_OF_A_KIND, *sizes, generator=generator, dtype=torch.float64)
        level = torch.rand(2, SAMPLES_OF_A_KIND, *(1 for _ in sizes), generator=generator)
        kinds = [draws[0], draws[1].round(), level[0].expand(-1, *sizes), level[1] * draws[2]]
        spread = self.interval.high - self.interval.low
        return (self.interval.low + spread * torch.cat(kinds)).float()


def boxes(network: Network, low: Limit, high: Limit, shape: Sequence[int] | None) -> list[InputBox]:
    """Those that bounds have to cover: one per size of input that the module takes."""
    if network.embeds:
        return [_any_text(network)]
    module = uncompiled(network.module)
    with torch.no_grad(), evaluating(modules_of(module)):
        sizes = _input_shapes(module, low, high, shape)
    return [InputBox(_input_box(low, high, size)) for size in sizes]


def _any_text(network: Any) -> InputBox:
    """Every token anywhere: the hull of all rows of the embedding table."""
    table = network.module.get_input_embeddings().weight.detach().double()
    low, high = (end.expand(1, network.max_length, -1).clone() for end in (table.amin(0), table.amax(0)))
    return InputBox(Interval(low, high), vocabulary=len(table))


def _input_box(low: Limit, high: Limit, shape: Sequence[int]) -> Interval:
    ends = [torch.as_tensor(end, dtype=torch.float64) for end in (low, high)]
    if any(torch.isnan(end).any() or torch.isinf(end).any() for end in ends):
        raise InputError(f"expected finite limits of the input values, got low={low}, high={high}")
    least, most = (end.expand(tuple(shape))[None].clone() for end in ends)
    box = Interval(least, most)
    if bool((box.low > box.high).any()):
        raise InputError(f"expected low below high, got low={low}, high={high}; swap them")
    return box


def _input_shapes(
    module: nn.Module, low: Limit, high: Limit, shape: Sequence[int] | None
) -> list[tuple[int, ...]]:
    for limit in (low, high):
        if shape is None and isinstance(limit, Tensor) and limit.ndim:
            shape = limit.shape
    if shape is not None:
        return [tuple(shape)]
    first = next(
        (part for part in module.modules() if isinstance(getattr(part, "weight", None), Tensor)), None
    )
    if isinstance(first, nn.Linear):
        return [(first.in_features,)]
    found = _accepted_shapes(module, first) if isinstance(first, nn.Conv1d | nn.Conv2d | nn.Conv3d) else []
    if not 0 < len(found) <= MOST_SIZES:
        raise InputError(
            f"expected the shape of one input, which {type(module).__name__} does not show; "
            "pass shape=(channels, height, width)"
        )
    return found


def _accepted_shapes(module: nn.Module, first: Any) -> list[tuple[int, ...]]:
    """Square inputs that run through the module: accepted sizes are consecutive, so the search ends early."""
    found: list[tuple[int, ...]] = []
    for side in range(1, LARGEST_SIDE + 1):
        shape = (first.in_channels, *(side,) * (first.weight.ndim - 2))
        try:
            module(first.weight.new_zeros(1, *shape))
        except (RuntimeError, ValueError):
            if found:
                break
            continue
        found.append(shape)
        if len(found) > MOST_SIZES:
            break
    return found
