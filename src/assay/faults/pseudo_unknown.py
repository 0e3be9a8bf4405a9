"""Pseudo-unknowns: inputs that make no sense, made from known inputs alone.

What a network was never taught cannot be collected beforehand, but it can be imitated: known inputs are
mixed, cut up, turned, or replaced by noise that looks like them, and faults of the library push them out of
the ordinary. `assay.monitorability` asks how well monitors tell these from the inputs they were made of.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.byte_rows import VALUES
from assay.faults.image_mixtures import IMAGE_MIXTURES
from assay.faults.kinds import kind_of, templates_of
from assay.faults.symbol_mixtures import SYMBOL_MIXTURES
from assay.faults.table_mixtures import TABLE_MIXTURES
from assay.faults.template import Template, as_fractions, as_pixels
from assay.faults.tokens import IDS, TokenRule, token_ids
from assay.network import Network, length
from assay.trace import Inputs

FEWEST = 4
"""Inputs that can be mixed: partners must differ, and a spread must have a meaning."""

BLOCK = 2**22
"""Numbers mixed at once; partners are found among the inputs of a block."""

FAULTS: Mapping[str, Mapping[str, int]] = {
    "image": {"gaussian": 3, "gaussian_blur": 3, "contrast": 3, "pixelate": 3},
    "tabular": {"gaussian_noise": 4, "offset": 4, "outliers": 3, "unit_change": 1},
    "tokens": {"token_noise": 4, "inserted_tokens": 4, "changed_vocabulary": 4, "truncation": 4},
    "bytes": {"byte_noise": 4, "inserted_bytes": 4, "zero_block": 4, "truncation": 4},
}
"""Faults of the library in the panel, at severities where detection is neither trivial nor hopeless."""


@dataclass(frozen=True)
class PseudoUnknown:
    """`pseudo_unknown(inputs, seed=0)` returns as many inputs of the same form, none of them meant to make
    sense. `kind` is that of the inputs, as in `assay.faults.kind_of`."""

    name: str
    kind: str
    make: Callable[[Any, int], Any]

    def __call__(self, inputs: Inputs, seed: int = 0) -> Inputs:
        if length(inputs) < FEWEST:
            raise InputError(
                f"expected at least {FEWEST} inputs to exchange parts between, got {length(inputs)}; pass "
                "more"
            )
        made: Inputs = self.make(inputs, seed)
        return made


def pseudo_unknowns_for(inputs: Inputs, network: Network | None = None) -> dict[str, PseudoUnknown]:
    """Every pseudo-unknown of this kind of inputs, by name; padding and special tokens are left alone.

    >>> list(pseudo_unknowns_for(torch.rand(4, 3)))[:3]
    ['shuffled_values', 'blended', 'exchanged_columns']
    """
    kind = _mixed_kind(inputs)
    templates = templates_of(kind, network)
    faulty: dict[str, Callable[[Any, int], Any]] = {}
    for name, severity in FAULTS[kind].items():
        make = partial(_faulty, templates[name], severity)
        faulty[name] = partial(_in_unit_range, make) if kind == "image" else make
    return mixtures_for(inputs, network) | _named(faulty, kind)


def mixtures_for(inputs: Inputs, network: Network | None = None) -> dict[str, PseudoUnknown]:
    """The pseudo-unknowns that are made of the inputs alone, without a fault of the library."""
    kind = _mixed_kind(inputs)
    if kind == "image":
        return _named({name: partial(_mixed_images, mix) for name, mix in IMAGE_MIXTURES.items()}, kind)
    if kind == "tabular":
        return _named({name: partial(_mixed_rows, mix) for name, mix in TABLE_MIXTURES.items()}, kind)
    rule = TokenRule.of(network) if kind == "tokens" else None
    return _named({name: partial(_mixed_symbols, mix, rule) for name, mix in SYMBOL_MIXTURES.items()}, kind)


def _named(makers: Mapping[str, Callable[[Any, int], Any]], kind: str) -> dict[str, PseudoUnknown]:
    return {name: PseudoUnknown(name, kind, make) for name, make in makers.items()}


def _mixed_kind(inputs: Any) -> str:
    kind = "image" if _are_images(inputs) else kind_of(inputs)
    if kind == "text":
        raise InputError("expected token ids, got texts; encode them first, with network.encode(texts)")
    return kind


def _are_images(inputs: Any) -> bool:
    """Whether these are images, of any range: mixtures and faults see them brought to [0, 1]."""
    return isinstance(inputs, Tensor) and inputs.ndim in (3, 4)


def _faulty(template: Template, severity: int, inputs: Any, seed: int) -> Any:
    return template(inputs, severity, seed=seed)


def _in_unit_range(make: Callable[[Tensor, int], Tensor], images: Tensor, seed: int) -> Tensor:
    """Images of any range, made from images in [0, 1]: normalised ones are brought there and back."""
    if images.dtype == torch.uint8:
        return make(images, seed)
    low, high = images.aminmax()
    if low >= 0 and high <= 1:
        return make(images, seed)
    width = (high - low).clamp(min=torch.finfo(images.dtype).tiny)
    return make(((images - low) / width).clamp(0, 1), seed) * width + low


def _mixed_images(mix: Callable[..., Tensor], images: Tensor, seed: int) -> Tensor:
    """Images (N, H, W) or (N, C, H, W) of any range, mixed in single precision and cut to that range."""
    whole = images[:, None] if images.ndim == 3 else images

    def mixed(block: Tensor, generator: torch.Generator) -> Tensor:
        if block.dtype == torch.uint8:
            return as_pixels(mix(as_fractions(block), generator), block.dtype)
        low, high = block.aminmax()
        return mix(as_fractions(block), generator).clamp(low.float(), high.float()).to(block.dtype)

    return _by_blocks(mixed, whole, seed).view_as(images)


def _mixed_rows(mix: Callable[..., Tensor], rows: Tensor, seed: int) -> Tensor:
    return _by_blocks(mix, rows, seed)


def _mixed_symbols(mix: Callable[..., Tensor], rule: TokenRule | None, inputs: Inputs, seed: int) -> Inputs:
    """Tokens, or bytes where there is no rule: anything that is no byte is padding."""
    ids = token_ids(inputs)
    free = (ids >= 0) & (ids < VALUES) if rule is None else rule.free(inputs)
    mixed = mix(ids, free, torch.Generator().manual_seed(seed))
    if isinstance(inputs, Tensor):
        return mixed.to(inputs.dtype)
    return {**inputs, IDS: mixed.to(inputs[IDS].dtype)}


def _by_blocks(mix: Callable[[Tensor, torch.Generator], Tensor], inputs: Tensor, seed: int) -> Tensor:
    """Every block of rows mixed on its own: memory is that of the result and of one block."""
    generator = torch.Generator().manual_seed(seed)
    size = max(FEWEST * 16, BLOCK // max(1, inputs[0].numel()))
    result = torch.empty_like(inputs)
    count = -(-len(inputs) // size)
    for block, place in zip(inputs.tensor_split(count), result.tensor_split(count), strict=True):
        place.copy_(mix(block, generator))
    return result
