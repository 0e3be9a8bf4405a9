"""Monitors that pytorch-ood has, too, score as it does; those of newer papers say so in their own files."""

import pytest

from assay import Trace, monitors

SAME = {
    "MaxSoftmax": monitors.MaxSoftmax(),
    "MaxLogit": monitors.MaxLogit(),
    "Entropy": monitors.Entropy(),
    "Energy": monitors.Energy(),
    "GEN": monitors.GEN(),
    "TemperatureScaled": monitors.TemperatureScaled(),
    "Mahalanobis": monitors.Mahalanobis(),
    "RelativeMahalanobis": monitors.RelativeMahalanobis(),
    "ViM": monitors.ViM(),
    "SHE": monitors.SHE(),
    "ReAct": monitors.ReAct(),
    "KNN": monitors.KNN(k=50),
    "NNGuide": monitors.NNGuide(k=10),
}


@pytest.mark.parametrize("name", SAME)
def test_scores_are_those_of_pytorch_ood(published, name):
    assert published.match(name, SAME[name])


def test_kl_matching_without_labels_is_that_of_pytorch_ood(published):
    monitor = monitors.KLMatching().fit(Trace(published.training.logits))
    assert monitor.score(published.unseen).tolist() == pytest.approx(
        published.scores["KLMatching"].tolist(), abs=1e-5
    )
