"""AccuracyTrials: the answer about accuracy, tried on scenarios whose labels are known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import torch
from torch import Tensor

from assay.accuracy import AccuracyEstimator
from assay.accuracy.headline import AccuracyVerdict
from assay.benchmark import Scenario
from assay.check.left_out import Reasons
from assay.errors import GradientError, InputError
from assay.network import Network
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled
from assay.trace import concatenated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELD_ENOUGH = 0.8
"""Share of its 95 % intervals that must hold the truth before an estimator is called ready: the scenarios
share their test rows, so that fewer than 95 % may hold by chance."""

COLUMNS = (
    *("scenario", "category", "severity", "rows", "accuracy"),
    *("value", "lower", "upper", "verdict", "reason"),
)


READY = "It is ready for assay accuracy and assay serve."
NOT_READY = "That is too seldom: do not rely on its answers for this network."


@storable("check.AccuracyTrials")
@dataclass(frozen=True, eq=False)
class AccuracyTrials(Shown):
    """How near the answer came without labels, scenario by scenario.

    The faults of the scenarios taught the answer as well, on other rows: faults that nobody thought of may be
    answered less well.
    """

    title: ClassVar[str] = "Accuracy without labels, tried"

    table: pd.DataFrame
    """A row per scenario: its accuracy, and the answer about it."""
    reference_accuracy: float

    @classmethod
    def of(
        cls, estimator: AccuracyEstimator, network: Network, scenarios: Iterable[Scenario]
    ) -> "AccuracyTrials":
        """Asked about each scenario; unknown classes have no accuracy and are left out."""
        found = [_trial(estimator, network, one) for one in scenarios if not one.is_novelty]
        return cls(pd.DataFrame(found, columns=list(COLUMNS)), estimator.reference_accuracy_)

    @tabled
    def to_frame(self) -> pd.DataFrame:
        return self.table.copy()

    @property
    def told(self) -> pd.DataFrame:
        """The scenarios about which the answer says something."""
        return self.table[self.table["verdict"] != AccuracyVerdict.CANNOT_TELL]

    def summary(self) -> str:
        told, total = self.told, len(self.table)
        if not len(told):
            return f'The answer about accuracy without labels was "cannot tell" on all {total} scenarios.'
        error = (told["value"] - told["accuracy"]).abs()
        return (
            f"Asked without labels about {total} scenarios, the estimator could tell the accuracy of "
            f"{len(told)}: it was off by {100 * error.mean():.1f} points on average (at most "
            f"{100 * error.max():.1f}), and its 95 % interval held the truth in {self._held} of "
            f"{len(told)}. Faults of the same kinds had taught it, on other rows; others it may know less "
            f"well. {READY if self.ready else NOT_READY}"
        )

    @property
    def _held(self) -> int:
        told = self.told
        return int(((told["lower"] <= told["accuracy"]) & (told["accuracy"] <= told["upper"])).sum())

    @property
    def ready(self) -> bool:
        """Whether the answers held often enough to be asked for in operation."""
        return self._held >= HELD_ENOUGH * max(1, len(self.told))

    def advice(self) -> str:
        """What to do with the estimator."""
        if not self.ready:
            return "Ask people instead: label a few rows in operation (assay accuracy --to-label 50)."
        return (
            "In operation, ask assay accuracy --estimator estimator.safetensors; where it cannot tell, label "
            "a few rows (assay accuracy --to-label 50)."
        )

    def plot(self) -> "Figure":
        from assay.check.figures import trials_figure

        return trials_figure(self.table)


def taught_and_tried(
    network: Network,
    parts: Sequence[tuple[Any, Tensor]],
    scenarios: Iterable[Scenario],
    seed: int,
    left_out: Reasons,
) -> tuple[AccuracyEstimator | None, AccuracyTrials | None]:
    """An estimator taught by faults of these inputs and labels, and how it did; or why not, in `left_out`."""
    inputs = [part for part, _ in parts]
    together = list(chain(*inputs)) if isinstance(inputs[0], list) else concatenated(inputs)
    labels = torch.cat([part for _, part in parts])
    try:
        estimator = AccuracyEstimator(seed=seed).fit((together, labels), network=network)
    except (InputError, GradientError) as error:
        left_out["accuracy without labels"] = str(error).rstrip(".")
        return None, None
    return estimator, AccuracyTrials.of(estimator, network, scenarios)


def _trial(estimator: AccuracyEstimator, network: Network, scenario: Scenario) -> list[object]:
    assert isinstance(scenario.labels, Tensor)
    trace = network.observe((scenario.inputs, scenario.labels), keep_inputs=not network.embeds)
    one = estimator.estimate(estimator.count(trace)).headline
    truth = float(trace.correct.double().mean())
    facts = [scenario.name, scenario.category, scenario.severity, len(trace), truth]
    return [*facts, one.value, one.lower, one.upper, one.verdict, one.reason]
