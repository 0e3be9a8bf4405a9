"""Boxes are those of a plain loop, and stored Isomap agrees with scikit-learn's own."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap

import assay
from assay import Trace
from assay.errors import InputError
from assay.monitors import ActivationBox
from assay.monitors.parts.class_rows import UNSEEN
from assay.monitors.parts.clusters import assigned, elbow
from assay.monitors.parts.projection import geodesic, projected
from assay.monitors.parts.row_keys import RowKeys


def trace_of(features, classes, labels=None, count=3):
    logits = torch.nn.functional.one_hot(torch.as_tensor(classes), count).float()
    labels = None if labels is None else torch.as_tensor(labels)
    return Trace(logits, {"penultimate": torch.as_tensor(features).float()}, labels)


@pytest.fixture
def blobs():
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(120) % 3
    return trace_of(torch.randn(120, 5, generator=generator) + 4 * classes[:, None], classes)


def test_a_box_of_hand_gives_the_distance_in_widths():
    # One box per class: class 0 spans [0, 2] x [0, 4].
    trace = trace_of([[0.0, 0.0], [2.0, 4.0], [9.0, 9.0], [10.0, 11.0]], [0, 0, 1, 1])
    monitor = ActivationBox(clusters=1, gamma=0.0).fit(trace)
    asked = trace_of([[1.0, 2.0], [3.0, 2.0], [1.0, -2.0], [3.0, -4.0], [9.5, 10.0]], [0, 0, 0, 0, 1])
    # Boxes are widened by 1e-5 of the range to forgive rounding, here less than 1e-4 of a width.
    assert monitor.score(asked).tolist() == pytest.approx([0.0, 0.5, 0.5, 1.0, 0.0], abs=1e-4)
    # gamma = 1 doubles the box around its centre: [-1, 3] x [-2, 6].
    wider = ActivationBox(clusters=1, gamma=1.0).fit(trace).score(asked)
    assert wider.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.5, 0.0], abs=1e-4)


def test_scores_equal_a_plain_loop_over_clusters(blobs):
    monitor = ActivationBox(clusters=3, gamma=0.1).fit(blobs)
    asked = blobs.features["penultimate"] * 1.5
    scores = monitor.score(Trace(blobs.logits, {"penultimate": asked}))
    features, classes = blobs.features["penultimate"].double().numpy(), blobs.predictions.numpy()
    span = np.ptp(features, axis=0)
    order = RowKeys(0).next(blobs.logits).argsort().numpy()  # of rows in a sample; k-means depends on it
    for row in range(0, 120, 7):
        own = features[order][classes[order] == classes[row]]
        groups = assigned(torch.from_numpy(own).float(), 3, 0).numpy()
        distances = []
        for group in range(3):
            low, high = own[groups == group].min(axis=0), own[groups == group].max(axis=0)
            reach = 1.1 * (high - low) / 2 + 1e-5 * span
            outside = np.abs(asked[row].double().numpy() - (low + high) / 2) - reach
            distances.append(max(0.0, (outside / np.maximum(high - low, 0.01 * span)).max()))
        # float32 features: seven digits, of values near 1.
        assert scores[row].item() == pytest.approx(min(distances), abs=1e-5)


@pytest.mark.parametrize("projection", [None, "pca", "isomap", "simple"])
def test_training_rows_are_inside_and_far_rows_outside(blobs, projection):
    neurons = (0, 3) if projection == "simple" else None
    monitor = ActivationBox(projection=projection, neurons=neurons, clusters="elbow").fit(blobs)
    assert (monitor.score(blobs) == 0).all()
    moved = Trace(blobs.logits, {"penultimate": blobs.features["penultimate"] + 40})
    assert (monitor.score(moved) > 1).all()


def test_misclassified_rows_teach_nothing():
    features, classes = [[0.0], [1.0], [50.0], [7.0]], [0, 0, 0, 1]
    asked = trace_of([[30.0]], [0])
    assert ActivationBox(clusters=1).fit(trace_of(features, classes)).score(asked).item() == 0
    taught = ActivationBox(clusters=1).fit(trace_of(features, classes, labels=[0, 0, 2, 1]))
    assert taught.score(asked).item() > 1
    with pytest.raises(InputError, match="correctly classified rows"):
        ActivationBox().fit(trace_of(features, classes, labels=[1, 1, 1, 0]))


def test_a_class_never_seen_gets_the_largest_score(blobs):
    monitor = ActivationBox().fit(blobs[blobs.predictions != 2])
    scores = monitor.score(blobs)
    assert (scores[blobs.predictions == 2] == UNSEEN).all()
    assert torch.isfinite(scores).all()
    assert "class 2" in monitor.remedy_
    assert not ActivationBox().fit(blobs).remedy_
    far = Trace(blobs.logits, {"penultimate": blobs.features["penultimate"] * 1e38})
    assert (monitor.score(far)[blobs.predictions != 2] <= UNSEEN).all()


@pytest.mark.parametrize("projection", [None, "pca", "isomap"])
def test_one_sample_and_constant_features_give_finite_scores(projection):
    features = torch.tensor([[0.0, 5.0, 1.0], [1.0, 5.0, 1.0], [0.3, 5.0, 1.0], [9.0, 5.0, 1.0]])
    monitor = ActivationBox(projection=projection).fit(trace_of(features, [0, 0, 0, 1]))
    assert (monitor.score(trace_of(features, [0, 0, 0, 1])) == 0).all()
    moved = monitor.score(trace_of(features + torch.tensor([20.0, 0.0, 0.0]), [0, 0, 0, 1]))
    assert torch.isfinite(moved).all()
    assert (moved > 0).all()


def scikit_learn_isomap(landmarks, neighbours):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where the graph falls apart, and joins the parts
        return Isomap(n_neighbors=neighbours, eigen_solver="dense").fit(landmarks.numpy())


def test_isomap_agrees_with_scikit_learn_on_new_points():
    roll, _ = make_swiss_roll(260, random_state=1)
    rows = torch.from_numpy(roll)
    state = geodesic(rows[:200], 200, 6, seed=0)
    reference = scikit_learn_isomap(state["landmarks"], 6)
    np.testing.assert_allclose(projected(state, rows[200:]), reference.transform(roll[200:]), atol=1e-8)


def test_isomap_joins_separate_clouds_as_scikit_learn_does():
    generator = torch.Generator().manual_seed(0)
    clouds = torch.cat([torch.randn(30, 4, generator=generator) + 100 * k for k in (0, 1, 2)]).double()
    state = geodesic(clouds, 80, 3, seed=0)
    reference = scikit_learn_isomap(state["landmarks"], 3)
    np.testing.assert_allclose(projected(state, clouds), reference.transform(clouds.numpy()), atol=1e-8)


def test_the_elbow_finds_the_number_of_separate_blobs():
    centres = torch.tensor([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])
    noise = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    assert assigned(centres[torch.arange(200) % 4] + noise, "elbow", 0).max() == 3
    assert elbow(np.array([5.0])) == elbow(np.array([0.0, 0.0, 0.0])) == 1
    assert elbow(np.array([5.0, 1.0])) == 2


@pytest.mark.parametrize("projection", [None, "pca", "isomap"])
def test_a_stream_gives_the_state_of_the_whole_and_files_keep_it(blobs, projection, tmp_path):
    monitor = ActivationBox(projection=projection, limit=30, landmarks=40).fit(blobs)
    streamed = ActivationBox(projection=projection, limit=30, landmarks=40)
    streamed.fit(blobs[start : start + 17] for start in range(0, 120, 17))
    asked = Trace(blobs.logits, {"penultimate": blobs.features["penultimate"] * 2})
    assert torch.equal(monitor.score(asked), streamed.score(asked))
    assay.save(monitor, tmp_path / "box")
    assert torch.equal(assay.load(tmp_path / "box").score(asked), monitor.score(asked))
    rows = torch.cat([monitor.score(asked[row]) for row in range(120)])
    # Matrix products round by batch size; scores are in box widths, of order 1 to 100.
    torch.testing.assert_close(rows, monitor.score(asked), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "clusters"),
        ({"clusters": "many"}, "clusters"),
        ({"projection": "tsne"}, "projection"),
        ({"gamma": -0.1}, "gamma"),
        ({"projection": "simple"}, "two neurons"),
        ({"neurons": (-1,)}, "indices"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ActivationBox(**options)


def test_wrong_data_is_refused(blobs):
    with pytest.raises(InputError, match="neurons below 5"):
        ActivationBox(neurons=(5,)).fit(blobs)
    with pytest.raises(InputError, match="'other'"):
        ActivationBox(layer="other").fit(blobs)
    bad = blobs.features["penultimate"].clone()
    bad[3, 1] = torch.nan
    with pytest.raises(InputError, match="finite penultimate"):
        ActivationBox().fit(Trace(blobs.logits, {"penultimate": bad}))
    assert torch.isnan(ActivationBox().fit(blobs).score(Trace(blobs.logits, {"penultimate": bad}))[3])
