"""Any object with pytorch-ood's feature interface runs as a monitor."""

import pytest
import torch

import assay
from assay import Trace
from assay.errors import InputError, NotFittedError, StorageError
from assay.monitors import AnyOf, MaxSoftmax, adapt


class NearestMean:
    """Distance to the nearest class mean, in pytorch-ood's interface; rudely works in place."""

    def fit_features(self, z, y):
        self.means = torch.stack([z[y == label].mean(dim=0) for label in y.unique()])
        self.rows = len(z)
        return self

    def predict_features(self, z):
        scores = torch.cdist(z, self.means).amin(dim=1)
        z.zero_()
        return scores


class Energy:
    """A detector of logits that learns nothing."""

    @staticmethod
    def predict_features(logits):
        return -logits.logsumexp(dim=1)


@pytest.fixture
def trace():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    features = torch.randn(90, 4, generator=generator) + 5 * labels[:, None]
    return Trace(torch.randn(90, 3, generator=generator), {"penultimate": features}, labels)


def test_a_detector_of_features_gives_its_own_scores(trace):
    features = trace.features["penultimate"]
    before = features.clone()
    expected = NearestMean().fit_features(features, trace.labels).predict_features(features.clone())
    monitor = adapt(NearestMean()).fit([trace[:40], trace[40:]])
    torch.testing.assert_close(monitor.score(trace), expected.double())
    assert torch.equal(features, before)
    # 3 means of 4 float32 numbers.
    assert monitor.nbytes == 48


def test_a_detector_of_logits_reads_no_layer(trace):
    monitor = adapt(Energy(), reads="logits").fit(trace)
    assert monitor.layers == ()
    torch.testing.assert_close(monitor.score(trace), -trace.logits.logsumexp(dim=1).double())


def test_without_labels_predictions_are_the_classes(trace):
    unlabelled = Trace(trace.logits, trace.features)
    by_hand = NearestMean().fit_features(trace.features["penultimate"], trace.predictions)
    assert torch.equal(adapt(NearestMean()).fit(unlabelled).detector.means, by_hand.means)


def test_a_sample_bounds_what_the_detector_gets(trace):
    monitor = adapt(NearestMean(), limit=30, seed=1).fit(trace)
    streamed = adapt(NearestMean(), limit=30, seed=1).fit([trace[:11], trace[11:]])
    assert monitor.detector.rows == 30
    assert torch.equal(monitor.score(trace), streamed.score(trace))


def test_an_adapted_detector_joins_combinations_but_no_file(trace, tmp_path):
    monitor = AnyOf([adapt(NearestMean()), MaxSoftmax()]).fit(trace)
    assert monitor.score(trace).isfinite().all()
    with pytest.raises(StorageError, match="another library"):
        assay.save(monitor, tmp_path / "adapted")


def test_what_has_not_the_interface_is_refused(trace):
    with pytest.raises(InputError, match="predict_features"):
        adapt(object())
    with pytest.raises(InputError, match="reads"):
        adapt(Energy(), reads="inputs")
    with pytest.raises(NotFittedError):
        adapt(NearestMean()).score(trace)

    class Matrix(Energy):
        @staticmethod
        def predict_features(logits):
            return logits

    with pytest.raises(InputError, match=r"Matrix.predict_features.*got shape \(90, 3\)"):
        adapt(Matrix(), reads="logits").fit(trace).score(trace)
