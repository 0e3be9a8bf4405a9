"""compare_precision_recall: which of several models agrees better with the judges."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.notebook import Shown
from assay.omniinput.precision.area import area_up_to, log_recall_range
from assay.omniinput.precision.curve import PrecisionRecall, interval
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

STEPS = 200


@storable("PrecisionRecallComparison")
@dataclass(frozen=True, eq=False)
class PrecisionRecallComparison(Shown):
    """Curves of models over one input space; each pair is compared over the recalls both reach."""

    title: ClassVar[str] = "Precision and recall of models compared"

    names: tuple[str, ...]
    curves: tuple[PrecisionRecall, ...]

    @tabled
    def cumulative_ratio(self, model: str, reference: str) -> pd.DataFrame:
        """Area of `model` divided by that of `reference`, from their least common log-recall on (section
        3.2).

        Empty if the two curves have no recall in common.
        """
        one, other = self._curve(model), self._curve(reference)
        low, high = _common_range(one, other)
        if not low < high:
            return pd.DataFrame({"log_recall": [], "ratio": [], "ratio_lower": [], "ratio_upper": []})
        ends = np.linspace(low, high, STEPS + 1)
        ratio = _areas(one, ends)[1:] / _nan_unless_positive(_areas(other, ends)[1:])
        resamples = np.stack(
            [
                _resampled_areas(one, limit, ends)[:, 1:]
                / _nan_unless_positive(_resampled_areas(other, 1 - limit, ends)[:, 1:])
                for limit in (0, 1)
            ]
        )
        lower, upper = interval(ratio, resamples, one.level)
        return pd.DataFrame(
            {"log_recall": ends[1:], "ratio": ratio, "ratio_lower": lower, "ratio_upper": upper}
        )

    def _curve(self, name: str) -> PrecisionRecall:
        if name not in self.names:
            raise InputError(f"expected one of {', '.join(self.names)}, got {name!r}; name a compared model")
        return self.curves[self.names.index(name)]

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per pair: areas over their common log-recalls, and their ratio with its interval."""
        return pd.DataFrame([self._row(*pair) for pair in itertools.combinations(self.names, 2)])

    def _row(self, reference: str, model: str) -> dict[str, object]:
        one, other = self._curve(model), self._curve(reference)
        low, high = _common_range(one, other)
        ends, ratios = np.array([low, high]), self.cumulative_ratio(model, reference)
        last = ratios.iloc[-1] if len(ratios) else pd.Series(np.nan, index=ratios.columns)
        area, other_area = (
            float(_areas(curve, ends)[1]) if len(ratios) else np.nan for curve in (one, other)
        )
        return {
            "model": model,
            "reference": reference,
            "log_recall_from": low,
            "log_recall_to": high,
            "aupr": area,
            "reference_aupr": other_area,
            "ratio": last["ratio"],
            "ratio_lower": last["ratio_lower"],
            "ratio_upper": last["ratio_upper"],
        }

    def summary(self) -> str:
        """A sentence per pair: which model agrees better with the judges, or that no difference is shown."""
        return " ".join(_conclusion(row) for _, row in self.to_frame().iterrows())

    def plot(self) -> "Figure":
        """All curves over the same axis of log-recall."""
        from assay.omniinput.precision.figures import curve_figure

        return curve_figure(dict(zip(self.names, self.curves, strict=True)))

    def figures(self) -> "list[Figure]":
        """The curves, and the cumulative ratio of every pair that can be compared."""
        from assay.omniinput.precision.figures import ratio_figure

        return [self.plot(), ratio_figure(self)]


def compare_precision_recall(curves: Mapping[str, PrecisionRecall]) -> PrecisionRecallComparison:
    """Areas under precision over log-recall, on the range of recall that two models share (section 3.2).

    Curves are comparable if both count shares of the same entire space, or if both distributions were put
    through `cross_model_normalised` together (Eqs. 5, 6). Other pairs are refused.
    """
    if len(curves) < 2:
        raise InputError(
            f"expected at least two curves to compare, got {len(curves)}; pass {{'name': curve, ...}}"
        )
    first = next(iter(curves.values()))
    for name, curve in curves.items():
        if curve.normalisation != first.normalisation:
            raise InputError(
                f"expected distributions normalised the same way, got {first.normalisation} and "
                f"{curve.normalisation} ({name}); use assay.cross_model_normalised on both or on neither"
            )
        if (curve.shape, curve.values) != (first.shape, first.values):
            raise InputError(
                f"expected models over the same inputs, got shape {first.shape} with {first.values} values "
                f"and {curve.shape} with {curve.values} ({name}); recalls of different spaces do not compare"
            )
    if first.normalisation != "entire" and len(curves) > 2:
        raise InputError(
            f"expected two curves after cross-model normalisation, got {len(curves)}; each pair has its own "
            "unit, so compare pair by pair"
        )
    return PrecisionRecallComparison(tuple(curves), tuple(curves.values()))


def _common_range(one: PrecisionRecall, other: PrecisionRecall) -> tuple[float, float]:
    (low, high), (other_low, other_high) = (log_recall_range(curve.log_recall) for curve in (one, other))
    return float(np.maximum(low, other_low)), float(np.minimum(high, other_high))


def _areas(curve: PrecisionRecall, ends: Array) -> Array:
    found = area_up_to(curve.log_recall, curve.precision, ends)
    return np.asarray(found - found[0])


def _resampled_areas(curve: PrecisionRecall, limit: int, ends: Array) -> Array:
    """The areas of the resamples for the lower (0) or the upper (1) limit."""
    resamples = zip(curve.log_recall_resamples[limit], curve.precision_resamples[limit], strict=True)
    found = np.stack([area_up_to(log_recall, precision, ends) for log_recall, precision in resamples])
    return np.asarray(found - found[:, :1])


def _nan_unless_positive(areas: Array) -> Array:
    return np.where(areas > 0, areas, np.nan)


def _conclusion(row: "pd.Series[float]") -> str:
    model, reference = row["model"], row["reference"]
    if np.isnan(row["ratio"]):
        return f"{model} and {reference} reach no recall in common, so their areas cannot be compared."
    words = (
        f"Over the recalls that both reach, the area of {model} is {row['ratio']:.3f} times that of "
        f"{reference} (interval {row['ratio_lower']:.3f} to {row['ratio_upper']:.3f})"
    )
    if row["ratio_lower"] > 1:
        return f"{words}: it agrees better with the judges."
    if row["ratio_upper"] < 1:
        return f"{words}: it agrees worse with the judges."
    return f"{words}: no difference is shown."
