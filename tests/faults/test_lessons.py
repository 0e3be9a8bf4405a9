"""Lessons: every fault and every attack, once, with the rows and labels of the reference."""

import numpy as np
import pytest
import torch

import assay
from assay.errors import InputError
from assay.faults import TABULAR, TEXT
from assay.faults.attack_traces import LENGTHS, NEAR
from assay.faults.lessons import ATTACK, CLEAN, lessons


class Counting(torch.nn.Module):
    """A linear classifier that counts the rows it has seen."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.head = torch.nn.Linear(4, 3)
        self.head.weight.data = torch.randn(3, 4, generator=generator)
        self.rows = 0

    def forward(self, inputs):
        self.rows += len(inputs)
        return self.head(inputs)


def data(rows=120, seed=0):
    inputs = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, Counting()(inputs).argmax(dim=1).detach()


def test_the_first_is_clean_and_every_fault_follows_at_every_severity():
    inputs, labels = data()
    network = assay.Network(Counting())
    found = list(lessons(network, (inputs, labels), attacks=False))
    assert (found[0].fault, found[0].severity) == (CLEAN, 0)
    wanted = [(name, fault.category, step) for name, fault in TABULAR.items() for step in range(1, 6)]
    assert [(one.fault, one.category, one.severity) for one in found[1:]] == wanted
    expected = network.observe(TABULAR["gaussian_noise"](inputs, 3, seed=0)).logits
    noise = next(one for one in found if (one.fault, one.severity) == ("gaussian_noise", 3))
    assert torch.equal(noise.trace.logits, expected)
    assert torch.equal(noise.trace.labels, labels)


def test_attacks_move_a_part_of_the_rows_and_say_which():
    inputs, labels = data(400)
    found = [
        one
        for one in lessons(assay.Network(Counting()), (inputs, labels), faults=[])
        if one.category == ATTACK
    ]
    assert [one.fault for one in found] == ["fgsm"] * len(LENGTHS) + ["pgd"] * len(NEAR)
    accuracies = [float(one.trace.correct.double().mean()) for one in found[: len(LENGTHS)]]
    # A linear network loses accuracy with every step of FGSM.
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[-1] < accuracies[0] / 2
    for one in found:
        assert torch.equal(one.trace.labels, labels[one.places])
        assert len(one.places) == 300


def test_black_boxes_are_taught_without_attacks():
    inputs, labels = data()
    weights = Counting().head.weight.detach().numpy()

    def predict(rows):
        scores = np.exp(rows @ weights.T)
        return scores / scores.sum(axis=1, keepdims=True)

    network = assay.Network.from_function(predict, identity="linear")
    found = list(lessons(network, (inputs, labels), faults=["gaussian_noise"]))
    assert [one.fault for one in found] == [CLEAN] + ["gaussian_noise"] * 5


def test_texts_have_their_own_faults():
    texts = ["a good film about people", "a bad one", "nothing happens here at all"] * 10
    labels = torch.tensor([0, 1, 1] * 10)

    class Words(assay.Network):
        def encode(self, data):
            return torch.tensor([[float(text.count(letter)) for letter in "abcd"] for text in data])

    found = list(lessons(Words(Counting()), (texts, labels)))
    assert {one.fault for one in found} == {CLEAN, *TEXT}


def test_a_folder_saves_the_passes_and_a_killed_run_goes_on(tmp_path):
    inputs, labels = data()
    module = Counting()
    first = lessons(assay.Network(module), (inputs, labels), folder=tmp_path, faults=["gaussian_noise"])
    seen = [next(first) for _ in range(3)]  # and then it is killed
    module.rows = 0
    again = list(lessons(assay.Network(module), (inputs, labels), folder=tmp_path, faults=["gaussian_noise"]))
    whole = module.rows
    for one, other in zip(seen, again, strict=False):
        assert torch.equal(one.trace.logits, other.trace.logits)
    module.rows = 0
    list(lessons(assay.Network(module), (inputs, labels), folder=tmp_path, faults=["gaussian_noise"]))
    assert whole > 0
    assert module.rows == 0


@pytest.mark.parametrize("change", ["weights", "inputs", "seed"])
def test_nothing_in_a_folder_is_taken_for_another_networks(tmp_path, change):
    inputs, labels = data()
    module = Counting()
    list(lessons(assay.Network(module), (inputs, labels), folder=tmp_path, faults=["gaussian_noise"]))
    other = Counting(seed=1) if change == "weights" else module
    inputs = inputs + 1e-3 if change == "inputs" else inputs
    seed = 5 if change == "seed" else 0
    other.rows = 0
    found = list(
        lessons(assay.Network(other), (inputs, labels), folder=tmp_path, faults=["gaussian_noise"], seed=seed)
    )
    assert other.rows > 0
    noisy = TABULAR["gaussian_noise"](inputs, 5, seed=seed)
    assert torch.equal(found[5].trace.logits, assay.Network(other).observe(noisy).logits)


def test_many_rows_are_drawn_from():
    inputs, labels = data(500)
    found = next(lessons(assay.Network(Counting()), (inputs, labels), rows_at_most=100))
    assert len(found.trace) == 100
    assert {tuple(row) for row in found.trace.inputs.tolist()} < {tuple(row) for row in inputs.tolist()}


def test_rows_whose_label_is_to_be_ignored_are_left_out():
    inputs, labels = data()
    labels[:7] = -100
    found = list(lessons(assay.Network(Counting()), (inputs, labels), faults=["gaussian_noise"]))
    assert torch.equal(found[0].trace.labels, labels[7:])
    assert torch.equal(found[0].trace.inputs, inputs[7:])
    assert all(len(one.trace) == len(inputs) - 7 for one in found)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"faults": ["fog"]}, "expected faults of"),
        ({"severities": (0,)}, "severity from 1 to 5"),
        ({"data": assay.Trace(torch.zeros(3, 2))}, "inputs and labels to teach from"),
        ({"data": (torch.zeros(3, 4), [0, 1])}, "a label per input"),
        ({"data": (torch.zeros(0, 4), [])}, "labelled inputs to teach from"),
        ({"rows_at_most": 0}, "labelled inputs to teach from"),
    ],
)
def test_wrong_use_is_said_before_any_work(wrong, message):
    module = Counting()
    options = {"data": data(), **wrong}
    with pytest.raises(InputError, match=message):
        lessons(assay.Network(module), options.pop("data"), **options)
    assert module.rows == 0
