"""InputStatistics: doubt an input that looks unlike those seen, by a few cheap statistics of it alone."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.image_statistics import image_statistics
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.row_keys import RowKeys
from assay.monitors.parts.token_statistics import (
    TokenCounts,
    own_token_statistics,
    padded,
    surprise_table,
    token_facts,
    token_statistics,
)
from assay.network import Network
from assay.network.graph import under_tracer
from assay.trace import Inputs, Trace

TOKENS, MASK = "input_ids", "attention_mask"
BESIDE_TOKENS = (MASK, "token_type_ids", "position_ids", "inputs_embeds")
"""What comes with token ids and says nothing that they do not."""

WIDE = 256
"""Statistics above which each is compared on its own: their covariance would take more than half a MB."""

_FARTHEST = 1e150  # whose square is finite
_ROWS = 256  # looked at together: intermediate results stay in cache


class InputStatistics(Monitor):
    """s(x) = ||A'(u(x) - u_(k))||: the distance of the statistics of x from the k-th nearest of rows seen.

    Statistics are those of the inputs alone. Images, and anything else with two axes or more: level, spread,
    Laplacian, steps between neighbours, extremes, channels (`image_statistics`). Rows of a table: the values
    themselves and the share that is missing (NaN). Token ids: length, repeats, unknown tokens, likelihood
    under the counts of the texts seen (`token_statistics`). A dict of inputs has those of every part.

    u = asinh((x - median) / scale), the scale from the quartiles: far values stay in order and do not decide
    the fit. A A' is the inverse covariance of u over a uniform sample of `limit` rows, with 1 / rows added to
    every variance, so that a value which never varied is far away as soon as it does; u_(k) is the k-th
    nearest of these rows. Above 256 statistics each is scaled on its own. Nothing is trained.

    `facts` are the characters of every token id, which `InputStatistics.of(network)` takes from the
    tokenizer.

    >>> known = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> monitor = InputStatistics().fit(Trace(torch.zeros(4, 2), inputs=known))
    >>> asked = Trace(torch.zeros(2, 2), inputs=torch.tensor([[1.5, 5.0], [1.5, 4.0]]))
    >>> [round(score, 1) for score in monitor.score(asked).tolist()]
    [1.1, 12.0]
    """

    metadata = Metadata(
        score="distance of a few statistics of the input from those seen",
        needs=Needs(inputs=True, inputs_in_fit=True, encoded=True),
        fit="N * (v + 288)",
        cost="N * (v + 12 * M)",
        state="108 * M",
    )

    version = 2  # other statistics of images than in version 1

    kinds_: dict[str, str]
    kept_: dict[str, Tensor]
    counts_: dict[str, Tensor]
    tables_: dict[str, Tensor]
    centre_: Tensor
    scale_: Tensor
    axes_: Tensor
    bank_: Tensor
    offsets_: Tensor
    """-|b|^2 / 2 of every row b of the bank: the nearest have the largest product with it, so raised."""
    optional_: Tensor
    """Which statistics may be missing: those of tables."""

    def __init__(
        self, *, k: int = 5, facts: Tensor | None = None, limit: int | None = 2000, seed: int = 0
    ) -> None:
        if k < 1:
            raise InputError(f"expected k of at least 1 neighbour, got {k}")
        if facts is not None and (not isinstance(facts, Tensor) or facts.ndim != 2 or facts.shape[1] != 3):
            raise InputError(
                "expected facts of shape (tokens, 3), got others; use InputStatistics.of(network)"
            )
        self.k = k
        self.facts = facts
        self.limit = checked_limit(limit)
        self.seed = seed

    @classmethod
    def of(cls, network: Network, *, limit: int | None = 2000, seed: int = 0) -> Self:
        """With the characters of the tokens, where the network has a tokenizer that knows them."""
        tokenizer: Any = getattr(network, "tokenizer", None)
        if not hasattr(tokenizer, "convert_ids_to_tokens"):
            return cls(limit=limit, seed=seed)
        tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        facts = token_facts(tokens, getattr(tokenizer, "unk_token", None))
        return cls(facts=facts, limit=limit, seed=seed)

    def _check_mergeable(self, other: object) -> None:
        super()._check_mergeable(other)
        assert isinstance(other, InputStatistics)
        forms = [
            (one.kinds_, {name: rows.shape[1:] for name, rows in one.kept_.items()}) for one in (self, other)
        ]
        if forms[0] != forms[1]:
            raise InputError(
                f"expected fits of inputs of the same form, got {forms[0]} and {forms[1]}; fit both on "
                "inputs of the same form"
            )

    def statistics(self, trace: Trace) -> Tensor:
        """(N, statistics) of the inputs, before scaling."""
        self._check_fitted()
        return self._statistics(self._kept_parts(trace.known_inputs))

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        kept, counts, keys = Reservoir(self.limit), TokenCounts(), RowKeys(self.seed)
        for trace in traces:
            inputs = trace.known_inputs
            self.kinds_ = getattr(self, "kinds_", None) or _kinds(inputs)
            parts = self._kept_parts(inputs)
            for name, rows in parts.items():
                if self.kinds_[name] == "image" and not torch.isfinite(rows).all():
                    raise InputError(
                        "expected finite inputs to fit InputStatistics on, got NaN or infinity; remove those "
                        "rows first"
                    )
                if self.kinds_[name] == "tokens":
                    counts.add(name, torch.bincount(rows[rows >= 0]))
            kept.add(keys.next(*parts.values()), parts)
        return {"kept": kept, "counts": counts}

    def _describe(self, kept: Reservoir, counts: TokenCounts) -> None:
        """Centre, scale, mean and axes of the rows kept."""
        self.kept_ = {str(name): rows for name, rows in kept.columns().items()}
        self.counts_ = counts.counts
        self.tables_ = {name: surprise_table(counts) for name, counts in self.counts_.items()}
        parts = {name: self._own_statistics(name, part) for name, part in self.kept_.items()}
        rows = torch.cat(list(parts.values()), dim=1)
        self.optional_ = torch.cat(
            [torch.full((part.shape[1],), self.kinds_[name] == "table") for name, part in parts.items()]
        )
        self.centre_, self.scale_ = _robust_scale(rows)
        values = self._scaled(rows)
        self.axes_ = _axes(values)
        self.bank_ = self._whitened(values).float()
        self.offsets_ = self.bank_.square().sum(dim=1) / -2
        self.remedy_ = (
            f"there were fewer than k = {self.k} rows, so the farthest was used; fit on more rows or lower k"
            if len(values) < self.k
            else ""
        )

    def _score(self, trace: Trace) -> Tensor:
        blocks = row_blocks(self.statistics(trace), _ROWS)
        return trace.of_inputs(torch.cat([self._distances(rows) for rows in blocks]))

    def _distances(self, statistics: Tensor) -> Tensor:
        queries = self._whitened(self._scaled(statistics))
        # Products find the neighbour; its distance is computed from the difference, which cancels nothing.
        products = torch.addmm(self.offsets_, queries.float(), self.bank_.T)
        found = products.topk(min(self.k, len(self.bank_)), dim=1).indices[:, -1]
        return (queries - self.bank_[found]).square().sum(dim=1).sqrt()

    def _whitened(self, values: Tensor) -> Tensor:
        return values * self.axes_ if self.axes_.ndim == 1 else values @ self.axes_

    def _kept_parts(self, inputs: Inputs) -> dict[str, Tensor]:
        """What is kept of every part: statistics of images, rows of tables, ids of tokens."""
        named = {"": inputs} if isinstance(inputs, Tensor) else inputs
        parts = {}
        for name, kind in self.kinds_.items():
            if name not in named:
                raise InputError(
                    f"expected the inputs seen in fit, {sorted(self.kinds_)}, got {sorted(named)}; "
                    "fit and score inputs of the same form"
                )
            part = named[name]
            if kind == "image":
                parts[name] = image_statistics(part).float()
            elif kind == "table":
                parts[name] = part.flatten(1).float() if part.ndim > 1 else part[:, None].float()
            else:
                parts[name] = padded(part, named.get(MASK)).int()
            self._check_width(name, parts[name])
        return parts

    def _check_width(self, name: str, part: Tensor) -> None:
        kept = getattr(self, "kept_", {}).get(name)
        if kept is not None and self.kinds_[name] != "tokens" and kept.shape[1] != part.shape[1]:
            raise InputError(
                f"expected inputs with {kept.shape[1]} statistics as in fit, got {part.shape[1]}; "
                "fit and score inputs of the same form"
            )

    def _statistics(self, parts: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([self._part_statistics(name, part) for name, part in parts.items()], dim=1)

    def _part_statistics(self, name: str, part: Tensor) -> Tensor:
        if self.kinds_[name] == "tokens":
            return token_statistics(part.long(), self.tables_[name], self.facts)
        return part.double() if self.kinds_[name] == "image" else _with_missing(part.double())

    def _own_statistics(self, name: str, part: Tensor) -> Tensor:
        """Of rows that were fitted on: texts are compared with the counts of all others."""
        if self.kinds_[name] != "tokens":
            return self._part_statistics(name, part)
        rows = (
            own_token_statistics(block.long(), self.counts_[name], self.facts)
            for block in torch.split(part, _ROWS)
        )
        return torch.cat(list(rows))

    def _scaled(self, statistics: Tensor) -> Tensor:
        """u(x); a missing value of a table counts as its median: another statistic counts what is missing."""
        size = (statistics - self.centre_) / self.scale_
        if "table" in self.kinds_.values():
            size = torch.where(torch.isnan(statistics) & self.optional_, 0.0, size)
        return _asinh(size)


def _asinh(size: Tensor) -> Tensor:
    """Of what is infinite a large number: it has a distance then."""
    if not under_tracer():
        return size.clamp(-_FARTHEST, _FARTHEST).asinh()
    # Runtimes of ONNX lack it in double precision.
    far = size.abs().clamp(max=_FARTHEST)
    return size.sign() * (far + (far.square() + 1).sqrt()).log()


def _kinds(inputs: Inputs) -> dict[str, str]:
    """What every part is taken for: token ids by their name, tables by their two axes, else images."""
    if isinstance(inputs, Tensor):
        return {"": _kind(inputs)}
    beside = BESIDE_TOKENS if TOKENS in inputs else ()
    return {
        name: "tokens" if name == TOKENS else _kind(part)
        for name, part in inputs.items()
        if name not in beside
    }


def _kind(part: Tensor) -> str:
    return "table" if part.ndim < 3 else "image"


def _with_missing(rows: Tensor) -> Tensor:
    return torch.cat([rows, torch.isnan(rows).double().mean(dim=1, keepdim=True)], dim=1)


def _axes(values: Tensor) -> Tensor:
    """L^-T of the covariance L L', or the inverse deviations of what is too wide for one."""
    centred, ridge = values - values.mean(dim=0), 1 / len(values)
    if values.shape[1] > WIDE:
        return (centred.square().mean(dim=0) + ridge).rsqrt()
    covariance = centred.T @ centred / len(values)
    covariance.diagonal().add_(ridge)
    factor: Tensor = torch.linalg.cholesky(covariance)
    inverse: Tensor = torch.linalg.inv(factor)
    return inverse.T.contiguous()


def _robust_scale(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Medians, and what a standard deviation would be by the quartiles; by itself where these agree.

    A statistic that never varied has a scale of a thousandth of its value, or of a typical scale.
    """
    low, centre, high = rows.nanquantile(torch.tensor([0.25, 0.5, 0.75], dtype=rows.dtype), dim=0)
    centre = centre.nan_to_num(0.0)  # a feature that is always missing
    scale = (high - low).nan_to_num(0.0) / 1.349
    deviation = torch.where(torch.isnan(rows), centre, rows).std(dim=0, correction=0)
    scale = torch.where(scale > 0, scale, deviation)
    typical = scale[scale > 0].median() if (scale > 0).any() else torch.tensor(1.0, dtype=rows.dtype)
    return centre, torch.where(scale > 0, scale, 1e-3 * torch.maximum(centre.abs(), typical))
