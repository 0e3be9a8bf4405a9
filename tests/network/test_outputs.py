"""What a network returns is read once and for all: probabilities, one logit, one of several outputs."""

import warnings
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import assay
from assay import Guard, Network
from assay.errors import AssayWarning, InputError, StorageError
from assay.monitors import KNN, Energy, MaxSoftmax, NNGuide, ViM

SAID = r"Sequential returns probabilities \(rows that add up to 1\), so assay takes their logarithms"


def plain(classes=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, classes))


def ending_in(*last, classes=3):
    return nn.Sequential(*plain(classes), *last)


@pytest.fixture
def rows():
    return 3 * torch.randn(60, 4, generator=torch.Generator().manual_seed(1))


def recognised(module, rows):
    """A network that has seen enough rows."""
    network = Network(module)
    with pytest.warns(AssayWarning, match=SAID):
        network.observe(rows)
    return network


def test_a_module_that_ends_in_softmax_gives_the_probabilities_it_says(rows):
    module = ending_in(nn.Softmax(dim=1))
    network = recognised(module, rows)
    assert network.outputs == "probabilities"
    expected = Network(plain()).observe(rows)
    trace = network.observe(rows)  # not said again: a warning would fail this test
    torch.testing.assert_close(trace.probabilities, expected.probabilities, rtol=1e-5, atol=1e-7)
    assert torch.equal(trace.layer("penultimate"), expected.layer("penultimate"))


def test_what_was_recognised_holds_for_single_rows_and_for_calls_with_gradients(rows):
    network = recognised(ending_in(nn.Softmax(dim=1)), rows)
    whole = network.observe(rows).logits
    for row in range(3):
        torch.testing.assert_close(network.observe(rows[row : row + 1]).logits[0], whole[row])
        torch.testing.assert_close(network(rows[row : row + 1])[0].detach(), whole[row])
    assert network.watching(("0",)).outputs == "probabilities"
    gradient = network.gradient(rows, lambda trace: trace.logits.log_softmax(dim=1)[:, 0])
    expected = Network(plain()).gradient(rows, lambda trace: trace.logits.log_softmax(dim=1)[:, 0])
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 5])
def test_the_first_batch_may_be_small(rows, count):
    recognised(ending_in(nn.Softmax(dim=1)), rows[:count])


def test_stating_it_says_nothing_and_is_part_of_the_identity(rows):
    module = ending_in(nn.Softmax(dim=1))
    stated = Network(module, outputs="probabilities")
    torch.testing.assert_close(
        stated(rows[:1]).softmax(dim=1), module(rows[:1]), msg="a single row, without a word"
    )
    assert stated.fingerprint != Network(module, outputs="logits").fingerprint
    assert torch.equal(Network(module, outputs="logits")(rows), module(rows))
    network = Network(module)
    before = network.fingerprint
    with pytest.warns(AssayWarning):
        network.observe(rows)
    assert network.fingerprint == before
    logs = Network(ending_in(nn.LogSoftmax(dim=1)), outputs="log-probabilities")
    torch.testing.assert_close(logs(rows).softmax(dim=1), module(rows))


def test_a_false_statement_is_refused(rows):
    with pytest.raises(InputError, match="expected probabilities from Sequential"):
        Network(plain(), outputs="probabilities").observe(rows)
    with pytest.raises(InputError, match=r"outputs to be one of .*got 'scores'"):
        Network(plain(), outputs="scores")


def test_logits_and_log_probabilities_are_what_they_were(rows):
    for module in (plain(), ending_in(nn.LogSoftmax(dim=1))):
        network = Network(module)
        assert torch.equal(network.observe(rows).logits, module(rows))
        assert network.outputs == "logits"


class OneHot(nn.Module):
    """Whole numbers for inputs below zero, a softmax for others."""

    def forward(self, x):
        answers = nn.functional.one_hot((x[:, 0].abs() * 10).long() % 2, 2).float()
        return torch.where(x[:, :1] < 0, answers, x[:, :2].softmax(dim=1))


def test_rows_that_show_nothing_are_logits_until_others_object(rows):
    network = Network(OneHot(), layers=())
    low = -rows.abs()
    assert torch.equal(network.observe(low).logits.sum(dim=1), torch.ones(len(low)))
    assert network.outputs is None
    with pytest.raises(InputError, match=r'as which its first rows were read.*outputs="probabilities"'):
        network.observe(rows.abs())
    stated = Network(OneHot(), layers=(), outputs="probabilities")
    assert stated.observe(low).probabilities.amax(dim=1).min() == 1


def test_rows_that_may_be_either_ask(rows):
    class Rounded(nn.Module):
        def forward(self, x):
            return (x[:, :3].softmax(dim=1) * 1.0005).half()

    with pytest.raises(InputError, match=r'5 rows that may be either; pass outputs="probabilities" or'):
        Network(Rounded(), layers=()).observe(rows[:5])
    with pytest.warns(AssayWarning):
        assert Network(Rounded(), layers=()).observe(rows).probabilities.amax() < 1


def test_a_saved_guard_knows_how_outputs_were_read(rows, tmp_path):
    module = ending_in(nn.Softmax(dim=1))
    network = recognised(module, rows)
    seen = network.observe(rows)
    guard = Guard(network, MaxSoftmax().fit(seen)).calibrate(seen, 0.1)
    assay.save(guard, tmp_path / "guard")
    fresh = Network(module)
    back = assay.load(tmp_path / "guard", network=fresh)
    assert fresh.outputs == "probabilities"
    assert torch.equal(back(rows[:1]).scores, guard(rows[:1]).scores)  # its first row, and no word
    assert back.fingerprint == guard.fingerprint
    other = Network(module)
    other.read_as("logits")
    with pytest.raises(StorageError, match="expected outputs read as probabilities, as when the file was"):
        assay.load(tmp_path / "guard", network=other)
    with pytest.raises(StorageError, match=r"what outputs= states"):
        assay.load(tmp_path / "guard", network=Network(module, outputs="logits"))


def test_the_exported_graph_reads_outputs_in_the_same_way(rows, tmp_path):
    network = recognised(ending_in(nn.Softmax(dim=1)), rows)
    seen = network.observe(rows)
    guard = Guard(network, KNN().fit(seen)).calibrate(seen, 0.1)
    guard.export(tmp_path / "guard.onnx")
    answer = assay.OnnxGuard(tmp_path / "guard.onnx").answer(rows)
    torch.testing.assert_close(answer.trace.logits, seen.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(answer.verdict.scores, guard(rows).scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("monitor", [Energy, NNGuide])
def test_what_a_softmax_drops_is_missed_in_a_sentence(rows, monitor):
    network = recognised(ending_in(nn.Softmax(dim=1)), rows)
    with pytest.raises(InputError, match=rf"logits to fit {monitor.__name__} on.*without its softmax"):
        monitor().fit(network.observe(rows))
    with pytest.raises(InputError, match="without a softmax after it"):
        ViM().fit(network.observe(rows))


@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_is_two_classes(rows, flat):
    class Single(nn.Sequential):
        def forward(self, x):
            value = super().forward(x)
            return value[:, 0] if flat else value

    module = Single(*plain(1))
    network = Network(module)
    trace = network.observe((rows, module(rows).flatten() > 0))
    chances = torch.sigmoid(module(rows).flatten().double())
    torch.testing.assert_close(trace.probabilities[:, 1], chances, rtol=1e-5, atol=1e-7)
    assert trace.logits[:, 0].abs().max() == 0
    assert trace.correct.all()
    assert network.outputs == "logits"
    assert Energy().fit(trace).score(trace).isfinite().all()


def test_one_sigmoid_is_two_classes(rows):
    module = ending_in(nn.Sigmoid(), classes=1)
    network = Network(module)
    with pytest.warns(AssayWarning, match=r"values between 0 and 1"):
        trace = network.observe(rows)
    torch.testing.assert_close(trace.probabilities[:, 1:].float(), module(rows), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"4 rows that may be either; pass outputs="):
        Network(module).observe(rows[:4])
    stated = Network(module, outputs="probabilities")
    torch.testing.assert_close(stated(rows[:4]), trace.logits[:4])


def test_several_sigmoids_need_a_label(rows):
    module = ending_in(nn.Sigmoid(), classes=5)
    with pytest.raises(InputError, match=r"5 values between 0 and 1 that do not add up to 1.*pass label="):
        Network(module).observe(rows)
    seen = []
    for label in range(5):
        network = Network(module, label=label, outputs="probabilities")
        trace = network.observe(rows)
        torch.testing.assert_close(trace.probabilities[:, 1].float(), module(rows)[:, label])
        guard = Guard(network, MaxSoftmax().fit(trace)).calibrate(trace, 0.1)
        assert 0 < guard(rows).alarm.sum() <= 6
        seen.append(network.fingerprint)
    assert len(set(seen)) == 5
    answers = module(rows) > 0.5
    for labels in (answers, answers.float().numpy(), answers[:, 3]):
        assert Network(module, label=3, outputs="probabilities").observe((rows, labels)).correct.all()
    with pytest.raises(InputError, match="labels for at least 4 questions, got rows of 2"):
        Network(module, label=3, outputs="probabilities").observe((rows, answers[:, :2]))
    before = Network(plain(5), label=2)
    torch.testing.assert_close(before.observe(rows).logits[:, 1], plain(5)(rows)[:, 2])
    with pytest.raises(InputError, match="expected a label from 0 to 4"):
        Network(module, label=5).observe(rows)
    with pytest.raises(InputError, match="expected a label from 0"):
        Network(module, label=-1)


Pair = namedtuple("Pair", ["hidden", "scores"])


@dataclass
class Answer:
    hidden: torch.Tensor
    scores: torch.Tensor
    note: str = "x"


class Computed:
    """An object whose logits are a property."""

    def __init__(self, hidden, scores):
        self.parts = hidden, scores

    @property
    def logits(self):
        return self.parts[1]


class Several(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 16), nn.Linear(16, 3)
        self.wrap = wrap

    def forward(self, x):
        hidden = self.body(x).tanh()
        return self.wrap(hidden, self.head(hidden))


@pytest.mark.parametrize(
    ("wrap", "name", "listed"),
    [
        (lambda hidden, scores: (hidden, scores), 1, r"0 \(60, 16\), 1 \(60, 3\)"),
        (lambda hidden, scores: [hidden, scores], -1, r"0 \(60, 16\), 1 \(60, 3\)"),
        (lambda hidden, scores: {"emb": hidden, "out": scores}, "out", r"'emb' \(60, 16\), 'out' \(60, 3\)"),
        (Pair, "scores", r"'hidden' \(60, 16\), 'scores' \(60, 3\)"),
        (Pair, 1, r"'hidden' \(60, 16\), 'scores' \(60, 3\)"),
        (Answer, "scores", r"'hidden' \(60, 16\), 'scores' \(60, 3\)"),
    ],
)
def test_of_several_outputs_one_is_chosen_by_name_or_place(rows, wrap, name, listed):
    module = Several(wrap)
    expected = module.head(module.body(rows).tanh())
    with pytest.raises(InputError, match=rf"one output with class scores from Several, got {listed}; choose"):
        Network(module).observe(rows)
    network = Network(module, output=name)
    assert torch.equal(network.observe(rows).logits, expected)
    assert network.fingerprint != Network(module).fingerprint
    with pytest.raises(InputError, match=rf"expected an output 'other' of Several, got {listed}"):
        Network(module, output="other").observe(rows)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda hidden, scores: (hidden[:, :, None, None], scores),
        lambda hidden, scores: {"loss": hidden.mean(), "logits": scores, "features": hidden},
        lambda hidden, scores: (scores, hidden.argmax(dim=1)),
        lambda hidden, scores: (scores, None, (hidden, hidden)),
        lambda hidden, scores: Computed(hidden, scores),
    ],
)
def test_where_only_one_output_can_be_meant_it_is(rows, wrap):
    module = Several(wrap)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(
            Network(module).observe(rows).logits, module.head(module.body(rows).tanh()).detach()
        )


def test_attacks_on_tables_read_outputs_as_the_network_does(rows):
    module = Several(lambda hidden, scores: (hidden, scores.softmax(dim=1)))
    network = Network(module, output=1, outputs="probabilities")
    labels = network.observe(rows).predictions
    attack = assay.faults.ADVERSARIAL["fgsm"]
    moved = attack(rows, severity=3, seed=0, network=network, labels=labels)
    plain = Network(Several(lambda hidden, scores: scores))
    expected = attack(rows, severity=3, seed=0, network=plain, labels=labels)
    torch.testing.assert_close(moved, expected)
