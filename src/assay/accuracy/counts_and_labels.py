"""The accuracy on a device from its counts and the labels of a few of its inputs, whatever has changed."""

import math
from typing import Any

import numpy as np

from assay.accuracy.prediction_powered import LabelledAccuracy, LabelledSample
from assay.errors import InputError
from assay.labels import check_labels, class_numbers
from assay.network import Network
from assay.reshaping.count_guesses import check_counted, guesses_from_counts
from assay.reshaping.counts_estimate import estimate_from_counts
from assay.reshaping.histogram import Histogram
from assay.statistics import check_level
from assay.trace import Trace
from assay.volatility.certainty import Doubles


def accuracy_from_counts_and_labels(
    test: Trace,
    operational: Histogram,
    labelled: Any,
    *,
    probabilities: Any = None,
    network: Network | None = None,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> LabelledAccuracy:
    """The accuracy on the inputs that a device counted, from the counts and the labels of a few of them.

    `test` and `operational` as for `estimate_from_counts`. `labelled`: a Trace with labels of some of the
    inputs that were counted, or a pair (Trace or predicted classes, labels). They must have been drawn at
    random, whatever the network answered: uniformly, or with `probabilities`, the chance of each to be among
    the labelled ones.

    The interval assumes nothing about the shift; it is that of `accuracy_from_labels`. Counts make it
    shorter, in two ways. What they say if only class frequencies have changed is the expectation, unless they
    do not fit that: an alarm means that nothing is expected. And they give guesses for all inputs (see
    `assay.reshaping.count_guesses`), where the labelled ones come with the values of the neurons. Predicted
    classes alone give no guesses; nor does a private histogram, since the interval would have to contain the
    noise.
    """
    check_level(level)
    operational.check_usable(network)
    outputs, correct = _checked_labelled(labelled, test)
    if not 1 <= len(correct) <= operational.total:
        raise InputError(
            f"expected 1 to {operational.total} labelled inputs, since so many were counted, got "
            f"{len(correct)}; pass inputs of this device only"
        )
    if outputs is not None:
        check_counted(outputs, operational)
    sample = LabelledSample.of(correct, len(correct), probabilities, operational.total, seed)
    estimate = estimate_from_counts(test, operational, level=level, resamples=resamples, seed=seed)
    apart = np.zeros(len(correct))
    if outputs is not None and operational.privacy is None:
        guesses = guesses_from_counts(test, operational, outputs, estimate.shares)
        apart = guesses.labelled - guesses.mean
    return sample.accuracy(apart, math.nan if estimate.alarm else estimate.value, level)


def _checked_labelled(labelled: Any, test: Trace) -> tuple[Trace | None, Doubles]:
    """The Trace of the labelled inputs, if there is one, and whether each is right."""
    if isinstance(labelled, Trace):
        labelled = labelled, labelled.known_labels
    if not (isinstance(labelled, tuple) and len(labelled) == 2):
        raise InputError(
            f"expected a Trace with labels, or a pair of Trace or predicted classes and labels, got "
            f"{type(labelled).__name__}; pass what the device sent about its labelled inputs"
        )
    outputs, labels = labelled
    given = isinstance(outputs, Trace)
    predicted, truth = class_numbers(outputs.predictions if given else outputs), class_numbers(labels)
    if len(predicted) != len(truth):
        raise InputError(
            f"expected a label for each of {len(predicted)} inputs, got {len(truth)}; label all that were "
            "drawn: leaving out difficult ones makes the accuracy look better"
        )
    for classes in (predicted, truth):
        check_labels(classes, test.logits.shape[1])
    return outputs if given else None, (predicted == truth).double().numpy()
