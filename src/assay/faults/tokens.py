"""Faults of rows of token ids (N, L): wrong, unknown, lost, repeated and misplaced tokens, texts cut short.

For networks that take token ids; where texts are at hand, `assay.faults.TEXT` is nearer to what happens.
Padding and special tokens are never changed and never lost. New tokens are drawn from those of all rows, so
that every id is one the network knows. With one seed, the places changed at one severity are changed at all
higher ones. Every row with tokens that may change is changed; by `changed_vocabulary` those that contain one
of the tokens it chose.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.faults.symbol_faults import lost_start, pushed_in, shuffled_run, truncation
from assay.faults.symbols import (
    LOST,
    Corrupt,
    chosen,
    closed_up,
    drawn,
    first,
    pairs,
    with_pairs_swapped,
)
from assay.faults.template import check_severity
from assay.network import Network
from assay.trace import Inputs

IDS, MASK = "input_ids", "attention_mask"


@dataclass(frozen=True)
class TokenRule:
    """Which places of rows of tokens may change: none with padding or a special token.

    Padding is where `attention_mask` is 0 or, without one, where a token is `padding`. `unknown` is what a
    tokenizer writes for a word it does not know, where there is such a token.
    """

    padding: int = 0
    special: frozenset[int] = frozenset()
    unknown: int | None = None

    @classmethod
    def of(cls, network: Network | None) -> "TokenRule":
        """The padding and the special tokens of a network's tokenizer or, without one, its embedding."""
        tokenizer = getattr(network, "tokenizer", None)
        if tokenizer is not None:
            special = frozenset(int(token) for token in getattr(tokenizer, "all_special_ids", ()))
            unknown = getattr(tokenizer, "unk_token_id", None)
            return cls(int(getattr(network, "padding", 0)), special, unknown)
        parts = () if network is None else network.module.modules()
        known = (part.padding_idx for part in parts if isinstance(part, nn.Embedding))
        return cls(next((int(token) for token in known if token is not None), 0))

    def free(self, inputs: Inputs) -> Tensor:
        """(N, L): the places that may change."""
        ids = token_ids(inputs)
        mask = inputs.get(MASK) if isinstance(inputs, Mapping) else None
        kept = ids == self.padding if mask is None else mask == 0
        return ~kept & ~torch.isin(ids, torch.tensor(sorted(self.special), dtype=torch.long))


@dataclass(frozen=True)
class TokenFault:
    """A fault of token ids (N, L), or of a dict with `input_ids` and perhaps `attention_mask`.

    Where tokens are lost, those behind move up, with their entries in all other columns, and padding fills
    the row, on the side where it is padded already.
    """

    name: str
    category: str
    corrupt: Corrupt
    rule: TokenRule = TokenRule()
    kind: str = "tokens"

    def __call__(self, inputs: Inputs, severity: int, seed: int = 0) -> Inputs:
        check_severity(severity)
        ids, free = token_ids(inputs), self.rule.free(inputs)
        changed = self.corrupt(ids, free, severity, torch.Generator().manual_seed(seed))
        close = partial(closed_up, lost=changed == LOST, at_the_start=self._padded_at_the_start(inputs, ids))
        found = close(changed, fill=self.rule.padding)
        if isinstance(inputs, Tensor):
            return found.to(inputs.dtype)
        moved = {
            name: close(column, fill=0) if column.shape == ids.shape else column
            for name, column in inputs.items()
        }
        return moved | {IDS: found.to(inputs[IDS].dtype)}

    def _padded_at_the_start(self, inputs: Inputs, ids: Tensor) -> bool:
        """Whether padding stands at the start of some row, and at the end of none."""
        mask = inputs.get(MASK) if isinstance(inputs, Mapping) else None
        padded = ids == self.rule.padding if mask is None else mask == 0
        return bool(padded[:, 0].any()) and not bool(padded[:, -1].any())


def token_noise(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """5, 10, 20, 40 or 60 % of the tokens are others, drawn from those of all rows."""
    struck = chosen(free, _SHARES[severity - 1], generator)
    return torch.where(struck, drawn(ids, free, generator), ids)


def inserted_tokens(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """5, 10, 20, 40 or 60 % of the tokens are strays that push those behind on; the last fall out."""
    struck = chosen(free, _SHARES[severity - 1], generator)
    return pushed_in(ids, free, struck, drawn(ids, free, generator))


def changed_vocabulary(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """5, 10, 20, 40 or 60 % of the distinct tokens are others throughout, as from another tokenizer."""
    known: Tensor = torch.unique(ids[free])
    if len(known) < 2:
        return ids
    order = torch.randperm(len(known), generator=generator)
    changed = order[: math.ceil(_SHARES[severity - 1] * len(known))]
    # Each becomes the next in a random round of all, so none stays.
    others = known.scatter(0, changed, known[order.roll(-1)[: len(changed)]])
    places = torch.searchsorted(known, ids.contiguous()).clamp(max=len(known) - 1)
    return torch.where(free, others[places], ids)


@dataclass(frozen=True)
class UnknownTokens:
    """5, 10, 20, 40 or 60 % of the tokens arrive as the one for unknown words, or else as the rarest one."""

    unknown: int | None

    def __call__(self, ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
        struck = chosen(free, _SHARES[severity - 1], generator)
        return ids.masked_fill(struck, _rarest(ids[free]) if self.unknown is None else self.unknown)


def token_order(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """20, 40, 60, 80 or 100 % of the pairs of neighbours have changed places."""
    return with_pairs_swapped(ids, chosen(pairs(free).all(dim=2), severity / 5, generator))


def lost_tokens(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """5, 10, 20, 40 or 60 % of the tokens are missing, and those behind move up; one is always left."""
    struck = chosen(free, _SHARES[severity - 1], generator)
    whole = (struck.sum(dim=1) == free.sum(dim=1))[:, None]
    return ids.masked_fill(struck & ~(whole & first(free, 0.0)), LOST)


def repeated_tokens(ids: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """5, 10, 20, 40 or 60 % of the tokens repeat the one before, as from a source that is stuck."""
    follows = free & free.roll(1, dims=1)
    follows[:, 0] = False
    struck = chosen(follows, _SHARES[severity - 1], generator)
    return torch.where(struck, ids.roll(1, dims=1), ids)


_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)


def _rarest(tokens: Tensor) -> int:
    known, counts = torch.unique(tokens, return_counts=True)
    return int(known[counts.argmin()]) if len(known) else 0


def token_faults(
    *, padding: int = 0, special: Collection[int] = (), unknown: int | None = None
) -> dict[str, TokenFault]:
    """All faults of tokens by name, which leave `padding` and `special` tokens alone."""
    return faults_by(TokenRule(padding, frozenset(special), unknown))


def faults_by(rule: TokenRule) -> dict[str, TokenFault]:
    return {
        name: TokenFault(name, category, corrupt, rule)
        for name, category, corrupt in (
            ("token_noise", "noise", token_noise),
            ("token_order", "noise", token_order),
            ("inserted_tokens", "noise", inserted_tokens),
            ("changed_vocabulary", "shift", changed_vocabulary),
            ("unknown_tokens", "anomaly", UnknownTokens(rule.unknown)),
            ("lost_tokens", "anomaly", lost_tokens),
            ("repeated_tokens", "anomaly", repeated_tokens),
            ("shuffled_run", "anomaly", shuffled_run),
            ("truncation", "anomaly", truncation),
            ("lost_start", "anomaly", lost_start),
        )
    }


def token_ids(inputs: Inputs) -> Tensor:
    """The ids as int64 (N, L), from a tensor or a dict."""
    ids = inputs.get(IDS) if isinstance(inputs, Mapping) else inputs
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or not len(ids):
        found = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(inputs).__name__
        raise InputError(
            f"expected token ids of shape (N, L), or a dict with {IDS!r}, got {found}; for texts use "
            "assay.faults.TEXT"
        )
    return ids.long()


TOKENS = token_faults()
