"""NGram: how likely tokens follow each other in texts one has, as next-token logits for a CausalLM."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from assay.errors import InputError

MOST_COUNTS = 2**26
"""Contexts x values: 256 MB. Beyond it, a lower order or fewer values is the way."""


class NGram:
    """Counts of `order` tokens in a row, each order backed by the one below, and the lowest by equal shares.

    p_n(v | context) = (count(context, v) + prior p_(n-1)(v | shorter)) / (count(context) + prior), so that
    every token has a probability. Use it as a base: `CausalLM(ngram, values, length, start=ngram.start)`.

    >>> pairs = NGram([[0, 1, 0, 1, 0]], values=2, order=2, prior=1.0)
    >>> pairs(torch.tensor([[0]])).exp().round(decimals=2)  # after 0: (0 + 0.58) / 3 and (2 + 0.42) / 3
    tensor([[[0.1900, 0.8100]]])
    """

    def __init__(
        self, sequences: Iterable[Sequence[int]], values: int, order: int = 2, prior: float = 1.0
    ) -> None:
        rows = [torch.as_tensor(row, dtype=torch.int64).flatten() for row in sequences]
        tokens = torch.cat(rows) if rows else torch.empty(0, dtype=torch.int64)
        if not len(tokens) or int(tokens.min()) < 0 or int(tokens.max()) >= values:
            raise InputError(
                f"expected sequences of tokens from 0 to {values - 1}, got "
                f"{f'{int(tokens.min())} to {int(tokens.max())}' if len(tokens) else 'none'}; use the "
                "tokenizer whose number of tokens is values"
            )
        if not 1 <= order <= 5 or not prior > 0 or values**order >= 2**63:
            raise InputError(
                "expected an order from 1 to 5 with values^order below 2^63, and a prior above 0, got "
                f"order={order} and prior={prior}; an order of 2 or 3 is usual"
            )
        self.values, self.prior = values, prior
        self.tables = [self._counted(rows, length) for length in range(order)]

    def _counted(self, rows: list[Tensor], length: int) -> tuple[Tensor, Tensor]:
        """The contexts of this length as sorted numbers, and how often each token followed them."""
        pairs = [self._pairs(row, length) for row in rows if len(row) > length]
        nothing = torch.zeros(0, dtype=torch.int64)
        contexts = torch.cat([nothing, *(context for context, _ in pairs)])
        following = torch.cat([nothing, *(after for _, after in pairs)])
        known, place = torch.unique(contexts, return_inverse=True)
        if len(known) * self.values > MOST_COUNTS:
            raise InputError(
                f"expected at most {MOST_COUNTS} counts, got {len(known)} contexts of {length} tokens times "
                f"{self.values} values; lower the order or number the tokens that occur"
            )
        counts = torch.zeros(len(known) * self.values)
        counts.index_add_(0, place * self.values + following, torch.ones(len(following)))
        return known, counts.reshape(len(known), self.values)

    def _pairs(self, row: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Every context in a sequence, and the token after it."""
        if not length:
            return torch.zeros_like(row), row
        return self._numbers(row[None, :-1], length)[0, length - 1 :], row[length:]

    def _numbers(self, tokens: Tensor, length: int) -> Tensor:
        """The last `length` tokens up to each position as one number; meaningless where there are fewer."""
        numbers = torch.zeros_like(tokens)
        for back in range(length - 1, -1, -1):
            shifted = torch.nn.functional.pad(tokens, (back, 0))[:, : tokens.shape[1]]
            numbers = numbers * self.values + shifted
        return numbers

    @property
    def start(self) -> Tensor:
        """Logits of a token that nothing precedes."""
        return self._lowest().log()

    def _lowest(self) -> Tensor:
        counts = self.tables[0][1][0]
        return (counts + self.prior / self.values) / (counts.sum() + self.prior)

    def __call__(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens to (B, T, values) log-probabilities of what follows each."""
        shares = self._lowest().expand(*tokens.shape, -1)
        for length, (known, counts) in enumerate(self.tables[1:], start=1):
            if not len(known):
                break
            numbers = self._numbers(tokens, length)
            place = torch.searchsorted(known, numbers).clamp(max=len(known) - 1)
            here = torch.arange(tokens.shape[1]) >= length - 1
            met, found = (known[place] == numbers) & here, counts[place]
            mixed = (found + self.prior * shares) / (found.sum(dim=-1, keepdim=True) + self.prior)
            shares = torch.where(met[..., None], mixed, shares)
        return shares.log()
