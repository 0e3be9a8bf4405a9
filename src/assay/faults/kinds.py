"""What inputs are, images, a table, texts, tokens or bytes, and the faults that belong to them."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.anomaly import ANOMALY
from assay.faults.attacks import Attack
from assay.faults.byte_rows import BYTES
from assay.faults.noise import NOISE
from assay.faults.shift import SHIFT
from assay.faults.tabular import TABULAR
from assay.faults.template import Template, check_images
from assay.faults.text import TEXT
from assay.faults.tokens import IDS, TOKENS, TokenRule, faults_by
from assay.network import Network

IMAGES: Mapping[str, Template] = {**NOISE, **SHIFT, **ANOMALY}

Asked = Iterable[str | Template | Attack]
"""Faults, by name or as they are."""


def kind_of(inputs: Any, asked: Asked = ()) -> str:
    """ "image", "tabular", "text", "tokens" or "bytes": which faults are for these inputs.

    Rows (N, L) of whole numbers are tokens, unless they are uint8 or a fault of bytes is among those `asked`
    for.

    >>> kind_of(torch.rand(4, 1, 8, 8)), kind_of(torch.rand(4, 3)), kind_of(["a text", "another"])
    ('image', 'tabular', 'text')
    >>> ids = torch.tensor([[101, 7592, 102]])
    >>> kind_of({"input_ids": ids}), kind_of(ids), kind_of(ids, ["bit_flips"]), kind_of(ids.to(torch.uint8))
    ('tokens', 'tokens', 'bytes', 'bytes')
    """
    if isinstance(inputs, Mapping):
        _check_tokens(inputs)
        return "tokens"
    if isinstance(inputs, list | tuple) and inputs and all(isinstance(row, str) for row in inputs):
        return "text"
    if not isinstance(inputs, Tensor):
        raise InputError(
            f"expected a tensor, a dict with {IDS!r} or a list of texts, got {type(inputs).__name__}; "
            "convert arrays with torch.as_tensor"
        )
    if inputs.ndim != 2:
        check_images(inputs)
        return "image"
    if inputs.is_floating_point():
        return "tabular"
    return "bytes" if inputs.dtype == torch.uint8 or any(map(_is_of_bytes, asked)) else "tokens"


def templates_for(inputs: Any, network: Network | None = None, asked: Asked = ()) -> Mapping[str, Template]:
    """Every fault of this kind of inputs, by name; those of tokens leave the network's padding alone.

    >>> sorted({template.category for template in templates_for(torch.rand(4, 3)).values()})
    ['anomaly', 'noise', 'shift']
    """
    return templates_of(kind_of(inputs, asked), network)


def templates_of(kind: str, network: Network | None = None) -> Mapping[str, Template]:
    """Every fault of a kind that is known already."""
    if kind == "tokens":
        return faults_by(TokenRule.of(network))
    return {"image": IMAGES, "tabular": TABULAR, "text": TEXT, "bytes": BYTES}[kind]


def _is_of_bytes(fault: str | Template | Attack) -> bool:
    """Whether a fault is for bytes; a name that tokens have, too, says nothing."""
    if isinstance(fault, str):
        return fault in BYTES and fault not in TOKENS
    return getattr(fault, "kind", "") == "bytes"


def _check_tokens(inputs: Mapping[str, Any]) -> None:
    if IDS not in inputs:
        raise InputError(
            f"expected images, rows, texts, bytes or tokens, got a dict of {sorted(inputs)}; tokens in a "
            f"dict are called {IDS!r}"
        )
