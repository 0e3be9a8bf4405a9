"""Bins: the intervals in which the values of each watched neuron are counted (Definition 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.network import Network
from assay.reshaping.bounds import Limit, neuron_bounds
from assay.storage import storable
from assay.trace import Trace

PerNeuron = float | tuple[float, ...]
NeuronIndices = tuple[int, ...] | None

# Eq. 5 leaves one whole bin above the bound, so that rounding of this relative size never needs another one.
ROUNDING = 1e-5


@storable("Bins")
@dataclass(frozen=True)
class Bins:
    """The (c, Delta, N)-binning function of Eq. 2: bin 0 is [c, c + Delta], bin j is (c + j Delta, c + (j+1)
    Delta].

    `origin`, `width` and `last` are c, Delta and N: one number for all neurons, or one per neuron. `layer`
    is a layer's name or several; `neurons` picks indices (one tuple per layer where there are several), None
    takes all. With `overflow`, values outside are counted below and above instead of being refused.
    `network` is the fingerprint of the network these bins were made for; None where they were made by hand.

    >>> bins = Bins(origin=0.0, width=3.0, last=5)
    >>> trace = Trace(torch.zeros(1, 2), {"penultimate": torch.tensor([[0.0, 3.0, 3.1, 18.0]])})
    >>> bins.cells(trace).tolist()
    [[0, 0, 1, 5]]
    """

    layer: str | tuple[str, ...] = "penultimate"
    origin: PerNeuron = 0.0
    width: PerNeuron = 1.0
    last: int | tuple[int, ...] = 34
    neurons: NeuronIndices | tuple[NeuronIndices, ...] = None
    overflow: bool = False
    network: str | None = None

    def __post_init__(self) -> None:
        for name in ("origin", "width", "last", "layer", "neurons"):
            object.__setattr__(self, name, _as_tuples(getattr(self, name)))
        widths, lasts = np.atleast_1d(self.width), np.atleast_1d(self.last)
        if not (np.isfinite(widths).all() and (widths > 0).all()):
            raise InputError(
                f"expected bins of a positive width, got {self.width}; pass for example width=1.0"
            )
        if not np.isfinite(np.atleast_1d(self.origin)).all():
            raise InputError(f"expected a finite origin, got {self.origin}; bound the inputs first")
        if (lasts < 0).any() or (lasts != lasts.astype(np.int64)).any():
            raise InputError(f"expected the number of the last bin (0 or more), got last={self.last}")
        if (
            isinstance(self.layer, tuple)
            and self.neurons is not None
            and len(self.neurons) != len(self.layer)
        ):
            raise InputError(
                f"expected neurons for each of the {len(self.layer)} layers, got {len(self.neurons)}; "
                "pass one tuple of indices, or None, per layer"
            )

    @classmethod
    def from_bounds(
        cls,
        network: Network,
        layer: str | Sequence[str] = "penultimate",
        low: Limit = 0.0,
        high: Limit = 1.0,
        width: float = 1.0,
        *,
        neurons: Any = None,
        per_neuron: bool = False,
        shape: Sequence[int] | None = None,
        sharper: bool = False,
    ) -> "Bins":
        """Bins that no input in [low, high] can leave (Lemma 1, Eqs. 4 and 5).

        `low` and `high` bound every input value: numbers, or tensors of one input's shape. `per_neuron` gives
        each neuron its own origin and last bin. `shape` of one input and `sharper` are those of
        `neuron_bounds`. The bounds hold for the network in single precision, rounding included. Bounds that
        are vacuous (`NeuronBounds`) are refused.
        """
        _check_width(width)
        unplaced = cls(layer=_as_tuples(layer), width=width, neurons=neurons, network=network.fingerprint)
        bounds = neuron_bounds(network, unplaced.layers, low, high, shape=shape, sharper=sharper)
        if bounds.vacuous:
            raise InputError(
                f"expected bounds that tell something, but {bounds.warnings[0]}; use Bins.from_data, which "
                "counts what falls outside in overflow bins, an earlier layer, or a narrower range of inputs"
            )
        lows = unplaced._watched_columns([bounds[name][0] for name in unplaced.layers])
        highs = unplaced._watched_columns([bounds[name][1] for name in unplaced.layers])
        return unplaced._spanning(lows, highs, per_neuron)

    @classmethod
    def from_data(
        cls,
        trace: Trace,
        layer: str | Sequence[str] = "penultimate",
        width: float = 1.0,
        *,
        margin: float = 0.1,
        neurons: Any = None,
        per_neuron: bool = False,
        network: Network | None = None,
    ) -> "Bins":
        """Bins around the values seen, widened on both sides by `margin` of their range.

        Use them where a network has an operation whose bounds are not known. Nothing is proven: values
        outside are counted in two overflow bins.
        """
        _check_width(width)
        if not len(trace):
            raise InputError("expected a Trace with at least one row to take the range from, got none")
        if margin < 0:
            raise InputError(f"expected a margin of 0 or more (a share of the range seen), got {margin}")
        unplaced = cls(
            layer=_as_tuples(layer),
            width=width,
            neurons=neurons,
            overflow=True,
            network=None if network is None else network.fingerprint,
        )
        values = unplaced.values(trace)
        lows, highs = values.amin(dim=0), values.amax(dim=0)
        margins = margin * (highs - lows if per_neuron else highs.max() - lows.min())
        return unplaced._spanning(lows - margins, highs + margins, per_neuron)

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,) if isinstance(self.layer, str) else self.layer

    @property
    def longest(self) -> int:
        """The highest bin number of any neuron."""
        return int(np.max(self.last))

    def values(self, trace: Trace) -> Tensor:
        """(rows, neurons): the watched values of a Trace, in double precision."""
        return self._watched_columns([trace.layer(name) for name in self.layers])

    def cells(self, trace: Trace) -> Tensor:
        """(rows, neurons): the bin of every watched value; -1 is below all bins, `longest + 1` above.

        Without `overflow` a value outside its bins is an error, and so is NaN always.
        """
        values = self.values(trace)
        origin, width, last = self._origin_width_last(values.shape[1])
        cells = torch.ceil((values - origin) / width) - 1
        # The division rounds; the edges c + j Delta decide.
        cells += (values > origin + (cells + 1) * width).double() - (
            values <= origin + cells * width
        ).double()
        cells.clamp_(min=0)
        below, above = values < origin, values > origin + (last + 1) * width
        self._check_outside(values, below, above)
        cells[below] = -1
        cells[above] = self.longest + 1
        return cells.long()

    def edges(self, neuron: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """c, c + Delta, ... of one neuron, numbered among the watched ones."""
        origin, width, last = (np.atleast_1d(value) for value in (self.origin, self.width, self.last))
        pick = [neuron if len(value) > 1 else 0 for value in (origin, width, last)]
        return np.asarray(origin[pick[0]] + width[pick[1]] * np.arange(last[pick[2]] + 2), np.float64)

    def names(self, count: int) -> list[str]:
        """Layer and index of each watched neuron, for tables and figures."""
        if len(self.layers) == 1:
            indices = range(count) if self.neurons is None else self.neurons
            return [f"{self.layers[0]}[{index}]" for index in indices]
        if isinstance(self.neurons, tuple) and all(isinstance(part, tuple) for part in self.neurons):
            parts: Any = self.neurons
            return [f"{name}[{i}]" for name, part in zip(self.layers, parts, strict=True) for i in part]
        return [f"neuron {index}" for index in range(count)]

    def _spanning(self, lows: Tensor, highs: Tensor, per_neuron: bool) -> "Bins":
        """These bins over [lows, highs] (Eqs. 4 and 5): one range for all neurons, or one for each."""
        if not (torch.isfinite(lows).all() and torch.isfinite(highs).all()):
            raise InputError(
                "expected finite bounds, got infinity or NaN; bound the inputs by finite low and high"
            )
        if not per_neuron:
            lows, highs = lows.min()[None], highs.max()[None]
        span = highs - lows
        tolerance = torch.clamp(ROUNDING * span, max=float(np.max(self.width)))
        last = torch.ceil((span - tolerance) / float(np.max(self.width))).clamp(min=0).long()
        if per_neuron:
            return replace(self, origin=tuple(lows.tolist()), last=tuple(last.tolist()))
        return replace(self, origin=float(lows), last=int(last))

    def _watched_columns(self, parts: list[Tensor]) -> Tensor:
        """The watched columns of each layer's (rows, d) or (d,), side by side."""
        picks: Any = (self.neurons,) if isinstance(self.layer, str) else self.neurons or (None,) * len(parts)
        chosen = []
        for name, part, pick in zip(self.layers, parts, picks, strict=True):
            if pick is not None and max(pick, default=-1) >= part.shape[-1]:
                raise InputError(
                    f"expected neurons of layer {name!r} below {part.shape[-1]}, got {max(pick)}; "
                    "choose others"
                )
            chosen.append((part if pick is None else part[..., list(pick)]).double())
        return torch.cat(chosen, dim=-1)

    def _origin_width_last(self, neurons: int) -> tuple[Tensor, Tensor, Tensor]:
        found = [
            torch.as_tensor(value, dtype=torch.float64) for value in (self.origin, self.width, self.last)
        ]
        for name, value in zip(("origin", "width", "last"), found, strict=True):
            if value.ndim and len(value) != neurons:
                raise InputError(
                    f"expected one {name} per watched neuron ({neurons}), got {len(value)}; "
                    "use bins made for this layer"
                )
        return found[0], found[1], found[2]

    def _check_outside(self, values: Tensor, below: Tensor, above: Tensor) -> None:
        if bool(torch.isnan(values).any()):
            raise InputError(
                "expected numbers to count, got NaN; leave such rows out, or let a Guard judge them"
            )
        outside = below | above
        if not self.overflow and bool(outside.any()):
            row, neuron = (int(index) for index in outside.nonzero()[0])
            edges = self.edges(neuron)
            raise InputError(
                f"expected values within [{edges[0]:g}, {edges[-1]:g}], got {float(values[row, neuron]):g} "
                f"at row {row}, neuron {neuron} ({int(outside.sum())} values in all); nothing was counted: "
                "widen the bins, or pass overflow=True to count values outside"
            )


def _check_width(width: float) -> None:
    if not (np.isfinite(width) and width > 0):
        raise InputError(f"expected bins of a positive width, got {width}; pass for example width=1.0")


def _as_tuples(value: Any) -> Any:
    """Sequences and arrays as tuples of plain numbers, so that bins can be compared and saved."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return tuple(_as_tuples(item) for item in value)
    return value
