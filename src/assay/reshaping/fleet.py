"""A whole fleet at once: an indicator on every device from its counts, the worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from assay.engine import checked_engine, mapped
from assay.errors import InputError, MissingLabelsError
from assay.notebook import Shown
from assay.reshaping.array_types import Floats, Integers
from assay.reshaping.fleet_model import DeviceFit, FleetModel, HomeSet, pseudo_device
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import RatioIndicator, accuracy
from assay.statistics import check_level
from assay.storage import storable
from assay.table import tabled
from assay.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_JOB = 100  # devices
MISFIT_POWER, VARIANCE_FLOOR = 0.5, 0.05
"""Errors are compared after division by misfit^0.5 sqrt(value (1 - value) + 0.05): a device whose counts fit
badly, or whose accuracy is far from 1, may be farther off. Fixed on fleets other than the reported one."""
ALARM = 0.01


@storable("FleetEstimates")
@dataclass(frozen=True, eq=False)
class FleetEstimates(Shown):
    """An indicator on every device, with intervals at `level`; those below the `target` first.

    `alarm` marks a device whose counts are farther from every mixture of conditions at home than all but a
    hundredth of the pseudo-devices under a condition that was left out: its interval cannot be relied on.
    """

    title = "A fleet from its counts"

    name: str
    devices: pd.DataFrame
    level: float
    target: float | None = None

    def summary(self) -> str:
        """How many devices there are, how many are surely below the target, and which are unlike home."""
        frame = self.devices
        text = (
            f"{len(frame):,} devices counted {int(frame['inputs'].sum()):,} inputs. Their {self.name} is "
            f"estimated at {frame['value'].min():.3f} to {frame['value'].max():.3f} (mean "
            f"{frame['value'].mean():.3f}), with {self.level:.0%} intervals of "
            f"{(frame['upper'] - frame['lower']).mean() / 2:.3f} to either side on average. "
        )
        if self.target is not None:
            below = self.to_frame().query("below")
            text += f"{len(below):,} are below the target of {self.target:g}"
            text += f", the worst {below['device'].iloc[0]}. " if len(below) else ". "
        if alarms := int(frame["alarm"].sum()):
            text += f"{alarms:,} sent counts unlike anything at home: their estimates cannot be relied on. "
        return text.strip()

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per device: those whose whole interval is below the target first, then by estimate."""
        frame = self.devices.copy()
        if self.target is not None:
            frame["below"] = (frame["upper"] < self.target) & ~frame["alarm"]
            return frame.sort_values(["below", "value"], ascending=[False, True], ignore_index=True)
        return frame.sort_values("value", ignore_index=True)

    def plot(self) -> "Figure":
        """Devices by estimate, with their intervals."""
        from assay.reshaping.figures import fleet_figure

        return fleet_figure(self)


def estimate_fleet(
    home: Trace,
    histograms: Mapping[str, Histogram] | Sequence[Histogram],
    *,
    conditions: Any = None,
    indicator: RatioIndicator = accuracy,
    target: float | None = None,
    level: float = 0.95,
    pseudo_devices: int = 200,
    seed: int = 0,
    engine: str = "here",
) -> FleetEstimates:
    """An indicator on every device of a fleet, from the counts each sent.

    `home` is a labelled Trace, `conditions` the condition of each of its rows (clean, fog, night ...): a
    device is taken for a mixture of classes and conditions. List the same inputs in the same order under
    every condition. Intervals come from so many `pseudo_devices` for each condition, drawn at home and
    estimated without that condition. Without conditions only class frequencies may differ. Count with
    `Bins.with_predictions`: predictions and confidences say most. `engine` is where the work runs: "here",
    "processes" or "ray", with the same result.
    """
    checked_engine(engine)
    check_level(level)
    named = _named(histograms)
    first = next(iter(named.values()))
    points = _home_set(home, conditions, first, indicator)
    _check(target, pseudo_devices)
    kinds = _kinds(named)
    calibration = _calibrated(points, kinds, pseudo_devices, seed, engine)
    fits = _fits(points, kinds, named, engine)
    kind_of = {name: kind for kind, (_, names) in enumerate(kinds) for name in names}
    rows = [_row(name, one, fits[name], calibration[kind_of[name]], level) for name, one in named.items()]
    return FleetEstimates(indicator.name, pd.DataFrame(rows), level, target)


class _Calibration(NamedTuple):
    """Of the pseudo-devices of one kind: errors in their units, and misfits."""

    errors: Floats
    misfits: Floats


Kind = tuple[Histogram, list[str]]
"""An example of devices that count alike (about as many inputs, the same privacy), and their names."""


def _kinds(named: Mapping[str, Histogram]) -> list[Kind]:
    """Devices whose numbers of inputs are within a factor of two; the one with the least stands in."""
    found: dict[Any, list[str]] = {}
    for name, histogram in named.items():
        found.setdefault((int(np.log2(histogram.total)), histogram.privacy), []).append(name)
    return [(named[min(names, key=lambda name: named[name].total)], names) for names in found.values()]


class _Job(NamedTuple):
    kind: int
    condition: int | None
    side: bool
    devices: int
    rng: np.random.Generator


def _calibrated(
    home: HomeSet, kinds: list[Kind], pseudo_devices: int, seed: int, engine: str
) -> list[_Calibration]:
    conditions = np.unique(home.conditions)
    left_out: list[int | None] = [int(one) for one in conditions] if len(conditions) > 1 else [None]
    places = [(kind, one, side) for kind in range(len(kinds)) for one in left_out for side in (False, True)]
    own = np.random.default_rng(seed).spawn(len(places))
    share = -(-pseudo_devices // 2)
    jobs = [_Job(*place, share, rng) for place, rng in zip(places, own, strict=True)]
    likes = [like for like, _ in kinds]
    parts: list[list[Floats]] = [[] for _ in kinds]
    draw = partial(_pseudo_fits, home, likes)
    for job, found in zip(jobs, mapped(draw, jobs, engine, description="calibrating"), strict=True):
        parts[job.kind].append(found)
    return [_Calibration(*np.concatenate(part).T) for part in parts]


def _pseudo_fits(home: HomeSet, likes: list[Histogram], job: _Job) -> Floats:
    """(devices, 2): scaled errors and misfits of pseudo-devices from one half of home, fitted without it."""
    side = home.fold() == job.side
    there = np.ones(len(side), bool) if job.condition is None else home.conditions == job.condition
    like = likes[job.kind]
    kept = side if job.condition is None else side & ~there
    model, source = FleetModel.of(home.take(kept), like), home.take(~side & there)
    found = np.empty((job.devices, 2))
    for row in found:
        device = pseudo_device(source, like, job.rng)
        fit = model.fitted(device.histogram)
        row[:] = abs(fit.value - device.truth) / _unit(fit), fit.misfit
    return found[np.isfinite(found).all(axis=1)]


def _fits(
    home: HomeSet, kinds: list[Kind], named: Mapping[str, Histogram], engine: str
) -> dict[str, DeviceFit]:
    fits: dict[str, DeviceFit] = {}
    for like, names in kinds:
        model = FleetModel.of(home, like)
        chunks = [names[start : start + PER_JOB] for start in range(0, len(names), PER_JOB)]
        jobs = [[named[name] for name in chunk] for chunk in chunks]
        for chunk, found in zip(
            chunks, mapped(partial(_fitted, model), jobs, engine, description="estimating"), strict=True
        ):
            fits |= dict(zip(chunk, found, strict=True))
    return fits


def _fitted(model: FleetModel, histograms: list[Histogram]) -> list[DeviceFit]:
    return [model.fitted(histogram) for histogram in histograms]


def _unit(fit: DeviceFit) -> float:
    return float(fit.misfit**MISFIT_POWER * np.sqrt(fit.value * (1 - fit.value) + VARIANCE_FLOOR))


def _row(
    name: str, histogram: Histogram, fit: DeviceFit, found: _Calibration, level: float
) -> dict[str, Any]:
    # As in conformal prediction: the device itself counts as one more pseudo-device.
    place = min(int(np.ceil(level * (len(found.errors) + 1))), len(found.errors)) - 1
    half = float(np.sort(found.errors)[place]) * _unit(fit)
    p_value = (1 + int((found.misfits >= fit.misfit).sum())) / (1 + len(found.misfits))
    lower, upper = np.clip([fit.value - half, fit.value + half], 0.0, 1.0)
    return {
        "device": name,
        "inputs": histogram.total,
        "value": fit.value,
        "lower": float(lower),
        "upper": float(upper),
        "p_value": p_value,
        "alarm": p_value < ALARM,
    }


def _named(histograms: Mapping[str, Histogram] | Sequence[Histogram]) -> dict[str, Histogram]:
    named = (
        {str(name): one for name, one in histograms.items()}
        if isinstance(histograms, Mapping)
        else {str(number): one for number, one in enumerate(histograms)}
    )
    if not named:
        raise InputError("expected the histograms of at least one device, got none")
    first = next(iter(named.values()))
    for name, one in named.items():
        if not isinstance(one, Histogram):
            raise InputError(f"expected a Histogram of device {name}, got a {type(one).__name__}")
        first.check_same_bins(one)
        if not one.total:
            raise InputError(f"expected counts of device {name}, got none; leave it out")
    return named


def _home_set(home: Trace, conditions: Any, like: Histogram, indicator: RatioIndicator) -> HomeSet:
    if home.labels is None:
        raise MissingLabelsError("expected a home Trace with labels to estimate from, got one without")
    if not isinstance(indicator, RatioIndicator):
        raise InputError("expected an indicator that is a share of points, such as assay.accuracy or recall")
    numbers: Integers = np.zeros(len(home), np.int64)
    if conditions is not None:
        given = np.asarray(conditions)
        if given.shape != (len(home),):
            raise InputError(f"expected one condition per home row ({len(home)}), got shape {given.shape}")
        numbers = np.unique(given, return_inverse=True)[1].reshape(-1).astype(np.int64)
    amounts = np.stack(indicator.parts(home.labels, home.predictions), axis=1)
    if not amounts[:, 1].any():
        raise InputError(f"expected home rows that count for the {indicator.name}, got none")
    return HomeSet(like.bins.cells(home).numpy(), home.labels.numpy(), numbers, amounts)


def _check(target: float | None, pseudo_devices: int) -> None:
    if target is not None and not 0 <= target <= 1:
        raise InputError(f"expected a target between 0 and 1, got {target}")
    if pseudo_devices < 20:
        raise InputError(
            f"expected at least 20 pseudo_devices per condition, got {pseudo_devices}; 200 are usual"
        )
