"""The accuracy in operation: one answer, and every method's estimate below it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Self

from assay.accuracy.answer import FEWEST_REFERENCE_ROWS, TaughtAnswer
from assay.accuracy.counts import PredictionCounts
from assay.accuracy.few_labels import FewLabels
from assay.accuracy.headline import Headline
from assay.accuracy.methods import METHODS, Method
from assay.accuracy.prediction_powered import accuracy_from_labels
from assay.accuracy.predictions import (
    AccuracyReference,
    LabelledPredictions,
    Predictions,
    expect_same_classes,
    labelled_trace,
)
from assay.accuracy.result import AccuracyEstimate, AccuracyEstimates
from assay.accuracy.set_place import SetPlace
from assay.accuracy.shard_counts import counts_of_shards
from assay.accuracy.teaching import Folder, Overheard, lesson_stream, without_features
from assay.errors import InputError, NotFittedError
from assay.faults.lessons import Lesson, labelled_rows
from assay.identity import digest
from assay.network import Network
from assay.sharded_trace import ShardedTrace
from assay.statistics import check_level
from assay.storage import fingerprint_of, storable
from assay.trace import Trace
from assay.volatility.certainty import Doubles

FEWEST_WINDOW_ROWS = 20
LONGEST_WINDOW = 1000
"""Rows per log VC by default, if there are that many."""
_SMALL_REFERENCE = (
    f"expected at least {FEWEST_REFERENCE_ROWS} labelled reference rows, got fewer; label more of them"
)
_NOT_ADDITIVE = "needs all rows at once: use estimate_accuracy"


def estimate_accuracy(
    reference: Any,
    operational: Any,
    *,
    network: Network | None = None,
    perturbed: Iterable[Any] = (),
    labels: Any = None,
    drawn: Any = None,
    other: tuple[Any, Any] | None = None,
    window: int | None = None,
    folder: Folder = None,
    level: float = 0.95,
    seed: int = 0,
    engine: str = "here",
    workers: int | None = None,
) -> AccuracyEstimates:
    """The accuracy on operational predictions without labels: value, interval and verdict, and every method.

    `network`: the fault library teaches what its answers mean. `reference` is then labelled data that it was
    not trained on, (inputs, labels) or anything labelled that `network.observe` takes, and `operational` is
    inputs or their Trace. Teaching costs a forward pass over up to 2,000 reference rows per fault and
    severity; Traces are kept in `folder`, and the next call takes them from there.

    Without a network, `reference` is a labelled Trace or (probabilities, labels), `operational` a Trace or
    probabilities, and the answer knows less. `perturbed`: lessons (`assay.faults.lessons`), or labelled
    Traces of the reference inputs under perturbations you expect; without them noise on the logits teaches
    the table.

    `labels`: of the few operational rows in `drawn`, which `assay.rows_to_label` gave or which are the places
    of rows drawn uniformly. With them the interval holds whatever has changed.

    `other`: Traces of a second network on the same reference and operational rows. `window`: rows per log VC
    (default: 1,000, or all rows if there are fewer).

    `operational` may be a ShardedTrace: it is counted shard by shard, on an engine if asked, and methods that
    need all rows at once are left out; windows of log VC end with their shard.
    """
    check_level(level)
    if isinstance(operational, ShardedTrace):
        if labels is not None or drawn is not None or other is not None:
            raise InputError(
                "expected a Trace in memory with labels=, drawn= or other=, got a ShardedTrace; pass "
                "sharded.trace(), or sharded[rows] of some"
            )
        estimator = AccuracyEstimator(window=window, seed=seed)
        estimator._learn(lesson_stream(reference, perturbed, network, folder, seed), None, len(operational))
        return estimator.estimate(counts_of_shards(estimator, operational, engine, workers), level)
    expect_same_classes(reference, operational)
    trace = _observed(operational, network)
    predictions = Predictions.of(trace, None if other is None else other[1])
    few = _few_labels(labels, drawn, len(predictions))
    estimator = AccuracyEstimator(window=window, seed=seed)
    second = None if other is None else other[0]
    known = estimator._learn(
        lesson_stream(reference, perturbed, network, folder, seed), second, len(predictions)
    )
    at_once = [method().fit(known) for method in METHODS if not method.additive and method.applies(known)]
    result = estimator.estimate(estimator._counts_of(trace, predictions, at_once), level)
    return result if few is None else with_few_labels(result, few, predictions, seed)


def _observed(operational: Any, network: Network | None) -> Any:
    if network is None or isinstance(operational, Trace):
        return operational
    return network.observe(operational, keep_inputs=not network.embeds)


def _few_labels(labels: Any, drawn: Any, total: int) -> FewLabels | None:
    if (labels is None) != (drawn is None):
        given, missing = ("labels", "drawn") if drawn is None else ("drawn", "labels")
        raise InputError(
            f"expected labels= and drawn= together, got {given}= without {missing}=; pass the labels and the "
            "rows they belong to"
        )
    return None if labels is None else FewLabels.of(labels, drawn, total)


def with_few_labels(
    result: AccuracyEstimates, few: FewLabels, predictions: Predictions, seed: int = 0
) -> AccuracyEstimates:
    """The same with the answer that labels of a few of its rows give, which starts from its headline."""
    value = result.headline.value
    labelled = accuracy_from_labels(
        predictions.confidence,
        few.rows,
        few.correct(predictions),
        probabilities=few.probabilities,
        expected=None if math.isnan(value) else value,
        level=result.level,
        seed=seed,
    )
    return result.with_labels(labelled)


@storable("accuracy.AccuracyEstimator")
class AccuracyEstimator:
    """Every method, fitted on the reference; after that it needs only sums of operational predictions.

    Save it and send it to the devices; let each `count`, add the counts, and `estimate` from the sum. Log VC
    and optimal transport are counted over windows, so a device drops the rows left over; importance weighting
    needs all rows at once and is left out.

    `window`: rows per log VC (default: 1,000, or the whole reference if it is shorter). `seed`: for the noise
    on the logits that stands in for perturbed Traces.
    """

    def __init__(self, *, window: int | None = None, seed: int = 0) -> None:
        self.window = window
        self.seed = seed
        self._fingerprint: str | None = None
        self.answer_: TaughtAnswer | None = None
        self.methods_: list[Method] = []
        self.reference_accuracy_ = float("nan")
        self.classes_ = 0
        self.network_: str | None = None
        """Fingerprint of the network that was taught; None without one, or where it has no identity."""
        self.reference_: str | None = None
        """Hash of the reference."""

    def fit(
        self,
        reference: Any,
        perturbed: Iterable[Any] = (),
        other: Any = None,
        *,
        network: Network | None = None,
        folder: Folder = None,
    ) -> Self:
        """Learn from a labelled reference, as `estimate_accuracy` does, which explains the arguments.

        Methods that need all rows at once hold the rows of the reference; they are left to
        `estimate_accuracy`, so that an estimator has no row in it but the 500 nearest neighbours are sought
        among, and these as projected features.
        """
        known = self._known_rows(reference, network)
        self._learn(lesson_stream(known, perturbed, network, folder, self.seed), other)
        self.network_, self.reference_ = _identity(network), _reference_hash(known)
        return self

    def is_fitted_on(self, reference: Any, network: Network | None = None) -> bool:
        """Whether this estimator learned from this reference, and from faults of this network or of none."""
        known = self._known_rows(reference, network)
        return self.reference_ == _reference_hash(known) and self.network_ == _identity(network)

    def _known_rows(self, reference: Any, network: Network | None) -> Any:
        """What is learned from: a labelled Trace or, with a network, (inputs, labels)."""
        if network is None:
            return labelled_trace(reference)
        return labelled_rows(network, reference, seed=self.seed)

    @property
    def layers(self) -> tuple[str, ...]:
        """Layers whose features a Trace must have to be counted; none where nothing was taught."""
        layer = None if self.answer_ is None else self.answer_.counter_.signals_.layer
        return () if layer is None else (layer,)

    def _learn(self, stream: Iterator[Lesson], other: Any, rows: int = LONGEST_WINDOW) -> AccuracyReference:
        heard = Overheard()
        lessons = heard.listen(stream)
        clean = next(lessons)
        labelled = LabelledPredictions.of(clean.trace, other)
        window = self.window or min(LONGEST_WINDOW, rows, len(labelled))
        _check_reference(labelled, self.window)
        self.answer_ = None  # that of an earlier fit is about another reference
        if len(labelled) >= FEWEST_REFERENCE_ROWS:
            taught = next(lessons, None)
            heard_first = [without_features(clean)] if taught is None else [clean, taught]
            self.answer_ = TaughtAnswer(seed=self.seed).fit(chain(heard_first, lessons))
        for _ in lessons:  # what the answer does not read, the table does
            pass
        if any(len(one) < window for one in heard.taught):
            raise InputError(
                f"expected perturbed Traces of at least one window ({window} rows), got "
                f"{min(map(len, heard.taught))}; pass longer ones or a smaller window"
            )
        known = AccuracyReference(labelled, heard.taught, window)
        self._fingerprint = None
        self.methods_ = [
            method().fit(known) for method in METHODS if method.additive and method.applies(known)
        ]
        self.reference_accuracy_ = float(labelled.correct.mean())
        self.classes_ = labelled.predictions.probabilities.shape[1]
        return known

    def count(self, operational: Any, other: Any = None) -> PredictionCounts:
        """Sums over operational predictions, a Trace or probabilities; may run where the data is.

        With a taught estimator, a Trace with the features of its layer; with inputs, frozen ones are seen.
        """
        return self._counts_of(operational, Predictions.of(operational, other))

    def estimate(self, counts: PredictionCounts, level: float = 0.95) -> AccuracyEstimates:
        """The answer and every method's estimate, with `level` intervals."""
        self.expect_fitted()
        check_level(level)
        if counts.estimator != self.fingerprint:
            raise InputError(
                "expected counts made by this estimator, got counts of another one; send one saved estimator "
                "to all devices"
            )
        at_once = [method() for method in METHODS if not method.additive]
        estimates = [_estimate(method, counts, level) for method in (*self.methods_, *at_once)]
        headline, place = self._headline(counts, level)
        return AccuracyEstimates(estimates, self.reference_accuracy_, counts.rows, level, headline, place)

    def _headline(self, counts: PredictionCounts, level: float) -> tuple[Headline, SetPlace | None]:
        if self.answer_ is None or counts.answer is None:
            return Headline.unknown(_SMALL_REFERENCE), None
        return self.answer_.headline(counts.answer, level), self.answer_.place(counts.answer)

    @property
    def fingerprint(self) -> str:
        """A hash of everything that was fitted, made once."""
        if self._fingerprint is None or not self.methods_:
            self._fingerprint = fingerprint_of(self)
        return self._fingerprint

    def state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        estimator = cls(window=state["window"], seed=state["seed"])
        vars(estimator).update(state)
        return estimator

    def expect_fitted(self) -> None:
        """Raise an error unless `fit` was called."""
        if not self.methods_:
            raise NotFittedError(
                "expected a fitted AccuracyEstimator, got an unfitted one; call fit(reference) first"
            )

    def _counts_of(
        self, operational: Any, predictions: Predictions, at_once: Iterable[Method] = ()
    ) -> PredictionCounts:
        """`at_once`: methods whose sums do not add up, to be asked where these are all rows."""
        self.expect_fitted()
        if (found := predictions.probabilities.shape[1]) != self.classes_:
            raise InputError(
                f"expected predictions over {self.classes_} classes as on the reference, got {found}; "
                "pass predictions of the same network"
            )
        sums: dict[str, Doubles] = {}
        left_out: dict[str, str] = {}
        for method in (*self.methods_, *at_once):
            if reason := method.obstacle(predictions):
                left_out[method.name] = reason
            elif method.sums_name not in sums:
                sums[method.sums_name] = method.sums(predictions)
        answer = None if self.answer_ is None else self.answer_.count(_as_trace(operational, predictions))
        return PredictionCounts(sums, len(predictions), self.fingerprint, left_out, answer)


def _as_trace(operational: Any, predictions: Predictions) -> Trace:
    if isinstance(operational, Trace):
        return operational
    return Trace.from_probabilities(predictions.probabilities)


def _identity(network: Network | None) -> str | None:
    try:
        return None if network is None else network.fingerprint
    except InputError:  # a function without a name
        return None


def _reference_hash(known: Any) -> str:
    inputs, labels = (known.logits, known.labels) if isinstance(known, Trace) else known
    return digest(inputs, labels)


def _estimate(method: Method, counts: PredictionCounts, level: float) -> AccuracyEstimate:
    """The method's estimate, or that it was left out and why."""
    sums = counts.sums.get(method.sums_name)
    if method.name in counts.left_out or sums is None:
        found, note = (math.nan, math.nan, math.nan), counts.left_out.get(method.name, _NOT_ADDITIVE)
    else:
        found, note = method.interval(sums, counts.rows, level), method.doubt(sums, counts.rows)
    return AccuracyEstimate(method.name, *found, method.assumption, method.counted, note)


def _check_reference(labelled: LabelledPredictions, window: int | None) -> None:
    wanted = max(FEWEST_WINDOW_ROWS, window or 0)
    if len(labelled) < wanted:
        raise InputError(
            f"expected a reference of at least {wanted} rows (one window), got {len(labelled)}; pass more "
            "labelled rows or a smaller window"
        )
    if not labelled.correct.any():
        raise InputError(
            "expected a reference on which the network is sometimes right, got none; check the labels"
        )
