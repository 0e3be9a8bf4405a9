"""Guard: a network and its monitor as one system that cancels predictions it doubts."""

import math
import os
from collections.abc import Sequence
from copy import copy
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch
from scipy.stats import beta
from torch import Tensor

from assay.errors import InputError, NotFittedError, UndecidedError
from assay.guard.alarm_stream import TAIL_LEVEL, TAILS
from assay.guard.any_guard import AnyGuard
from assay.guard.group_threshold import group_numbers, group_threshold, promise
from assay.guard.input_verdict import (
    InputVerdict,
    PerInput,
    check_per_input,
    input_scores,
    rows_of_inputs,
)
from assay.guard.verdict import Answer, Verdict
from assay.identity import digest
from assay.monitors.monitor import Monitor
from assay.network import ENCODED, KeepInputs, Network, all_finite
from assay.statistics import check_level
from assay.storage import storable
from assay.trace import Inputs, Trace


@storable("Guard")
class Guard(AnyGuard):
    """`guard(inputs)` predicts, and raises the alarm where the monitor's score is above the threshold.

    The threshold comes from `calibrate`, or you pass it: one number, or one per predicted class. A value that
    is not finite (in an input, a logit, a feature or a score) raises the alarm.

    Where an input has several predictions (`Network(module, rows=...)`), the verdict has a row for each, and
    one for whole inputs: an input's score is the `per_input` of its rows, and its threshold is
    `input_threshold`, which `calibrate` sets.
    """

    def __init__(
        self,
        network: Network,
        monitor: Monitor,
        threshold: float | Sequence[float] | Tensor | None = None,
        *,
        per_input: PerInput = "mean",
        input_threshold: float | None = None,
    ) -> None:
        if not isinstance(network, Network) or not isinstance(monitor, Monitor):
            raise InputError(
                "expected Guard(assay.Network, a fitted monitor), got "
                f"Guard({type(network).__name__}, {type(monitor).__name__}); wrap the module in assay.Network"
            )
        if missing := [layer for layer in monitor.layers if layer not in network.layers]:
            raise InputError(
                f"expected a network that watches {missing}, got {network!r}; "
                f"build it with Network(module, layers={monitor.layers})"
            )
        check_per_input(per_input)
        self.network = network
        self.monitor = monitor
        self.per_input = per_input
        self.input_threshold = input_threshold
        self.threshold = None if threshold is None else _checked_threshold(threshold)
        if hasattr(monitor, "classes_"):
            self._check_classes(monitor.classes_)
        self.calibration: dict[str, Any] = {}

    def calibrate(
        self,
        trace: Trace,
        false_alarm_rate: float = 0.05,
        *,
        per_class: bool = False,
        level: float | None = None,
        groups: Any = None,
    ) -> Self:
        """Set the threshold so that in distribution at most `false_alarm_rate` of inputs raise the alarm.

        The threshold is the conformal quantile, the ceil((n + 1)(1 - rate))-th smallest of n scores: the
        rate holds in finite samples, on average over calibration sets. With `level` it holds for this
        calibration set with that probability (the rate of the k-th smallest is Beta(n + 1 - k, k)
        distributed). With `per_class` it holds within each predicted class; a class with too few rows
        takes the threshold of all, and `calibration` lists it. Do not pass the Trace that the monitor was
        fitted on.

        `groups` says of every row which track, patient or device it came from: the rate then holds on average
        over new groups (`group_threshold`). `calibration["promise"]` says what is promised.

        Where inputs have several rows, the rate holds for rows up to the number of inputs, since rows of one
        input are alike, and exactly for inputs, among those that have a row.
        """
        if not 0 < false_alarm_rate < 1:
            raise InputError(f"expected a false_alarm_rate between 0 and 1, got {false_alarm_rate}")
        if level is not None:
            check_level(level)
        if per_class and groups is not None:
            raise InputError("expected per_class or groups, got both; calibrate with one of them")
        if trace.source is not None and trace.ignored:
            raise InputError(
                f"expected a Trace with every row, as the guard meets them, got one without {trace.ignored} "
                "whose labels were to be ignored; observe the inputs without their labels"
            )
        scores = self.scores(trace)
        known = None if groups is None else group_numbers(groups, len(scores))
        overall = _finite_threshold(scores, known, false_alarm_rate, level)
        threshold, pooled = torch.tensor(overall, dtype=torch.float64), []
        if per_class:
            split = _class_thresholds(trace, scores, false_alarm_rate, level)
            pooled = (~torch.isfinite(split)).nonzero().flatten().tolist()
            threshold = torch.where(torch.isfinite(split), split, threshold)
        over_inputs = self._input_calibration(trace, scores, threshold, false_alarm_rate, level)
        self.threshold = threshold
        self.input_threshold = over_inputs.pop("threshold", None)
        self.calibration = {
            "false_alarm_rate": false_alarm_rate,
            "level": level,
            "rows": len(scores),
            "rank": _conformal_rank(len(scores), false_alarm_rate, level),
            "pooled_classes": pooled,
            "groups": None if known is None else int(known.max()) + 1,
            "tails": _tails(scores, known),
            **over_inputs,
        }
        self.calibration["promise"] = promise(self.calibration)
        return self

    def answer(self, inputs: Any) -> Answer:
        """Predict on the module's device, and judge; also returns the Trace and the seconds of each."""
        self.decided_threshold()  # before any work is done
        start = perf_counter()
        trace = self.observe(inputs)
        observed = perf_counter()
        verdict = self.judge(trace)
        return Answer(verdict, trace, observed - start, perf_counter() - observed)

    def observe(self, inputs: Any) -> Trace:
        """The network's half of a call: a Trace with everything that the monitor and the alarm need."""
        return self.network.observe(inputs, keep_inputs=self._kept_inputs, allow_nonfinite=True)

    def judge(self, trace: Trace) -> Verdict:
        """The monitor's half of a call: scores and alarms for a Trace."""
        threshold = self.decided_threshold()
        scores, evidence = self._scored(trace)
        alarm = self._alarm(trace, scores, threshold)
        whole = None if trace.source is None else self._on_inputs(trace, scores, alarm)
        return Verdict(
            trace.predictions, scores, alarm, trace.source, whole, evidence=evidence, members=self.members
        )

    def scores(self, trace: Trace) -> Tensor:
        """The monitor's scores; NaN for every row in which anything is not finite."""
        return self._scored(trace)[0]

    def _scored(self, trace: Trace) -> tuple[Tensor, Tensor | None]:
        """Scores and, of a combination, the members' evidence (N, members); NaN for rows not finite."""
        rows = [trace.logits, *(trace.layer(layer) for layer in self.monitor.layers)]
        inputs = _floating_inputs(trace)
        if all(map(all_finite, (*rows, *inputs))):
            return self.monitor.score_and_evidence(trace)
        finite = torch.stack([*map(_finite, rows), *(trace.of_inputs(_finite(part)) for part in inputs)])
        judged = finite.all(dim=0)
        scores = torch.full((len(trace),), torch.nan, dtype=torch.float64)
        names = self.monitor.member_names
        evidence = torch.full((len(trace), len(names)), torch.nan, dtype=torch.float64) if names else None
        if judged.any():
            scores[judged], found = self.monitor.score_and_evidence(trace[judged])
            if evidence is not None and found is not None:
                evidence[judged] = found
        return scores, evidence

    def export(self, path: str | os.PathLike[str], example: Any = None, *, features: bool = False) -> None:
        """Write network and monitor to `path` as one ONNX graph: inputs in; logits, score and alarm out.

        It runs in onnxruntime without torch (`assay.OnnxGuard` reads it back). Scores agree to 1e-4, relative
        above 1; alarms agree wherever a score is that far from the threshold; what is not finite is an alarm.
        Shapes and types of inputs are those of `example`, else of what the network last observed; the number
        of rows is free. With `features` the network's layers are outputs as well, for histograms on a device.
        A monitor that needs more than logits, features and inputs (gradients, further passes) is refused.

        A network in half precision (float16, bfloat16) is exported in single precision, with inputs in single
        precision, since runtimes compute there. Scores agree to 1e-4 with those of the same weights in single
        precision, and differ from the guard's own by the rounding of the network.
        """
        from assay.guard.export import write_graph

        write_graph(self, path, example, features)

    def watching(self, layers: Sequence[str]) -> Self:
        wider = copy(self)
        wider.network = self.network.watching(layers)
        return wider

    @property
    def _kept_inputs(self) -> KeepInputs:
        needs = self.monitor.needs
        if needs.inputs and needs.encoded:
            return ENCODED
        return needs.inputs or not self.network.embeds

    @property
    def layers(self) -> tuple[str, ...]:
        return self.network.layers

    @property
    def separable(self) -> bool:
        return True

    @property
    def monitor_name(self) -> str:
        return type(self.monitor).__name__

    @property
    def members(self) -> tuple[str, ...]:
        return self.monitor.member_names or (self.monitor_name,)

    @property
    def network_fingerprint(self) -> str:
        return self.network.fingerprint

    @property
    def fingerprint(self) -> str:
        own = (self.network_fingerprint, self.monitor.fingerprint, self.decided_threshold())
        return digest(*own, *(() if self.input_threshold is None else (self.per_input, self.input_threshold)))

    def state(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Guard":
        network, monitor = state["network"], state["monitor"]
        new = {name: state[name] for name in ("per_input", "input_threshold") if name in state}
        guard = cls(network.watching(monitor.layers), monitor, state["threshold"], **new)
        guard.calibration = state["calibration"]
        return guard

    def __repr__(self) -> str:
        return f"Guard({self.network!r}, {self.monitor!r}, threshold={self.threshold})"

    def decided_threshold(self) -> Tensor:
        if self.threshold is None:
            raise NotFittedError(
                "expected a calibrated guard, got one without threshold; call calibrate(trace) first"
            )
        return self.threshold

    def _input_calibration(
        self, trace: Trace, scores: Tensor, threshold: Tensor, rate: float, level: float | None
    ) -> dict[str, Any]:
        """The threshold for whole inputs, from those that have a row; nothing where every input has one."""
        if trace.source is None:
            return {}
        alarm = self._alarm(trace, scores, threshold)
        found = input_scores(self.per_input, scores, alarm, trace.source, trace.input_count)
        known = found[rows_of_inputs(trace.source, trace.input_count) > 0]
        threshold_of_inputs = _conformal_threshold(known, rate, level)
        if not math.isfinite(threshold_of_inputs):
            raise UndecidedError(
                f"expected enough inputs with rows for a false alarm rate of {rate:g} per input, got "
                f"{len(known)}; calibrate on more inputs, or allow more false alarms"
            )
        rank = _conformal_rank(len(known), rate, level)
        return {"threshold": threshold_of_inputs, "inputs": len(known), "input_rank": rank}

    def _on_inputs(self, trace: Trace, scores: Tensor, alarm: Tensor) -> InputVerdict | None:
        """The verdict on whole inputs; None where no threshold was set for them."""
        source, count = trace.source, trace.input_count
        if self.input_threshold is None or source is None:
            return None
        found = input_scores(self.per_input, scores, alarm, source, count)
        return InputVerdict(
            rows_of_inputs(source, count),
            rows_of_inputs(source[alarm], count),
            found,
            ~(found <= self.input_threshold),  # a comparison with NaN is false, and so an alarm
        )

    def _alarm(self, trace: Trace, scores: Tensor, threshold: Tensor) -> Tensor:
        """Which rows are above their threshold, or not finite."""
        if threshold.ndim == 1:
            self._check_classes(trace.logits.shape[1])
            threshold = threshold[trace.predictions]
        alarm = scores > threshold
        return alarm if all_finite(scores) else alarm | ~torch.isfinite(scores)

    def _check_classes(self, classes: int) -> None:
        if self.threshold is not None and self.threshold.ndim == 1 and len(self.threshold) != classes:
            raise InputError(
                f"expected one threshold, or one for each of {classes} classes, got {len(self.threshold)}; "
                "calibrate the guard instead"
            )


def _finite_threshold(scores: Tensor, groups: Tensor | None, rate: float, level: float | None) -> float:
    """The threshold, or an error where there are too few rows or groups for one."""
    threshold = _threshold(scores, groups, rate, level)
    if math.isfinite(threshold):
        return threshold
    counted = "" if groups is None else f" in {int(groups.max()) + 1} groups"
    raise UndecidedError(
        f"expected enough finite scores for a false alarm rate of {rate:g}, got "
        f"{int(torch.isfinite(scores).sum())} of {len(scores)}{counted}; calibrate on more data, or allow "
        "more false alarms"
    )


def _threshold(scores: Tensor, groups: Tensor | None, rate: float, level: float | None) -> float:
    """The threshold that keeps the rate over rows, or over groups; infinity if no finite one does."""
    if groups is None:
        return _conformal_threshold(scores, rate, level)
    return group_threshold(scores, groups, rate, level)


def _tails(scores: Tensor, groups: Tensor | None) -> list[list[float]]:
    """[score, chance]: a clean row is above the score with at most that chance, for all of them at once with
    probability TAIL_LEVEL over calibration sets; for tests over time."""
    level = 1 - (1 - TAIL_LEVEL) / len(TAILS)
    found = [[_threshold(scores, groups, chance, level), chance] for chance in TAILS]
    return [pair for pair in found if math.isfinite(pair[0])]


def _class_thresholds(trace: Trace, scores: Tensor, rate: float, level: float | None) -> Tensor:
    """One threshold per predicted class; infinity where a class has too few rows."""
    predictions = trace.predictions
    thresholds = [
        _conformal_threshold(scores[predictions == label], rate, level)
        for label in range(trace.logits.shape[1])
    ]
    return torch.tensor(thresholds, dtype=torch.float64)


def _conformal_rank(count: int, rate: float, level: float | None) -> int:
    """The rank, counted from the smallest of `count` scores, that keeps the rate; count + 1 if none does."""
    if level is None:
        return math.ceil((count + 1) * (1 - rate) - 1e-9)  # 1e-9: 0.95 * 20 is 19, whatever floats say
    ranks = np.arange(1, count + 1)
    kept = np.asarray(beta.cdf(rate, count + 1 - ranks, ranks)) >= level
    return int(kept.argmax()) + 1 if kept.any() else count + 1


def _conformal_threshold(scores: Tensor, rate: float, level: float | None) -> float:
    """The k-th smallest score that keeps the rate; infinity if no finite one does."""
    rank = _conformal_rank(len(scores), rate, level)
    if rank > len(scores):
        return math.inf
    return float(scores.nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf).kthvalue(rank).values)


def _finite(part: Tensor) -> Tensor:
    return torch.isfinite(part).flatten(1).all(dim=1)


def _floating_inputs(trace: Trace) -> list[Tensor]:
    inputs: Inputs = trace.inputs if trace.inputs is not None else {}
    parts = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return [part for part in parts if part.is_floating_point()]


def _checked_threshold(threshold: float | Sequence[float] | Tensor) -> Tensor:
    value = torch.as_tensor(threshold, dtype=torch.float64)
    if value.ndim > 1 or value.isnan().any():
        raise InputError(
            f"expected a threshold as one number or one per class, got {tuple(value.shape)} "
            f"with {int(value.isnan().sum())} NaN; calibrate the guard instead"
        )
    return value
