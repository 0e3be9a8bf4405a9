"""ALOCC learns what it was shown, from its seed alone, for images and vectors of any size."""

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import nn

import assay
from assay import Guard, Network, Trace
from assay.errors import InputError, NotFittedError
from assay.monitors import Reconstruction
from assay.monitors.parts.alocc import OPTIMIZERS, Training, realness, reconstructed, trained
from assay.monitors.parts.class_rows import UNSEEN


def trace_of(inputs, classes, labels=None):
    classes = torch.as_tensor(classes)
    return Trace(torch.nn.functional.one_hot(classes, 4).float(), labels=labels, inputs=inputs)


def stripes(count, across, seed=0, size=8):
    """Images of horizontal or vertical stripes with a random phase."""
    phase = torch.rand(count, 1, 1, 1, generator=torch.Generator().manual_seed(seed)) * 6.28
    wave = torch.sin(torch.arange(size) * 1.6 + phase).expand(count, 1, size, size)
    return 0.5 + 0.5 * (wave if across else wave.transpose(2, 3))


@pytest.fixture(scope="module")
def two_classes():
    inputs = torch.cat([stripes(60, True), stripes(60, False)])
    return trace_of(inputs, torch.arange(120) // 60)


@pytest.fixture(scope="module")
def per_class(two_classes):
    return Reconstruction(per_class=True, epochs=25, batch_size=20).fit(two_classes)


def test_each_class_redraws_its_own_and_fails_on_the_other(per_class):
    new = torch.cat([stripes(20, True, seed=1), stripes(20, False, seed=1)])
    right = per_class.score(trace_of(new, torch.arange(40) // 20))
    wrong = per_class.score(trace_of(new, 1 - torch.arange(40) // 20))
    # Errors are in variances: 1 is what the average image would give.
    assert right.max() < 0.5 < wrong.min()


def test_the_paper_s_thresholds_are_the_average_training_errors(per_class, two_classes):
    scores = per_class.score(two_classes)
    expected = [scores[:60].mean(), scores[60:].mean(), scores.mean(), scores.mean()]
    torch.testing.assert_close(per_class.paper_thresholds_, torch.stack(expected))
    one = Reconstruction(epochs=1).fit(two_classes)
    torch.testing.assert_close(one.paper_thresholds_[1], one.score(two_classes)[60:].mean())


def test_the_authors_loss_is_the_cross_entropy_of_pixels(two_classes):
    monitor = Reconstruction(loss="cross-entropy", noise=0.05, epochs=25, batch_size=20).fit(two_classes)
    images = two_classes.inputs[:5]
    made = reconstructed(monitor.reconstructors_[-1], images).sigmoid()
    expected = torch.nn.functional.binary_cross_entropy(made, images, reduction="none").flatten(1).mean(dim=1)
    torch.testing.assert_close(monitor.score(two_classes[:5]), expected.double(), rtol=1e-5, atol=1e-6)
    noise = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert monitor.score(trace_of(noise, [0] * 20)).min() > monitor.score(two_classes).max()
    with pytest.raises(InputError, match=r"\[0, 1\].*cross-entropy"):
        Reconstruction(loss="cross-entropy").fit(trace_of(2 * two_classes.inputs, torch.zeros(120).long()))
    with pytest.raises(InputError, match="loss"):
        Reconstruction(loss="log")


def test_a_guard_takes_the_paper_s_thresholds(per_class, two_classes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Network(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)))
    guard = Guard(network, per_class, threshold=per_class.paper_thresholds_)
    verdict = guard(two_classes.inputs)
    expected = verdict.scores > per_class.paper_thresholds_[verdict.predictions]
    assert torch.equal(verdict.alarm, expected)


def test_a_class_never_seen_gets_the_largest_score(per_class, two_classes):
    assert (per_class.score(trace_of(two_classes.inputs, torch.full((120,), 3))) == UNSEEN).all()
    assert "classes 2, 3" in per_class.remedy_


def test_digits_of_a_class_left_out_are_harder_to_redraw():
    images, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(images).float().view(-1, 1, 8, 8) / 16
    labels = torch.from_numpy(labels)
    ones = inputs[labels == 1]
    others = inputs[labels == 0][:80]
    known = trace_of(ones[:100], torch.zeros(100, dtype=torch.int64))
    monitor = Reconstruction(epochs=30, batch_size=20).fit(known)
    asked = torch.cat([ones[100:], others])
    scores = monitor.score(trace_of(asked, torch.zeros(len(asked), dtype=torch.int64)))
    fault = torch.arange(len(asked)) >= len(ones) - 100
    # Measured above 0.999 with seeds 0 to 3; chance is 0.5.
    assert roc_auc_score(fault, scores) > 0.9


@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 32, 32), (2, 9, 13), (28, 28), (20,), (1,), (1, 2, 2), (3, 7)]
)
@pytest.mark.parametrize("measure", ["error", "discriminator"])
def test_any_shape_of_input_is_scored_row_by_row(shape, measure, tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(12, *shape, generator=generator)
    trace = trace_of(inputs, torch.zeros(12, dtype=torch.int64))
    monitor = Reconstruction(epochs=1, batch_size=5, measure=measure).fit(trace)
    scores = monitor.score(trace)
    assert scores.shape == (12,)
    assert scores.isfinite().all()
    rows = torch.cat([monitor.score(trace[row]) for row in range(12)])
    # float32 convolutions round by batch size.
    torch.testing.assert_close(rows, scores, rtol=1e-4, atol=1e-6)
    assay.save(monitor, tmp_path / "reconstruction")
    assert torch.equal(assay.load(tmp_path / "reconstruction").score(trace), scores)
    assert bool(monitor.discriminators_) == (measure == "discriminator")


@pytest.mark.parametrize("per_class", [False, True])
def test_the_seed_alone_decides_and_the_global_state_is_left_alone(two_classes, per_class):
    options = {"per_class": per_class, "epochs": 2, "limit": 40}
    before = torch.random.get_rng_state()
    whole = Reconstruction(**options, seed=5).fit(two_classes)
    assert torch.equal(torch.random.get_rng_state(), before)
    streamed = Reconstruction(**options, seed=5).fit([two_classes[:7], two_classes[7:80], two_classes[80:]])
    assert torch.equal(whole.score(two_classes), streamed.score(two_classes))
    other = Reconstruction(**options, seed=6).fit(two_classes)
    assert not torch.equal(whole.score(two_classes), other.score(two_classes))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_lowers_the_error(optimizer):
    generator = torch.Generator().manual_seed(0)
    plane = torch.randn(200, 2, generator=generator) @ torch.randn(2, 12, generator=generator)

    def error(epochs):
        reconstructor, _ = trained(plane, Training(epochs, 20, optimizer, 1e-3, 0.1, 0.4, "squared", seed=0))
        return (reconstructed(reconstructor, plane) - plane).square().mean().item()

    assert error(40) < 0.2 * error(1)


def test_the_discriminator_learns_what_the_reconstructor_makes_badly():
    # With noise far above the data the reconstructions of noisy inputs stay blurred, so D wins.
    plane = stripes(200, True)
    weights, discriminator = trained(plane, Training(15, 20, "adam", 1e-3, 10.0, 0.4, "squared", seed=0))
    noisy = plane + 10 * torch.randn(plane.shape, generator=torch.Generator().manual_seed(1))
    made = reconstructed(weights, noisy)
    assert realness(discriminator, plane).mean() > realness(discriminator, made).mean()


def test_one_sample_and_constant_inputs_give_finite_scores():
    inputs = torch.cat([torch.ones(5, 1, 8, 8), torch.rand(1, 1, 8, 8)])
    trace = trace_of(inputs, [0, 0, 0, 0, 0, 1])
    assert Reconstruction(per_class=True, epochs=1).fit(trace).score(trace).isfinite().all()
    constant = trace_of(torch.full((4, 3), 7.0), [0, 0, 0, 0])
    assert Reconstruction(epochs=1).fit(constant).score(constant).isfinite().all()


def test_labels_decide_the_class_in_fit_where_they_are_known():
    inputs = torch.cat([stripes(10, True), stripes(10, False)])
    trace = trace_of(inputs, torch.zeros(20, dtype=torch.int64), labels=torch.arange(20) // 10)
    assert sorted(Reconstruction(per_class=True, epochs=1).fit(trace).reconstructors_) == [0, 1]
    with pytest.raises(InputError, match="labels from 0 to 3"):
        Reconstruction(epochs=1).fit(trace_of(inputs, [0] * 20, labels=torch.full((20,), 4)))


def test_wrong_inputs_and_options_are_refused(two_classes):
    monitor = Reconstruction(epochs=1)
    with pytest.raises(NotFittedError):
        monitor.score(two_classes)
    with pytest.raises(InputError, match="keep_inputs=True"):
        monitor.fit(Trace(two_classes.logits))
    broken = two_classes.inputs.clone()
    broken[3, 0, 2, 2] = torch.nan
    with pytest.raises(InputError, match="finite inputs"):
        monitor.fit(trace_of(broken, two_classes.predictions))
    with pytest.raises(InputError, match="one shape"):
        monitor.fit([two_classes, trace_of(stripes(5, True, size=16), [0] * 5)])
    with pytest.raises(InputError, match="one tensor"):
        monitor.fit(trace_of({"a": two_classes.inputs}, two_classes.predictions))
    monitor.fit(two_classes)
    with pytest.raises(InputError, match=r"shape \(1, 8, 8\) as in fit"):
        monitor.score(trace_of(stripes(5, True, size=16), [0] * 5))
    assert monitor.score(trace_of(broken, two_classes.predictions))[3].isnan()
    for options in ({"measure": "ssim"}, {"optimizer": "sgd"}, {"epochs": 0}):
        with pytest.raises(InputError, match=next(iter(options)).rstrip("s")):
            Reconstruction(**options)
