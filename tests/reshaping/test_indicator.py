"""Indicators: the share of points, by hand."""

import math

import numpy as np
import pytest
import torch

import assay
from assay.errors import InputError
from assay.reshaping.indicator import RatioIndicator

LABELS, PREDICTIONS = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2])


@pytest.mark.parametrize("convert", [lambda tensor: tensor, lambda tensor: tensor.numpy()])
def test_the_package_accuracy_is_the_indicator_too(convert):
    labels, predictions = convert(LABELS), convert(PREDICTIONS)
    assert assay.accuracy(labels, predictions) == 0.75
    assert assay.reshaping.accuracy(labels, predictions) == 0.75
    assert assay.accuracy.name == "accuracy"
    for indicator in (assay.accuracy, assay.reshaping.accuracy, assay.recall(2)):
        assert isinstance(indicator, RatioIndicator)
    numerator, denominator = assay.accuracy.parts(labels, predictions)
    assert (numerator.tolist(), denominator.tolist()) == ([1, 1, 0, 1], [1, 1, 1, 1])


def test_recall_counts_one_class_only():
    assert assay.recall(2)(LABELS, PREDICTIONS) == 0.5
    assert math.isnan(assay.recall(7)(LABELS, PREDICTIONS))


def test_labels_and_predictions_must_belong_together():
    with pytest.raises(InputError, match="one label and one prediction per point"):
        assay.accuracy(np.zeros(3), np.zeros(2))
