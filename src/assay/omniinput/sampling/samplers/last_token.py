"""The last token summed over instead of drawn: all its values counted in bins, a few chosen as examples."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.output_bins import bin_index
from assay.omniinput.sampling.samplers.sequences import Sequences
from assay.omniinput.sampling.vocabulary import blocks

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class LastToken:
    """The bins of all completions of a batch of prefixes, found block by block where the logits are."""

    batch: Sequences
    edges: Array

    def counts(self) -> Array:
        """How many tokens take each prefix to each bin: (rows, bins)."""
        bins = len(self.edges) - 1
        rows = len(self.batch.outputs)
        found = np.empty((rows, bins))
        for part in blocks(self.batch.last.logits, rows):
            number = self._numbers(part)
            number += torch.arange(len(number), device=number.device)[:, None] * (bins + 2)
            counted = torch.bincount(number.flatten(), minlength=len(number) * (bins + 2))
            found[part] = counted.reshape(len(number), -1)[:, 1:-1].cpu().numpy()
        return found

    def chosen(self, rows: Index, bins: Index, generator: np.random.Generator) -> Tensor:
        """A token for each pair of prefix and bin, at random among those that lead there, none twice."""
        pairs, mine = np.unique(rows * len(self.edges) + bins, return_inverse=True)
        times, by_pair = np.bincount(mine), np.argsort(mine, kind="stable")
        tokens = torch.empty(len(rows), dtype=torch.int64)
        for part in blocks(self.batch.last.logits, len(pairs)):
            row, which = np.divmod(pairs[part], len(self.edges))
            number = self._numbers(row)
            reached = (number == torch.from_numpy(which + 1).to(number.device)[:, None]).cumsum(dim=1)
            ranks = _ranks(reached[:, -1].cpu().numpy(), times[part], generator)
            found = torch.searchsorted(reached, torch.from_numpy(ranks).to(number.device)).cpu()
            first = times[: part.start].sum()
            asked = torch.from_numpy(by_pair[first : first + times[part].sum()])
            tokens[asked] = found[torch.from_numpy(ranks > 0)]
        return tokens

    def _numbers(self, part: slice | Index) -> Tensor:
        """The bin of every completion, counted from one; zero and the number after the last lie outside."""
        last, bins = self.batch.last, len(self.edges) - 1
        log_probs = last.log_probs(part)
        device, before = log_probs.device, self.batch.outputs[part]
        widths = np.diff(self.edges)
        if np.allclose(widths, widths[0], rtol=1e-9):
            offset = torch.from_numpy((before - self.edges[0]) / widths[0]).float().to(device)
            place = log_probs.mul_(-1 / widths[0]).add_(offset[:, None]).floor_()
            number = place.clamp_(-1, bins).add_(1).to(torch.int64)
        else:
            outputs = torch.from_numpy(before).float().to(device)[:, None] - log_probs
            number = torch.bucketize(outputs, torch.from_numpy(self.edges).float().to(device), right=True)
        if last.ended is not None and bool(last.ended[part].any()):
            ended = last.ended[part].to(device)
            number[ended] = 0
            number[ended, last.end] = torch.from_numpy(bin_index(before, self.edges) + 1).to(device)[ended]
        return number


def _ranks(members: Index, times: Index, generator: np.random.Generator) -> Index:
    """So many different numbers from 1 to `members` in every row, at random; zeros fill up the row."""
    ranks = np.zeros((len(members), times.max()), dtype=np.int64)
    ranks[:, 0] = 1 + generator.integers(members)
    for row in np.flatnonzero(times > 1):
        ranks[row, : times[row]] = 1 + generator.choice(members[row], times[row], replace=False)
    return ranks
