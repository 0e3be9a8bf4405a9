"""The score against closed forms, against a plain rewriting of the paper, and at the edges."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.errors import GradientError, InputError, UndecidedError
from assay.mira import surprisal

COUNT = 4_000


class Coordinates(nn.Module):
    """Features are the inputs; the class is the sign of the first coordinate."""

    def __init__(self, size=2):
        super().__init__()
        self.head = nn.Linear(size, 2, bias=False)
        weights = torch.zeros(2, size)
        weights[:, 0] = torch.tensor([-1.0, 1.0])
        self.head.weight = nn.Parameter(weights)

    def forward(self, x):
        return self.head(x)


def gaussians(count, gap=6.0, size=2, seed=0):
    """Two classes of unit covariance, `gap` apart along the first coordinate."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    inputs = torch.randn(count, size, generator=generator)
    inputs[:, 0] += (labels * 2 - 1) * gap / 2
    return inputs, labels


@pytest.fixture
def network():
    return assay.Network(Coordinates(), batch_size=8192)


def test_two_gaussian_classes_have_the_score_that_theory_gives(network):
    """FGSM moves the first coordinate towards the other class, by e: D^2 = (z1 - e)^2 + z2^2.

    In two dimensions surprisal is D^2 / 2, so that E[S] = 1 + e^2 / 2 as long as the other class is further
    away: the classes are 12 standard deviations apart, the range ends at 1.
    """
    data = gaussians(20_000, gap=12)
    result = assay.mira_score(
        network, data, gaussians(20_000, gap=12, seed=1), epsilon_range=(0.5, 1.0), resamples=200
    )
    # Only the first coordinate has a gradient. Mean of e^2 / 2 over [0.5, 1]: (1 - 1/8) / 3 / 2 / 0.5.
    expected = (1 - 0.125) / 3
    assert result.baseline == pytest.approx(1, abs=0.02)  # 20,000 draws: standard error 0.007
    assert result.score == pytest.approx(expected, abs=0.02)
    assert result.interval[0] < result.score < result.interval[1]
    assert not result.warnings


def test_epsilon_min_is_the_quantile_of_the_margins(network):
    inputs, labels = gaussians(COUNT)
    result = assay.mira_score(network, gaussians(COUNT, seed=1), (inputs, labels), accuracy_threshold=0.5)
    margins = np.sort((inputs[:, 0] * (labels * 2 - 1)).numpy())
    # Half of all inputs must have crossed: the median margin, to the stated tolerance of 5e-3.
    assert result.epsilon_min == pytest.approx(margins[COUNT // 2], rel=5e-3)
    assert result.epsilon_max == 2 * result.epsilon_min
    assert result.curve["accuracy"].iloc[0] <= 0.5


def plain(network, train, test, epsilons):
    """MIRA as the paper's text says it, without a line of the package's own."""
    with torch.no_grad():
        features = hidden(network, train[0])
        classes = [features[train[1] == label] for label in range(3)]
        means = [rows.mean(0) for rows in classes]
        centred = torch.cat([rows - mean for rows, mean in zip(classes, means, strict=True)])
        inverse = torch.linalg.inv(centred.T @ centred / len(centred))

    def mean_surprisal(inputs):
        with torch.no_grad():
            rows = hidden(network, inputs)
            distances = torch.stack([(((rows - mean) @ inverse) * (rows - mean)).sum(1) for mean in means])
        return -chi2.logsf(distances.amin(0).numpy(), rows.shape[1]).mean()

    moving = test[0].clone().requires_grad_()
    torch.autograd.backward(nn.functional.cross_entropy(network(moving), test[1]))
    baseline = mean_surprisal(test[0])
    values = [mean_surprisal(test[0] + epsilon * moving.grad.sign()) for epsilon in epsilons]
    return float(
        np.trapezoid(np.array(values) - baseline, epsilons) / (epsilons[-1] - epsilons[0]) / baseline
    )


def hidden(network, inputs):
    return network.module[:2](inputs).double()


@pytest.fixture
def curved():
    torch.manual_seed(0)
    return assay.Network(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), batch_size=64)


@pytest.fixture
def curved_data(curved):
    def drawn(count, seed):
        inputs = torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
        return inputs, curved.observe(inputs).predictions

    return drawn(600, 1), drawn(200, 2)


def test_the_score_is_what_a_plain_rewriting_of_the_paper_gives(curved, curved_data):
    train, test = curved_data
    result = assay.mira_score(curved, train, test, accuracy_threshold=0.6, steps=7)
    expected = plain(curved, train, test, result.curve["epsilon"].to_numpy())
    # The forward passes are in single precision, batched differently.
    assert result.score == pytest.approx(expected, rel=1e-4)
    weighted = (result.curve["weight"] * (result.curve["surprisal"] / result.baseline - 1)).sum()
    assert result.score == pytest.approx(weighted, rel=1e-9)


def test_one_step_stands_in_the_middle_of_the_range(curved, curved_data):
    result = assay.mira_score(curved, *curved_data, accuracy_threshold=0.6, steps=1, resamples=10)
    assert result.epsilon_max == 2 * result.epsilon_min
    assert result.curve["epsilon"].tolist() == [1.5 * result.epsilon_min]


def test_per_class_scores_are_the_score_of_each_class_alone(curved, curved_data):
    train, (inputs, labels) = curved_data
    whole = assay.mira_score(curved, train, (inputs, labels), epsilon_range=(0.1, 0.2), steps=5)
    for row in whole.per_class.itertuples():
        own = labels == row.label
        alone = assay.mira_score(curved, train, (inputs[own], labels[own]), epsilon_range=(0.1, 0.2), steps=5)
        assert row.score == pytest.approx(alone.score, rel=1e-5)
        assert row.baseline == pytest.approx(alone.baseline, rel=1e-5)
    shares = whole.per_class["inputs"] * whole.per_class["baseline"]
    mixed = (whole.per_class["score"] * shares).sum() / shares.sum()
    assert whole.score == pytest.approx(mixed, rel=1e-9)


def test_loaders_and_pairs_give_the_same_score_and_leave_the_random_state_alone(curved, curved_data):
    state = torch.random.get_rng_state()
    whole = assay.mira_score(curved, *curved_data, steps=4, accuracy_threshold=0.6)
    assert torch.equal(torch.random.get_rng_state(), state)
    loaders = [
        DataLoader(TensorDataset(*pair), batch_size=37, generator=torch.Generator()) for pair in curved_data
    ]
    batched = assay.mira_score(curved, *loaders, steps=4, accuracy_threshold=0.6)
    # The same inputs in the same order; the batches differ, and with them the last bits of the logits.
    assert batched.score == pytest.approx(whole.score, rel=1e-4)
    assert batched.epsilon_min == pytest.approx(whole.epsilon_min, rel=1e-2)


def test_one_backward_pass_serves_all_steps_and_the_search(curved, curved_data, monkeypatch):
    calls = []
    original = assay.Network.gradient
    monkeypatch.setattr(
        assay.Network,
        "gradient",
        lambda self, inputs, *rest: calls.append(len(inputs)) or original(self, inputs, *rest),
    )
    assay.mira_score(curved, *curved_data, accuracy_threshold=0.6)
    assert sum(calls) == 200


def test_a_pilot_finds_the_same_range_with_fewer_inputs(network):
    from assay.mira.score import prepared_sweep
    from assay.mira.settings import MiraSettings

    data = gaussians(6_000), gaussians(6_000, seed=1)
    result = assay.mira_score(network, *data, steps=2, resamples=10)
    sweep = prepared_sweep(network, *data, [("penultimate",)], MiraSettings())
    assert sweep.at(result.epsilon_min).accuracy <= 0.5 < sweep.at(result.epsilon_min * (1 - 6e-3)).accuracy


def test_a_sample_that_misleads_does_not_decide(network):
    inputs, labels = gaussians(500)
    labels[:20] = 1 - labels[:20]
    train = gaussians(500, seed=1)
    for seed in range(12):  # some samples of 83 have an accuracy under the threshold to begin with
        result = assay.mira_score(
            network, train, (inputs, labels), accuracy_threshold=0.955, steps=2, resamples=5, seed=seed
        )
        assert result.curve["accuracy"].iloc[0] <= 0.955 < result.accuracy


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("form", "literal"),
        ("covariance", "per_class"),
        ("estimator", "ledoit_wolf"),
        ("estimator", "oas"),
        ("reference", "predicted"),
        ("norm", "l2"),
        ("norm", "l1"),
        ("perturbation", "pgd"),
        ("perturbation", "random_sign"),
    ],
)
def test_every_option_changes_the_score_and_keeps_it_finite(curved, curved_data, option, value):
    fixed = {"epsilon_range": (0.2, 0.4), "steps": 4, "resamples": 20}
    default = assay.mira_score(curved, *curved_data, **fixed).score
    changed = assay.mira_score(curved, *curved_data, **fixed, **{option: value}).score
    assert np.isfinite(changed)
    assert changed != default


def test_the_literal_form_is_eq_3_as_it_stands(curved, curved_data):
    train, test = curved_data
    result = assay.mira_score(
        curved, train, test, epsilon_range=(0.2, 0.4), steps=3, form="literal", resamples=10
    )
    monitor = assay.monitors.Mahalanobis().fit(curved.observe(train))
    distance = monitor.score(curved.observe(test)).sqrt()
    assert result.baseline == pytest.approx(float(surprisal(distance.numpy(), 8).mean()), rel=1e-5)


def test_any_function_may_be_the_perturbation(curved, curved_data):
    def fade(network, inputs, labels, epsilon):
        return inputs * (1 - epsilon)

    result = assay.mira_score(curved, *curved_data, perturbation=fade, epsilon_range=(0.5, 1.0), steps=3)
    assert result.curve["accuracy"].iloc[-1] < result.accuracy


def test_bounds_hold_for_moved_inputs(curved, curved_data):
    seen = []

    class Listening(assay.Network):
        def _forward(self, inputs, layers):
            seen.append((float(inputs.detach().min()), float(inputs.detach().max())))
            return super()._forward(inputs, layers)

    network = Listening(curved.module)
    inputs, labels = curved_data[1]
    assay.mira_score(
        network,
        curved_data[0],
        (inputs.clamp(-1, 1), labels),
        epsilon_range=(0.5, 0.6),
        steps=2,
        low=-1,
        high=1,
    )
    assert all(low >= -1 and high <= 1 for low, high in seen[-4:])


def test_joined_layers_equal_the_score_of_their_features_side_by_side(curved, curved_data):
    class Joined(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.head = nn.Linear(11, 3)
            self.head.weight = nn.Parameter(torch.cat([torch.zeros(3, 8), torch.eye(3)], 1))
            self.head.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            hidden = self.module[:2](x)
            return self.head(torch.cat([hidden, self.module[2](hidden)], 1))

    # Both layers together are singular (the second follows from the first): the remedy must be the same.
    fixed = {"epsilon_range": (0.2, 0.4), "steps": 3, "estimator": "oas"}
    joint = assay.mira_score(curved, *curved_data, layer=("1", "2"), **fixed)
    alike = assay.mira_score(assay.Network(Joined(curved.module)), *curved_data, **fixed)
    assert joint.score == pytest.approx(alike.score, rel=1e-3)
    assert joint.layer == "1 + 2"
    assert joint.dimensions == 11


def test_the_interval_covers_the_truth_about_as_often_as_it_says(network):
    train = gaussians(20_000, gap=12)
    truth = (1 - 0.125) / 3
    results = [
        assay.mira_score(
            network,
            train,
            gaussians(300, gap=12, seed=seed),
            epsilon_range=(0.5, 1.0),
            steps=5,
            level=0.9,
            resamples=300,
        )
        for seed in range(10, 70)
    ]
    covered = np.mean([result.interval[0] <= truth <= result.interval[1] for result in results])
    # 60 trials at 90 %: three standard errors are 0.12.
    assert covered == pytest.approx(0.9, abs=0.12)


def test_few_rows_for_the_dimension_are_flagged_and_many_are_not():
    network = assay.Network(Coordinates(size=30))
    few, many = gaussians(150, size=30), gaussians(5_000, size=30)
    options = {"epsilon_range": (0.5, 1.0), "steps": 2, "resamples": 10}
    flagged = assay.mira_score(network, few, many, **options)
    assert "are few for 30 dimensions" in flagged.warnings[0]
    assert "Note:" in flagged.summary()
    assert flagged.baseline > 1.5
    assert not assay.mira_score(network, gaussians(5_000, size=30, seed=1), many, **options).warnings
    shrunk = assay.mira_score(network, few, many, estimator="ledoit_wolf", **options)
    # The true covariance is the identity, towards which the estimate shrinks: the baseline is right again.
    assert shrunk.baseline == pytest.approx(1, abs=0.35)


def test_dead_and_dependent_features_are_left_out_and_change_nothing(network):
    class Padded(Coordinates):
        """Two features, one of them again, and one that never moves in training."""

        def __init__(self):
            super().__init__(size=4)

        def forward(self, x):
            still = torch.relu(x[:, :1].abs() - 30)
            return self.head(torch.cat([x, x[:, 1:], still], 1))

    train, test = gaussians(3_000), gaussians(500, seed=1)
    fixed = {"epsilon_range": (0.5, 1.0), "steps": 3, "resamples": 10}
    plain = assay.mira_score(network, train, test, **fixed)
    padded = assay.mira_score(assay.Network(Padded()), train, test, **fixed)
    assert padded.score == pytest.approx(plain.score, rel=1e-4)
    assert padded.dimensions == 2
    assert "2 of 4 directions did not vary" in padded.warnings[0]
    shrunk = assay.mira_score(assay.Network(Padded()), train, test, still="shrink", **fixed)
    assert "singular" in shrunk.warnings[0]
    assert shrunk.dimensions == 4


def test_a_few_far_inputs_that_rule_the_score_are_named(network):
    inputs, labels = gaussians(500, seed=1)
    inputs[0] = torch.tensor([900.0, 900.0])
    inputs[1] = torch.tensor([-900.0, 900.0])
    fixed = {"epsilon_range": (0.5, 1.0), "steps": 3, "resamples": 10}
    clean = assay.mira_score(network, gaussians(3_000), (inputs[2:], labels[2:]), **fixed)
    assert not clean.warnings
    ruled = assay.mira_score(network, gaussians(3_000), (inputs, labels), **fixed)
    assert ruled.score < 0.1 * clean.score
    assert "5 of 500 clean test inputs carry" in ruled.warnings[0]


def test_a_layer_wider_than_the_sample_is_undecided_unless_shrinking_is_asked_for():
    network = assay.Network(Coordinates(size=40))
    test = gaussians(200, size=40, seed=1)
    # 42 rows of two classes have 40 directions about their means, as many as there are features.
    each = {"covariance": "per_class"}
    for rows, got, options in ((41, 41, {}), (80, 40, each), (2, 2, {"estimator": "oas"})):
        with pytest.raises(UndecidedError, match=f"the covariance of 40 features .* got {got};"):
            assay.mira_score(network, gaussians(rows, size=40), test, steps=2, **options)
    assert assay.mira_score(network, gaussians(42, size=40), test, steps=2).warnings
    assert np.isfinite(
        assay.mira_score(network, gaussians(30, size=40), test, steps=2, estimator="oas").score
    )


def test_a_result_is_a_whole_answer(curved, curved_data, tmp_path):
    result = assay.mira_score(curved, *curved_data, steps=5, accuracy_threshold=0.6)
    assert "MIRA score at layer penultimate is" in result.summary()
    assert len(result.to_frame()) == 1
    assert list(result.curve) == ["epsilon", "weight", "surprisal", "accuracy"]
    assert len(result.curve) == 5
    assert [len(figure.axes) for figure in result.figures()] == [2, 1, 1]
    assay.save(result, tmp_path / "result")
    again = assay.load(tmp_path / "result", kind="MiraResult")
    assert again.summary() == result.summary()
    assert again.curve.equals(result.curve)
    assert np.array_equal(again.draws, result.draws)


def test_the_summary_says_when_nothing_is_to_be_seen(curved, curved_data):
    def calm(network, inputs, labels, epsilon):
        return torch.zeros_like(inputs)

    result = assay.mira_score(curved, *curved_data, perturbation=calm, epsilon_range=(0.1, 0.2), steps=2)
    assert result.score < 0
    assert "look no more unusual from inside than clean ones" in result.summary()


class BlackBox(nn.Module):
    differentiable = False

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


@pytest.mark.parametrize("order", [slice(None), torch.arange(50).flip(0)])
def test_a_score_on_the_rows_it_was_fitted_on_says_so(network, order):
    """The paper has one dataset, so it is a score; `assay mira` refuses it."""
    inputs, labels = gaussians(50)
    result = assay.mira_score(network, (inputs, labels), (inputs[order].clone(), labels[order]), resamples=10)
    assert any("most test inputs are training inputs" in warning for warning in result.warnings)
    other = assay.mira_score(network, (inputs, labels), gaussians(50, seed=1), resamples=10)
    assert not any("training inputs" in warning for warning in other.warnings)


def test_a_label_that_is_no_class_is_refused_before_gradients_ignore_it(network):
    train, (inputs, labels) = gaussians(50), gaussians(50, seed=1)
    labels[7] = 99
    for data in ((train, (inputs, labels)), ((inputs, labels), train)):
        with pytest.raises(InputError, match="expected labels from 0 to 1"):
            assay.mira_score(network, *data)


def test_inputs_whose_label_is_to_be_ignored_are_left_out(network):
    train, (inputs, labels) = gaussians(50), gaussians(50, seed=1)
    marked = labels.clone()
    marked[7] = -100
    kept = torch.arange(len(labels)) != 7
    for there, here in ((marked, kept), (labels, slice(None))):
        ours = assay.mira_score(network, train, (inputs, there), resamples=10)
        assert (
            ours.score == assay.mira_score(network, train, (inputs[here], labels[here]), resamples=10).score
        )


def test_a_network_with_several_predictions_per_input_is_refused(network):
    dense = assay.Network(network.module, layers=(), rows="pixels")
    for score in (
        lambda: assay.mira_score(dense, gaussians(50), gaussians(50)),
        lambda: assay.monitorability(dense, gaussians(50), gaussians(50)),
    ):
        with pytest.raises(InputError, match="one prediction per input"):
            score()


def test_bad_input_gets_one_clear_sentence(network, curved, curved_data):
    train, test = curved_data
    with pytest.raises(InputError, match=r"above the threshold 0\.5, got"):
        assay.mira_score(curved, train, (test[0], (test[1] + 1) % 3))
    with pytest.raises(InputError, match="at least two classes, got 1"):
        assay.mira_score(network, (torch.randn(9, 2), torch.ones(9, dtype=torch.long)), gaussians(50))
    with pytest.raises(InputError, match="expected test data with labels"):
        assay.mira_score(curved, train, test[0])
    with pytest.raises(InputError, match="with labels"):
        assay.mira_score(curved, train[0], test)
    with pytest.raises(InputError, match=r"wrap the module: assay.Network"):
        assay.mira_score(curved.module, train, test)
    with pytest.raises(InputError, match="choose from"):
        assay.mira_score(curved, train, test, layer="nowhere")
    with pytest.raises(InputError, match="sum to 1"):
        assay.mira_score(curved, train, test, steps=3, weight=[1.0, 1.0, 1.0], accuracy_threshold=0.6)
    with pytest.raises(InputError, match="never did"):
        assay.mira_score(
            network,
            gaussians(99),
            gaussians(99, seed=1),
            low=-5,
            high=5,
            perturbation="random_sign",
            accuracy_threshold=0.1,
        )
    for wrong in (
        {"accuracy_threshold": 1.5},
        {"steps": 0},
        {"form": "cubic"},
        {"reference": "all"},
        {"still": "keep"},
        {"covariance": "none"},
        {"estimator": "none"},
        {"norm": "l7"},
        {"perturbation": "wind"},
        {"epsilon_range": (0.3, 0.1)},
        {"low": 1.0, "high": 0.0},
    ):
        with pytest.raises(InputError, match="expected"):
            assay.mira_score(curved, train, test, **wrong)


def test_a_black_box_needs_a_perturbation_without_gradients(curved, curved_data):
    black = assay.Network(BlackBox(curved.module))
    with pytest.raises(GradientError, match="perturbation='random_sign'"):
        assay.mira_score(black, *curved_data)
    result = assay.mira_score(
        black, *curved_data, perturbation="random_sign", epsilon_range=(0.5, 1.0), steps=2
    )
    assert np.isfinite(result.score)


def test_labels_in_another_order_are_named_where_accuracy_is_low(network):
    train, (inputs, labels) = gaussians(300), gaussians(300, seed=1)
    with pytest.raises(UndecidedError, match=r"in another order of the classes .* \(label 0 as 1, 1 as 0\)"):
        assay.mira_score(network, train, (inputs, 1 - labels))
    given = assay.mira_score(network, train, (inputs, 1 - labels), epsilon_range=(0.5, 1.0), steps=2)
    assert "in another order of the classes" in given.warnings[-1]
