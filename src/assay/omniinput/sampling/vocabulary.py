"""The next token of every row of a batch: sums over the vocabulary and draws, where the logits are.

A language model of today has 50,000 to 250,000 tokens, so that what is done once per token and temperature
costs as much as the model. Here the logits stay on the model's device and in its precision. Blocks of rows
that fit the processor's cache are raised to one inverse temperature after the other by multiplication, and a
token is drawn by its cumulated probability in two steps (cell, then token), so that one random number serves
a row. Nothing of size rows x vocabulary is copied or kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.omniinput.sampling.problem import SamplingError

AT_ONCE = 2**17  # entries x betas; with fewer, calls cost more than numbers
CPU_BLOCK, DEVICE_BLOCK = 2**19, 2**25  # entries that are worked on at once
KEPT = 2**21  # probabilities that are kept rather than computed again
POWERS_BLOCK = 2**17  # the same on a CPU where several arrays of that size must fit its cache
FINEST = 4096  # betas that are multiples of 1 / FINEST share powers
MOST_PRODUCTS = 16  # a power is a product of at most so many smaller ones; beyond it, rounding would add up


@dataclass(frozen=True)
class Tilt:
    """psi(v) for each of K betas, by which the probabilities of a position are multiplied: (K, values)."""

    log_psi: Tensor

    @cached_property
    def top(self) -> Tensor:
        return self.log_psi.amax(dim=1)

    @cached_property
    def weights(self) -> Tensor:
        """psi, scaled so that the largest is one."""
        return (self.log_psi - self.top[:, None]).exp()

    def part(self, betas: slice) -> "Tilt":
        """Of some of the betas."""
        return self if betas == slice(0, len(self.log_psi)) else Tilt(self.log_psi[betas])

    def of(self, tokens: Tensor) -> Tensor:
        """ln psi of these tokens at every beta, (rows, K), in double precision."""
        return self.log_psi[:, tokens.to(self.log_psi.device)].T.to("cpu", torch.float64)

    def own(self, which: Tensor, tokens: Tensor) -> Tensor:
        """ln psi of tokens, each at the beta with this number, (rows,), in double precision."""
        device = self.log_psi.device
        return self.log_psi[which.to(device), tokens.to(device)].to("cpu", torch.float64)


@dataclass(frozen=True)
class NextTokens:
    """What may follow each row: logits (distinct rows, values), and which of them each row of the batch has.

    Rows with a common prefix share one row of logits. `log_totals` is ln sum exp of the logits, unless the
    first token is free; then it is zero, and so are the logits. A row that has `ended` continues with `end`
    and nothing else, which costs nothing.
    """

    logits: Tensor
    log_totals: Tensor  # (distinct rows,), double, on the CPU
    lows: Tensor  # smallest and largest logit of each distinct row, single, on the model's device
    highs: Tensor
    row: Tensor  # (rows,), on the CPU
    ended: Tensor | None = None  # (rows,), on the CPU
    end: int = -1
    apart: bool = False  # every row has logits of its own, in this order

    @classmethod
    def after(
        cls,
        logits: Tensor,
        row: Tensor | None = None,
        allowed: Tensor | None = None,
        ended: Tensor | None = None,
        end: int = -1,
    ) -> "NextTokens":
        """Checked and normalised; an error if a logit is not finite. With `allowed`, of those tokens alone,
        with their probabilities among all."""
        totals = torch.empty(len(logits), dtype=torch.float64)
        lows, highs = logits.amin(dim=1).float(), logits.amax(dim=1).float()
        if not bool(torch.isfinite(lows + highs).all()):
            raise SamplingError(
                "expected finite next-token logits, got NaN or infinity; every sequence of the space needs a "
                "finite likelihood, so give impossible tokens a very low logit instead of minus infinity"
            )
        for part in blocks(logits):
            totals[part] = _softmax(logits[part].float(), highs[part])[1].cpu()
        if allowed is not None:
            logits = logits[:, allowed]
            lows, highs = logits.amin(dim=1).float(), logits.amax(dim=1).float()
        every = torch.arange(len(logits)) if row is None else row
        return cls(logits, totals, lows, highs, every, ended, end, row is None)

    @classmethod
    def free(cls, values: int, rows: int, device: torch.device) -> "NextTokens":
        """Every token has log "probability" zero: S(beta) = values, and no formula needs a special case."""
        nothing = torch.zeros(1, device=device)
        return cls(
            torch.zeros(1, values, device=device),
            torch.zeros(1, dtype=torch.float64),
            nothing,
            nothing,
            torch.zeros(rows, dtype=torch.int64),
        )

    @property
    def values(self) -> int:
        return self.logits.shape[1]

    def of(self, tokens: Tensor) -> Tensor:
        """ln p of one token per row, (rows,), in double precision."""
        device = self.logits.device
        chosen = self.logits[self.row.to(device), tokens.to(device)]
        return self.unless_ended(chosen.to("cpu", torch.float64) - self.log_totals[self.row])

    def unless_ended(self, found: Tensor, otherwise: int = 0) -> Tensor:
        """What was found per row; zero, or `otherwise`, for a row that has ended."""
        if self.ended is None:
            return found
        return found.masked_fill(self.ended.reshape(-1, *[1] * (found.ndim - 1)), otherwise)

    def picked(self, rows: Tensor) -> "NextTokens":
        """For some rows, in this order."""
        ended = None if self.ended is None else self.ended[rows]
        return replace(self, row=self.row[rows], ended=ended, apart=False)

    def log_probs(self, rows: slice | NDArray[np.int64]) -> Tensor:
        """ln p of every token after some rows of the batch, (rows, values), single, on the model's device."""
        distinct = self.row[rows].to(self.logits.device)
        totals = self.log_totals[self.row[rows]].float().to(self.logits.device)
        return self.logits[distinct].float() - totals[:, None]

    def log_normalisers(self, betas: Tensor, tilt: Tilt | None = None) -> Tensor:
        """ln S(beta) = ln sum_v p(v)^beta psi(v) for every row and beta: (rows, K), in double precision."""
        return self.unless_ended(self._sums(betas, tilt)[self.row])

    def weighed(self, betas: Tensor, own: Tensor, tilt: Tilt | None = None) -> "Weighed":
        """Ready to draw from p^beta psi / S(beta) at the beta with number `own` of each row."""
        device = self.logits.device
        pairs, pair = torch.stack([self.row, own]), torch.arange(len(own))
        if not self.apart:
            numbers, pair = torch.unique(self.row * len(betas) + own, return_inverse=True)
            pairs = torch.stack([numbers // len(betas), numbers % len(betas)])
        count = pairs.shape[1]
        cells = torch.empty(count, -(-self.values // cell_size(self.values)), device=device)
        log_sums = torch.empty(count, dtype=torch.float64)
        every = torch.empty(count, self.values, device=device) if count * self.values <= KEPT else None
        for part in blocks(self.logits, count):
            row, which = (index.to(device) for index in pairs[:, part])
            logits = (self.logits[part] if self.apart else self.logits[row]).float()
            beta = betas.to(device)[which].float()[:, None]
            if tilt is None:
                exponents = logits * beta
            else:
                exponents = torch.addcmul(tilt.log_psi.index_select(0, which), logits, beta)
            weights, found = _softmax(exponents, out=None if every is None else every[part])
            cells[part], log_sums[part] = _cells(weights), found.cpu()
        return Weighed(self, betas, own, tilt, cells, log_sums, pairs, pair, every)

    def _offsets(self, pairs: Tensor, betas: Tensor, tilt: Tilt | None) -> Tensor:
        """What the scaled sums of (row, beta) pairs lack: beta (reference - log total), and the scale of
        psi."""
        (row, which), lows, highs = pairs, self.lows.double().cpu(), self.highs.double().cpu()
        beta = betas[which]
        found = beta * (torch.where(beta < 0, lows[row], highs[row]) - self.log_totals[row])
        return found if tilt is None else found + tilt.top.double().cpu()[which]

    def _sums(self, betas: Tensor, tilt: Tilt | None) -> Tensor:
        """ln S of every distinct row and beta."""
        count, device = len(betas), self.logits.device
        if self.logits.numel() * count <= AT_ONCE:
            each = betas.float().to(device)
            reference = torch.where(each < 0, self.lows[:, None], self.highs[:, None])
            weights = (self.logits.float()[:, None] - reference[:, :, None]).mul_(each[:, None]).exp_()
            sums = weights.sum(dim=2) if tilt is None else weights.mul_(tilt.weights).sum(dim=2)
        else:
            sums = self._sums_of_blocks(betas, tilt)
        grid = torch.cartesian_prod(torch.arange(len(sums)), torch.arange(count)).T
        return sums.double().log().cpu() + self._offsets(grid, betas, tilt).reshape(-1, count)

    def _sums_of_blocks(self, betas: Tensor, tilt: Tilt | None) -> Tensor:
        """Block by block, one beta after the other, so that memory stays that of the logits."""
        sums = torch.empty(len(self.logits), len(betas), device=self.logits.device)
        for part in blocks(self.logits, entries=POWERS_BLOCK):
            logits = self.logits[part].float()
            for number, power in powers(logits, self.lows[part], self.highs[part], betas.numpy()):
                sums[part, number] = power.sum(dim=1) if tilt is None else power @ tilt.weights[number]
        return sums


@dataclass(frozen=True)
class Weighed:
    """Rows with the probabilities of their next token added up over cells of the vocabulary."""

    tokens: NextTokens
    betas: Tensor
    own: Tensor
    tilt: Tilt | None
    cells: Tensor  # (pairs, cells); they add up to one
    log_sums: Tensor  # (pairs,) ln sum exp of beta x logit + ln psi, double, on the CPU
    pairs: Tensor  # (2, pairs) of distinct row of logits and number of a beta
    pair: Tensor  # (rows,)
    every: Tensor | None  # (pairs, values) the probabilities themselves, if they are few

    @cached_property
    def log_normalisers(self) -> Tensor:
        """ln S of every row at its own beta, (rows,), in double precision."""
        totals = self.tokens.log_totals[self.tokens.row]
        return self.tokens.unless_ended(self.log_sums[self.pair] - self.betas[self.own] * totals)

    def drawn(self, generator: torch.Generator) -> Tensor:
        """A token for every row, by the inverse of the cumulated probability: first its cell, then itself."""
        device = self.cells.device
        uniform = torch.rand(len(self.pair), dtype=torch.float64, generator=generator).to(device)
        cumulated = self.cells[self.pair.to(device)].double().cumsum(dim=1)
        target = uniform * cumulated[:, -1]
        cell = _first_above(cumulated, target)
        size = cell_size(self.tokens.values)
        inside = self._inside(self.pair, cell, size)
        below = torch.where(cell > 0, cumulated.gather(1, (cell - 1).clamp(min=0)[:, None])[:, 0], 0.0)
        found = _first_above(inside.double().cumsum(dim=1), target - below)
        return self.tokens.unless_ended((cell * size + found).cpu(), self.tokens.end)

    def shares(self) -> NDArray[np.float64]:
        """The probability of every cell of tokens after each row, (rows, cells)."""
        found: NDArray[np.float64] = self.cells.cpu()[self.pair].double().numpy()
        if self.tokens.ended is not None:
            ended = self.tokens.ended.numpy()
            found[ended] = np.arange(found.shape[1]) == self.tokens.end // cell_size(self.tokens.values)
        return found

    def inside(self, rows: NDArray[np.int64], cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of every token of one cell after each of some rows, (rows given, tokens)."""
        size, cell = cell_size(self.tokens.values), torch.from_numpy(cells).to(self.cells.device)
        inside = self._inside(self.pair[torch.from_numpy(rows)], cell, size)
        found: NDArray[np.float64] = inside.cpu().double().numpy()
        if self.tokens.ended is not None:
            ended = self.tokens.ended.numpy()[rows]
            found[ended] = cells[ended, None] * size + np.arange(size) == self.tokens.end
        return found

    def ahead(self, tokens: Tensor) -> Tensor:
        """ln psi of drawn tokens at every beta, (rows, K)."""
        if self.tilt is None:
            return torch.zeros(len(tokens), len(self.betas), dtype=torch.float64)
        return self.tokens.unless_ended(self.tilt.of(tokens))

    def _inside(self, pair: Tensor, cell: Tensor, size: int) -> Tensor:
        """p^beta psi of the tokens of one cell per pair, in the scale of the cells; zero beyond the last."""
        device = self.cells.device
        if self.every is not None and self.tokens.values % size == 0:
            return _of_cell(self.every, pair.to(device), cell, size)
        row, which = self.pairs[:, pair].to(device)
        exponents = _of_cell(self.tokens.logits, row, cell, size).float()
        exponents *= self.betas.to(device)[which].float()[:, None]
        if self.tilt is not None:
            exponents += _of_cell(self.tilt.log_psi, which, cell, size)
        found = exponents.sub_(self.log_sums[pair].float().to(device)[:, None]).exp_()
        if self.tokens.values % size:
            found *= cell[:, None] * size + torch.arange(size, device=device) < self.tokens.values
        return found


def _of_cell(table: Tensor, row: Tensor, cell: Tensor, size: int) -> Tensor:
    """The entries of one cell of some rows of a table; the last cell may be shorter, then it repeats."""
    values = table.shape[1]
    if values % size == 0 and table.is_contiguous():
        return table.view(-1, size).index_select(0, row * (values // size) + cell)
    place = cell[:, None] * size + torch.arange(size, device=table.device)
    return table[row[:, None], place.clamp(max=values - 1)]


def _softmax(
    exponents: Tensor, highs: Tensor | None = None, out: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Along each row, with ln sum exp in double precision; it is faster than exp itself.

    The largest weight belongs to the largest exponent, `highs` if known, so that the two give the sum.
    """
    weights = torch.softmax(exponents, dim=1, out=out)
    highs = exponents.amax(dim=1) if highs is None else highs
    return weights, highs.double() - weights.amax(dim=1).double().log()


def blocks(logits: Tensor, rows: int | None = None, entries: int = CPU_BLOCK) -> list[slice]:
    """Slices of rows that can be worked on at once; `entries` at most on a CPU."""
    entries = entries if logits.device.type == "cpu" else DEVICE_BLOCK
    size = max(1, entries // logits.shape[1])
    rows = len(logits) if rows is None else rows
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _first_above(cumulated: Tensor, target: Tensor) -> Tensor:
    """The first index whose cumulated weight exceeds the target; one of weight zero is never found."""
    most = torch.nextafter(cumulated[:, -1], torch.zeros((), dtype=torch.float64, device=target.device))
    target = torch.minimum(target.clamp(min=0.0), most)
    found = torch.searchsorted(cumulated, target[:, None].contiguous(), right=True)
    return found[:, 0].clamp(max=cumulated.shape[1] - 1)


def cell_size(values: int) -> int:
    """How many tokens are added up before a draw: about as many as there are cells then."""
    return int(2 ** math.ceil(math.log2(max(values, 2)) / 2))


def _cells(weights: Tensor) -> Tensor:
    """Sums over cells of the vocabulary; the last cell may be shorter."""
    size = cell_size(weights.shape[1])
    whole = weights.shape[1] // size
    found = [weights[:, : whole * size].reshape(len(weights), whole, size).sum(dim=2)]
    if whole * size < weights.shape[1]:
        found.append(weights[:, whole * size :].sum(dim=1, keepdim=True))
    return torch.cat(found, dim=1)


def powers(
    logits: Tensor, lows: Tensor, highs: Tensor, betas: NDArray[np.float64]
) -> Iterator[tuple[int, Tensor]]:
    """The number of each beta and exp(beta (logit - reference)), each beta's from that of the one before.

    The reference is the largest logit, the smallest for negative betas, so that no power exceeds one. The
    tensor that is handed out is overwritten by the next.
    """
    unit = common_unit(betas)
    for sign, reference in ((1.0, highs), (-1.0, lows)):
        side = np.flatnonzero(sign * betas > 0)
        if not len(side):
            continue
        below = (logits - reference[:, None]).mul_(sign)
        steps: dict[int, Tensor] = {}
        power, reached = torch.ones_like(below), 0.0
        for number in side[np.argsort(np.abs(betas[side]))]:
            size = abs(float(betas[number]))
            power.mul_(_step(below, size - reached, unit, steps))
            reached = size
            yield int(number), power
    for number in np.flatnonzero(betas == 0):
        yield int(number), torch.ones_like(logits)


def common_unit(betas: NDArray[np.float64]) -> float:
    """The largest number that all betas are multiples of, if that is a multiple of 1 / FINEST; else zero."""
    scaled = betas * FINEST
    if (np.abs(scaled - scaled.round()) > 1e-6).any():
        return 0.0
    return float(np.gcd.reduce(scaled.round().astype(np.int64)) / FINEST)


def _step(below: Tensor, size: float, unit: float, steps: dict[int, Tensor]) -> Tensor:
    """exp(size x below), as a product of exp(unit x below) where that takes few factors."""
    times = round(size / unit) if unit else 0
    if not 0 < times <= MOST_PRODUCTS:
        return (below * size).exp_()
    if times not in steps:
        half = times // 2
        if half:
            lower, upper = (_step(below, n * unit, unit, steps) for n in (half, times - half))
            steps[times] = lower * upper
        else:
            steps[times] = (below * unit).exp_()
    return steps[times]
