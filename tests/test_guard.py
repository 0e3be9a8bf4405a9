"""The guard keeps its promise on false alarms and never lets pass what it cannot judge."""

import threading
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay import Guard, Network, Trace
from assay.errors import InputError, NotFittedError, StorageError
from assay.monitors import ActivationBox, MaxSoftmax, Monitor


class FirstFeature(Monitor):
    """Its score is the first feature, so that tests can choose scores."""

    layer = "penultimate"

    def _fit(self, traces):
        for _ in traces:
            pass

    def _score(self, trace):
        return trace.layer(self.layer)[:, 0]


class Identity(nn.Module):
    """Two inputs, two classes: the features are the inputs, squashed so that infinity looks finite."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(2))

    def forward(self, x):
        return self.head(torch.atan(x))


@pytest.fixture
def network():
    return Network(Identity())


@pytest.fixture
def monitor():
    return FirstFeature().fit(traced(torch.zeros(1)))


def traced(scores, predictions=None):
    predictions = torch.zeros(len(scores), dtype=torch.long) if predictions is None else predictions
    features = torch.stack([scores, torch.zeros_like(scores)], 1)
    return Trace(nn.functional.one_hot(predictions, 2).float(), {"penultimate": features})


def test_the_threshold_is_the_conformal_quantile(network, monitor):
    scores = torch.arange(19.0)
    assert Guard(network, monitor).calibrate(traced(scores), false_alarm_rate=0.05).threshold == 18
    assert Guard(network, monitor).calibrate(traced(torch.arange(39.0)), 0.05).threshold == 37
    assert Guard(network, monitor).calibrate(traced(scores), false_alarm_rate=0.5).threshold == 9


@pytest.mark.parametrize("count", [20, 73, 400])
def test_the_false_alarm_rate_holds_in_finite_samples(network, monitor, count):
    generator = torch.Generator().manual_seed(count)
    rates = []
    for _ in range(2000):
        guard = Guard(network, monitor).calibrate(traced(torch.rand(count, generator=generator)), 0.1)
        rates.append(1 - float(guard.threshold))  # the exact rate for uniform scores
    mean = torch.tensor(rates).mean()
    # At most the rate asked for and at least that less 1/(n + 1); 4 standard errors of 2000 Beta draws.
    error = 4 * (0.1 * 0.9 / (count + 2) / 2000) ** 0.5
    assert 0.1 - 1 / (count + 1) - error < mean < 0.1 + error


def test_with_a_level_the_rate_holds_for_most_calibration_sets(network, monitor):
    generator = torch.Generator().manual_seed(0)
    held = [
        1 - float(guard.threshold) <= 0.1
        for guard in (
            Guard(network, monitor).calibrate(traced(torch.rand(200, generator=generator)), 0.1, level=0.9)
            for _ in range(1000)
        )
    ]
    # Binomial(1000, 0.9) less 4 standard deviations; discrete ranks only add to it.
    assert sum(held) > 900 - 4 * 9.5


def test_per_class_thresholds_hold_within_each_class(network, monitor):
    predictions = torch.arange(80) % 2
    scores = torch.arange(80.0) + 1000 * predictions
    guard = Guard(network, monitor).calibrate(traced(scores, predictions), 0.1, per_class=True)
    for label in (0, 1):
        mine = scores[predictions == label].sort().values
        assert guard.threshold[label] == mine[36]  # ceil(41 * 0.9) = 37th
    verdict = guard.judge(traced(torch.tensor([500.0, 500.0]), torch.tensor([0, 1])))
    assert verdict.alarm.tolist() == [True, False]


def test_a_class_with_too_few_points_takes_the_pooled_threshold(network, monitor):
    predictions = torch.tensor([0] * 50 + [1] * 3)
    guard = Guard(network, monitor).calibrate(traced(torch.arange(53.0), predictions), 0.1, per_class=True)
    assert guard.calibration["pooled_classes"] == [1]
    assert guard.threshold[1] == Guard(network, monitor).calibrate(traced(torch.arange(53.0)), 0.1).threshold


def test_a_verdict_masks_what_it_cancels(network, monitor):
    verdict = Guard(network, monitor, threshold=0.5)(torch.tensor([[0.1, 3.0], [9.0, 1.0]]))
    assert verdict.predictions.tolist() == [1, 0]
    assert verdict.alarm.tolist() == [False, True]
    assert verdict.accepted_predictions.tolist() == [1, -1]
    assert verdict.to_frame()["alarm"].tolist() == [False, True]
    assert len(verdict) == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_whatever_is_not_finite_is_an_alarm(network, monitor, bad):
    guard = Guard(network, monitor, threshold=1e9)
    inputs = torch.tensor([[0.0, 1.0], [bad, 1.0], [1.0, bad]])
    assert guard(inputs).alarm.tolist() == [False, True, True]
    assert guard(inputs[1:]).alarm.all()
    trace = traced(torch.zeros(3))
    logits, features = trace.logits.clone(), trace.layer("penultimate").clone()
    logits[0, 1], features[1, 1] = bad, bad
    assert guard.judge(Trace(logits, {"penultimate": features})).alarm.tolist() == [True, True, False]


def test_a_score_that_is_not_finite_is_an_alarm(network):
    class Broken(FirstFeature):
        def _score(self, trace):
            return torch.full((len(trace),), torch.nan)

    guard = Guard(network, Broken().fit(traced(torch.zeros(1))), threshold=1e9)
    assert guard(torch.zeros(2, 2)).alarm.all()
    with pytest.raises(InputError, match="finite scores"):
        guard.calibrate(traced(torch.zeros(100)))


def test_one_input_is_judged_as_in_a_batch(network, monitor):
    guard = Guard(network, monitor, threshold=0.5)
    inputs = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    whole = guard(inputs)
    for row in range(20):
        one = guard(inputs[row : row + 1])
        assert one.alarm[0] == whole.alarm[row]
        assert torch.allclose(one.scores[0], whole.scores[row])


def test_a_guard_goes_through_a_file_with_its_network(network, monitor, tmp_path):
    path = tmp_path / "guard.safetensors"
    guard = Guard(network, MaxSoftmax().fit(traced(torch.zeros(1)))).calibrate(traced(torch.zeros(50)))
    assay.save(guard, path)
    back = assay.load(path, network=network)
    inputs = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(back(inputs).alarm, guard(inputs).alarm)
    assert back.calibration == guard.calibration
    with pytest.raises(StorageError, match="pass assay"):
        assay.load(path)
    other = Network(Identity())
    with torch.no_grad():
        other.module.head.weight += 1
    with pytest.raises(StorageError, match="another network"):
        assay.load(path, network=other)


def test_a_guard_on_a_layer_of_its_own_loads_with_any_network_of_the_same_weights(tmp_path):
    path = tmp_path / "guard.safetensors"
    hidden = Network(layered(), layers="first")
    inputs = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    guard = Guard(hidden, ActivationBox(layer="first").fit(hidden.observe(inputs)), threshold=0.0)
    assay.save(guard, path)
    for other in (Network(layered()), Network(layered(), layers=()), hidden):
        back = assay.load(path, network=other)
        assert torch.equal(back(3 * inputs).scores, guard(3 * inputs).scores)
    assert Network(layered()).layers == ("penultimate",)
    with pytest.raises(StorageError, match=r"expected an assay\.Network, got Sequential; pass network="):
        assay.load(path, network=layered())
    with pytest.raises(
        StorageError, match=r"another network \(weights, architecture, pooling or tokenizer differ"
    ):
        assay.load(path, network=Network(layered(), pool="mean"))


def layered():
    torch.manual_seed(0)
    return nn.Sequential(OrderedDict(first=nn.Linear(2, 4), second=nn.ReLU(), third=nn.Linear(4, 2)))


def test_layers_that_a_network_does_not_have_are_said_on_loading(network, monitor, tmp_path):
    box = ActivationBox(layer="first").fit(Network(layered(), layers="first").observe(torch.zeros(3, 2)))
    with pytest.raises(InputError, match=r"expected a network that watches \['first'\], got .*penultimate"):
        Guard(network, box)
    function = Network.from_function(lambda rows: np.full((len(rows), 2), 0.5), identity="coin")
    with pytest.raises(InputError, match=r"has no layers, got \['first'\]"):
        function.watching(["first"])


def test_a_failed_calibration_leaves_the_guard_as_it_was(network, monitor, monkeypatch):
    guard = Guard(network, monitor).calibrate(traced(torch.arange(39.0)), 0.05)
    before = guard.threshold, guard.calibration

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.guard.guard._class_thresholds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        guard.calibrate(traced(torch.arange(19.0)), 0.5, per_class=True)
    assert (guard.threshold, guard.calibration) == before


def test_calls_from_several_threads_do_not_mix(network, monitor):
    guard = Guard(network, monitor, threshold=0.0)
    wrong = []

    def judge(sign):
        for _ in range(200):
            if guard(torch.full((4, 2), sign)).alarm.any() != (sign > 0):
                wrong.append(sign)

    threads = [threading.Thread(target=judge, args=(sign,)) for sign in (1.0, -1.0, 2.0, -2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bad_arguments_get_one_clear_sentence(network, monitor):
    with pytest.raises(NotFittedError, match="calibrate"):
        Guard(network, monitor)(torch.zeros(1, 2))
    with pytest.raises(NotFittedError, match="fit"):
        Guard(network, MaxSoftmax()).calibrate(traced(torch.zeros(50)))
    with pytest.raises(InputError, match=r"wrap the module in assay\.Network"):
        Guard(Identity(), monitor)
    with pytest.raises(InputError, match="layers="):
        Guard(Network(Identity(), layers="head"), monitor)
    with pytest.raises(InputError, match="false_alarm_rate"):
        Guard(network, monitor).calibrate(traced(torch.zeros(50)), false_alarm_rate=0)
    with pytest.raises(InputError, match="level"):
        Guard(network, monitor).calibrate(traced(torch.zeros(50)), level=1.5)
    with pytest.raises(InputError, match="more data"):
        Guard(network, monitor).calibrate(traced(torch.zeros(10)), false_alarm_rate=0.05)
    with pytest.raises(InputError, match="one number or one per class"):
        Guard(network, monitor, threshold=[[0.0]])
    with pytest.raises(InputError, match="1 NaN"):
        Guard(network, monitor, threshold=float("nan"))


def test_thresholds_for_other_classes_are_refused_where_a_guard_is_built_loaded_or_judges(
    network, monitor, tmp_path
):
    words = "one for each of 2 classes, got 9"
    with pytest.raises(InputError, match=words):
        Guard(network, monitor, [0.5] * 9)
    late = Guard(network, FirstFeature(), [0.5] * 9)  # who does not know its classes yet
    late.monitor.fit(traced(torch.zeros(1)))
    with pytest.raises(InputError, match=words):
        late.judge(traced(torch.zeros(3)))
    assay.save(late, tmp_path / "guard")
    with pytest.raises(assay.AssayError, match=words):
        assay.load(tmp_path / "guard", network=network)
