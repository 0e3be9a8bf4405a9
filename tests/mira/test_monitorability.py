"""Monitorability: scores where the answer is known, intervals against a bootstrap, and bad input."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

import assay
from assay.errors import InputError
from assay.mira.left_out_class import gaussian_head
from assay.mira.panel import LEFT_OUT, Trial, best_of, mixtures, score_error, trial_table


def clusters(count, seed, classes=3):
    """Points near the corners of a simplex, and their numbers."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    points = 4 * nn.functional.one_hot(labels, classes + 2).float()
    return points + 0.3 * torch.randn(count, classes + 2, generator=generator), labels


class Head(nn.Module):
    """Distances to the corners, negated; `blind` sees only which corner is nearest."""

    def __init__(self, classes=3, blind=False):
        super().__init__()
        self.head = nn.Linear(classes + 2, classes, bias=False)
        self.blind = blind
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(classes, classes + 2))

    def forward(self, inputs):
        if self.blind:
            nearest = inputs[:, : self.head.out_features].argmax(1)
            inputs = 9.0 * nn.functional.one_hot(nearest, inputs.shape[1]).to(inputs)
        return self.head(inputs)


@pytest.fixture(scope="module")
def found():
    return assay.monitorability(assay.Network(Head()), clusters(300, 0), clusters(200, 1))


def test_a_network_that_sees_all_scores_high_and_a_blind_one_guesses(found):
    assert found.score > 0.85  # half of some mixtures are corners again, such as halves of one class
    assert found.lower <= found.score <= found.upper
    blind = assay.monitorability(assay.Network(Head(blind=True)), clusters(300, 0), clusters(200, 1))
    # All features are corners, and all corners look alike: nothing differs from anything else.
    made = mixtures(blind.table)
    assert made[made["monitor"] == "Energy"]["auroc"].to_numpy() == pytest.approx(0.5)
    assert blind.score < found.score


def test_the_answer_names_the_monitor_and_the_layer_to_ship(found):
    table = found.to_frame()
    made = table[~table["pseudo_unknown"].str.startswith(LEFT_OUT)]
    means = made.groupby(["layer", "monitor"])["auroc"].mean()
    assert (found.best_layer, found.best_monitor) == means.idxmax()
    assert set(found.per_layer["layer"]) == {"output", "penultimate"}
    assert found.best_monitor in found.summary()
    best = table.groupby("pseudo_unknown")["auroc"].max()
    out = best.index.str.startswith(LEFT_OUT)
    assert found.score == pytest.approx(np.mean([*best[~out], best[out].mean()]))


def test_a_class_that_was_left_out_is_noticed(found):
    assert found.per_class["left_out"].min() > 0.95  # far from the two other corners
    assert len(found.per_class) == 3


def test_a_trace_of_the_training_rows_gives_the_same_without_another_pass(found):
    network = assay.Network(Head())
    again = assay.monitorability(network, network.observe(clusters(300, 0)), clusters(200, 1))
    assert again.table.equals(found.table)
    assert again.per_class.equals(found.per_class)


def test_it_is_kept_in_a_file_and_drawn(found, tmp_path):
    assay.save(found, tmp_path / "found.safetensors")
    again = assay.load(tmp_path / "found.safetensors")
    assert again.score == found.score
    assert again.table.equals(found.table)
    assert len(found.figures()) == 2


def test_the_head_is_fishers():
    inputs, labels = clusters(90, 3)
    weights, biases = gaussian_head(inputs.double(), labels)
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(inputs.numpy(), labels.numpy())
    ours = (inputs.double() @ weights + biases).softmax(1)
    # The peer has no ridge of a thousandth of the variance; probabilities hardly feel it.
    np.testing.assert_allclose(ours.numpy(), peer.predict_proba(inputs.numpy()), atol=1e-3)


def test_the_error_over_inputs_is_that_of_a_bootstrap():
    generator = np.random.default_rng(0)
    rows = 300
    known = generator.normal(size=rows)
    members = {
        f"m{shift}": generator.normal(size=rows) * 0.6 + 0.4 * known + shift for shift in (0.5, 0.8, 1.0)
    }

    def trials(pick):
        numbers = np.arange(len(pick))
        return [
            Trial(name, {("output", "only"): (known[pick], scores[pick])}, numbers, numbers)
            for name, scores in members.items()
        ]

    found = trials(np.arange(rows))
    table = trial_table(found, 0.95)
    best = best_of(table)
    error = score_error(found, table, rows)
    over_inputs = (error**2 - best.var(ddof=1) / len(best)) ** 0.5
    draws = [best_of(trial_table(trials(generator.integers(0, rows, rows)), 0.95)).mean() for _ in range(300)]
    # A standard deviation from 300 draws is off by 4 %; three times that.
    assert over_inputs == pytest.approx(np.std(draws), rel=0.13)


def test_black_boxes_probabilities_and_two_classes_work_and_say_what_is_left_out():
    inputs, labels = clusters(200, 0, classes=2)
    box = assay.Network.from_function(
        lambda rows: torch.as_tensor(rows)[:, :2].softmax(1).numpy(), identity="corners"
    )
    found = assay.monitorability(box, (inputs, labels), clusters(100, 1, classes=2))
    assert set(found.table["monitor"]) == {"ODIN"}
    assert "Energy (output)" in found.left_out
    assert LEFT_OUT in found.left_out
    two = assay.monitorability(assay.Network(Head(2)), (inputs, labels), clusters(100, 1, classes=2))
    assert "fewer than three classes" in two.left_out[LEFT_OUT]
    assert LEFT_OUT in two.summary()


def test_one_class_works():
    inputs, _ = clusters(120, 0)
    labels = torch.zeros(120, dtype=torch.long)
    found = assay.monitorability(
        assay.Network(Head()), (inputs[:80], labels[:80]), (inputs[80:], labels[80:])
    )
    assert LEFT_OUT in found.left_out
    assert 0 <= found.score <= 1


class Words(nn.Module):
    """Token ids without embeddings: how often two of the tokens occur."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, ids):
        return self.head(torch.stack([(ids == 5).float().mean(1), (ids == 6).float().mean(1)], dim=1))


def test_token_ids_without_embeddings_are_mixed_as_they_are():
    ids = torch.randint(1, 9, (120, 7), generator=torch.Generator().manual_seed(0))
    labels = (ids == 5).sum(1).gt(0).long()
    found = assay.monitorability(assay.Network(Words()), (ids[:60], labels[:60]), (ids[60:], labels[60:]))
    assert "reversed_order" in set(found.table["pseudo_unknown"])


def test_what_cannot_be_measured_is_one_sentence():
    network = assay.Network(Head())
    train, test = clusters(60, 0), clusters(60, 1)
    with pytest.raises(InputError, match="at least 4 test inputs"):
        assay.monitorability(network, train, (test[0][:1], test[1][:1]))
    with pytest.raises(InputError, match="rows of its own"):
        assay.monitorability(network, train, train)
    with pytest.raises(InputError, match="some of the pseudo-unknowns"):
        assay.monitorability(network, train, test, pseudo_unknowns=["noise"])
