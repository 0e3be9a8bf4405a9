"""Examples: inputs that a guard got wrong, to look at: faults it missed, good inputs it cancelled."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from assay.benchmark.readout import Readout
from assay.benchmark.scenario import Scenario
from assay.storage import storable

MISSED, CANCELLED_GOOD = "missed fault", "cancelled good input"
EACH = 4
"""Examples of each kind per guard and category."""
SIDE = 96
"""Larger images are made smaller, so that a result stays small."""


@storable("benchmark.Examples")
@dataclass(frozen=True, eq=False)
class Examples:
    """A row per example: guard, category, scenario, mistake, prediction, label, score; and its image or text.

    Kept are the worst, the worst first (`_order`).
    """

    table: pd.DataFrame
    images: Tensor | None = None
    texts: list[str] | None = None

    def of_guards(self, names: Iterable[str]) -> "Examples":
        """Those of some guards alone."""
        return self._of_rows(np.flatnonzero(self.table["guard"].isin(list(names))))

    def joined(self, more: "Examples") -> "Examples":
        """These and more, the most extreme of every guard, category and mistake."""
        table = pd.concat([self.table, more.table], ignore_index=True)
        images = None
        if self.images is not None and more.images is not None:
            images = torch.cat([self.images, more.images])
        texts = None if self.texts is None or more.texts is None else self.texts + more.texts
        again = table.duplicated(["guard", "category", "mistake", "prediction", "label", "score"])
        once = table[~again]  # good inputs are the same in several scenarios
        ordered = once.iloc[_order(once)]
        first = ordered.groupby(["guard", "category", "mistake"], sort=False).head(EACH)
        return Examples(table, images, texts)._of_rows(first.index.to_numpy().copy())

    def _of_rows(self, rows: Any) -> "Examples":
        return Examples(
            self.table.iloc[rows].reset_index(drop=True),
            None if self.images is None else self.images[torch.from_numpy(rows)],
            None if self.texts is None else [self.texts[row] for row in rows],
        )


def examples_of(guard: str, scenario: Scenario, readout: Readout) -> Examples | None:
    """The mistakes of a guard on a scenario of images or texts; None for other inputs."""
    inputs = scenario.inputs
    if readout.sources is not None or not (_is_texts(inputs) or _is_images(inputs)):
        return None
    is_fault = scenario.is_fault.numpy()
    parts = []
    for mistake, wrong in ((MISSED, is_fault & ~readout.alarm), (CANCELLED_GOOD, ~is_fault & readout.alarm)):
        rows = np.flatnonzero(wrong)
        facts = {
            "guard": guard, "category": scenario.category, "scenario": scenario.name, "mistake": mistake,
            "prediction": readout.predictions[rows], "label": readout.labels[rows],
            "score": readout.scores[rows].astype(np.float64),
        }  # fmt: skip
        part = pd.DataFrame(facts, index=rows)
        parts.append(part.iloc[_order(part)[:EACH]])
    found = pd.concat(parts)
    rows, table = found.index.to_numpy().copy(), found.reset_index(drop=True)
    if _is_texts(inputs):
        return Examples(table, texts=[inputs[row] for row in rows])
    return Examples(table, images=_small(inputs, torch.from_numpy(rows)))


def _order(table: pd.DataFrame) -> Any:
    """The worst first: a wrong answer that was let through, a right one that was cancelled; among these,
    where the guard was surest."""
    right, missed = table["prediction"] == table["label"], table["mistake"] == MISSED
    scores = np.nan_to_num(table["score"])
    return np.lexsort((np.where(missed, scores, -scores), right == missed))


def _is_texts(inputs: Any) -> bool:
    return isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], str)


def _is_images(inputs: Any) -> bool:
    if not isinstance(inputs, Tensor) or inputs.ndim not in (3, 4):
        return False
    return inputs.ndim == 3 or inputs.shape[1] in (1, 3)


def _small(inputs: Tensor, rows: Tensor) -> Tensor:
    """(n, channels, height, width) bytes, black at the smallest value of all inputs and white at the
    largest."""
    low, high = _range(inputs)
    chosen = inputs[rows].double()
    chosen = chosen[:, None] if inputs.ndim == 3 else chosen
    larger = max(chosen.shape[-2:])
    if larger > SIDE and len(rows):
        chosen = interpolate(chosen, scale_factor=SIDE / larger, mode="area")
    shades = 255 * (chosen - low) / (high - low or 1.0)
    return torch.nan_to_num(shades).clamp(0, 255).round().to(torch.uint8)


def _range(inputs: Tensor) -> tuple[float, float]:
    """The smallest and the largest finite value; inputs are copied only where some are not finite."""
    low, high = map(float, inputs.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    finite = inputs[torch.isfinite(inputs)]
    return (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 1.0)
