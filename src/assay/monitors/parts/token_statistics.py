"""Statistics of token ids: how long, repetitive and unusual a text is, by the counts of known texts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.monitors.parts.gathered import Gathered

ORDINARY = frozenset(" .,;:!?'\"()-")
"""Characters that are ordinary besides letters and digits."""

PIECE_MARKS = ("##", "Ġ", "▁", "</w>")
"""How tokenizers mark the place of a piece in its word; no part of the text."""

PADDING = -1


def token_facts(tokens: Sequence[str], unknown: str | None) -> Tensor:
    """(V, 3), for every token id: its characters, how many of them are unusual, and whether it stands for
    what the tokenizer does not know.

    >>> token_facts(["[UNK]", "film", "##s", "☃!"], unknown="[UNK]").tolist()
    [[0.0, 0.0, 1.0], [4.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 1.0, 0.0]]
    """
    return torch.tensor([_facts(token, token == unknown) for token in tokens], dtype=torch.float32)


def _facts(token: str, unknown: bool) -> tuple[float, float, float]:
    if unknown or (token.startswith(("[", "<")) and token.endswith(("]", ">")) and len(token) > 2):
        return 0.0, 0.0, float(unknown)  # marks such as [SEP] are no text
    for mark in PIECE_MARKS:
        token = token.replace(mark, "")
    unusual = sum(not (letter.isalnum() or letter in ORDINARY) for letter in token)
    return float(len(token)), float(unusual), 0.0


def padded(ids: Tensor, mask: Tensor | None) -> Tensor:
    """Ids in 64 bits, with PADDING where the mask is 0."""
    ids = ids.long()
    return ids if mask is None else torch.where(mask.bool(), ids, PADDING)


def add_counts(counts: Tensor, more: Tensor) -> Tensor:
    """The sum of two counts by token id, as long as the longer one."""
    longer, shorter = (counts, more) if len(counts) >= len(more) else (more, counts)
    total = longer.clone()
    total[: len(shorter)] += shorter
    return total


class TokenCounts(Gathered):
    """How often every token id occurred, by the name of the input."""

    def __init__(self) -> None:
        self.counts: dict[str, Tensor] = {}

    def add(self, name: str, found: Tensor) -> None:
        self.counts[name] = add_counts(self.counts.get(name, found[:0]), found)

    def merge(self, other: "TokenCounts") -> None:
        for name, found in other.counts.items():
            self.add(name, found)


def surprise_table(counts: Tensor) -> Tensor:
    """(V + 1, 2), for every id and, last, all others: -ln of its share, each count raised by one (Laplace),
    and whether it was never seen."""
    raised = torch.cat([counts.double(), torch.zeros(1, dtype=torch.float64)])
    surprise = torch.log(raised.sum() + len(raised)) - torch.log1p(raised)
    return torch.stack([surprise, (raised == 0).double()], dim=1)


def token_statistics(ids: Tensor, table: Tensor, facts: Tensor | None) -> Tensor:
    """(N, 4), with facts (N, 7), of ids (N, T) in which PADDING stands for none.

    Log length; share of tokens that repeat an earlier one; mean surprise and share of unseen tokens by the
    table; by the facts: characters per token, share of unusual characters, share of unknown tokens.
    """
    return torch.cat([_shape(ids), _averages(ids, _looked_up(ids, table), facts)], dim=1)


def own_token_statistics(ids: Tensor, counts: Tensor, facts: Tensor | None) -> Tensor:
    """The same for rows that are in the counts themselves, each by the counts of all others."""
    raised = torch.cat([counts.double(), torch.zeros(1, dtype=torch.float64)])
    own = (ids[:, :, None] == ids[:, None, :]).sum(dim=2)
    others = (_looked_up(ids, raised[:, None])[..., 0] - own).clamp(min=0)
    total = raised.sum() + len(raised) - (ids >= 0).sum(dim=1, keepdim=True)
    surprise = torch.log(total) - torch.log1p(others)
    return torch.cat(
        [_shape(ids), _averages(ids, torch.stack([surprise, (others == 0).double()], dim=2), facts)], dim=1
    )


def _looked_up(ids: Tensor, table: Tensor) -> Tensor:
    """The table's row for every id; ids beyond it, and padding, take the last."""
    last = len(table) - 1
    return table[torch.where((ids < 0) | (ids > last), last, ids)]


def _shape(ids: Tensor) -> Tensor:
    """Log length, and the share of tokens that repeat an earlier one."""
    length = (ids >= 0).sum(dim=1).clamp(min=1).double()
    ordered = ids.sort(dim=1).values
    again = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).sum(dim=1)
    return torch.stack([length.log(), again.double() / length], dim=1)


def _averages(ids: Tensor, looked_up: Tensor, facts: Tensor | None) -> Tensor:
    """Means over the tokens of a row; characters per token, and of these the unusual."""
    used = (ids >= 0).double()[:, :, None]
    length = used.sum(dim=1).clamp(min=1)
    means = (looked_up * used).sum(dim=1) / length
    if facts is None:
        return means
    none = torch.cat([facts, torch.zeros(1, facts.shape[1])]).double()
    sums = (_looked_up(ids, none) * used).sum(dim=1)
    unusual = sums[:, 1:2] / sums[:, :1].clamp(min=1)
    return torch.cat([means, sums[:, :1] / length, unusual, sums[:, 2:] / length], dim=1)
