"""Faults of rows of token ids (N, L): wrong, lost, repeated and misplaced tokens, and texts cut short.

For networks that take token ids; where texts are at hand, `assay.faults.TEXT` is nearer to what happens.
Padding and special tokens are never changed and never lost. New tokens are drawn from those of all rows, so
that every id is one the network knows. With one seed, the places changed at one severity are changed at all
higher ones. Every row with a token that may change is changed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.faults.symbols import (
    LOST,
    Corrupt,
    chosen,
    closed_up,
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

    Padding is where `attention_mask` is 0 or, without one, where a token is `padding`.
    """

    padding: int = 0
    special: frozenset[int] = frozenset()

    @classmethod
    def of(cls, network: Network | None) -> "TokenRule":
        """The padding and the special tokens of a network's tokenizer or, without one, its embedding."""
        tokenizer = getattr(network, "tokenizer", None)
        if tokenizer is not None:
            special = frozenset(int(token) for token in tokenizer.all_special_ids)
            return cls(int(getattr(network, "padding", 0)), special)
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
    known = ids[free]
    if not len(known):
        return ids
    others = known[torch.randint(0, len(known), ids.shape, generator=generator)]
    return torch.where(struck, others, ids)


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


def truncation(ids: Tensor, free: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """Only the first 80, 60, 40, 25 or 10 % of the tokens arrive, at least one."""
    kept = first(free, (0.8, 0.6, 0.4, 0.25, 0.1)[severity - 1])
    return ids.masked_fill(free & ~kept, LOST)


_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6)


def token_faults(*, padding: int = 0, special: Collection[int] = ()) -> dict[str, TokenFault]:
    """All faults of tokens by name, which leave `padding` and `special` tokens alone."""
    return faults_by(TokenRule(padding, frozenset(special)))


def faults_by(rule: TokenRule) -> dict[str, TokenFault]:
    return {
        name: TokenFault(name, category, corrupt, rule)
        for name, category, corrupt in (
            ("token_noise", "noise", token_noise),
            ("token_order", "noise", token_order),
            ("lost_tokens", "anomaly", lost_tokens),
            ("repeated_tokens", "anomaly", repeated_tokens),
            ("truncation", "anomaly", truncation),
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
