"""The standard error of a guard's mean MCC over scenarios: the scenarios are fixed, the rows random."""

import math

import numpy as np

from assay.benchmark.measures import Numbers, Sources, mcc_slopes, outcome_counts
from assay.benchmark.oracle import Flags, specific_outcome
from assay.benchmark.scenario import Scenario


class MeanMcc:
    """The standard error of a mean specific MCC, gathered scenario by scenario.

    To first order every row adds its slope to an MCC, so that a variance is the sum of squared slopes (the
    infinitesimal jackknife). Scenarios are made from the same test inputs, so the slopes of one input in all
    scenarios are added up before they are squared: this accounts for the correlation of scenarios. Half a row
    of each outcome is added to every scenario, for outcomes not seen because rows are few. Recorded scenarios
    do not say which rows they share, so their errors are added up, which is safe whatever they share.

    Where an input has several rows, those count as one: their slopes are added up, too, and the half row is
    half an input.
    """

    def __init__(self) -> None:
        self._scenarios = 0
        self._shared: Numbers = np.zeros(0)
        """The effect of each test input on the sum of all MCCs."""
        self._alone = 0.0
        """The variance by rows that are in one scenario only."""
        self._recorded = 0.0
        """Standard errors of recorded scenarios, added up."""

    def add(self, scenario: Scenario, alarm: Flags, sources: Sources | None = None) -> None:
        """`alarm` has a flag per row; `sources` say which input each is of, where inputs have several."""
        inputs = np.arange(len(scenario)) if sources is None else sources
        is_fault = scenario.is_fault.numpy()[inputs]
        # In the specific dimension neither novelty nor correctness matters.
        outcomes = specific_outcome(is_fault, is_fault, is_fault, alarm)
        share = len(scenario) / max(1, len(alarm))  # of an input that a row is, on average
        slopes = mcc_slopes(share * outcome_counts(outcomes))
        effects = np.bincount(inputs, share * slopes[outcomes], minlength=len(scenario))
        unseen = float(np.square(slopes).sum()) / 2
        self._scenarios += 1
        if scenario.rows is None:
            self._recorded += math.sqrt(np.square(effects).sum() + unseen)
            return
        rows = scenario.rows.numpy()
        known = rows >= 0
        self._alone += float(np.square(effects[~known]).sum()) + unseen
        missing = max(0, int(rows.max()) + 1 - len(self._shared))
        self._shared = np.pad(self._shared, (0, missing))
        np.add.at(self._shared, rows[known], effects[known])

    @property
    def error(self) -> float:
        """The standard error of the mean over the scenarios added so far."""
        joint = math.sqrt(np.square(self._shared).sum() + self._alone)
        return (joint + self._recorded) / self._scenarios
