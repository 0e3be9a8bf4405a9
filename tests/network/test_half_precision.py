"""Networks in half precision: fitted, kept, saved and exported as those in single precision are."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.demo.networks import trained, wide_mlp
from assay.errors import InputError
from assay.monitors.parts.head import HeadFit

# A rounding moves a number by at most this share of itself.
UNIT = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@pytest.fixture(scope="module")
def digits():
    return assay.data.digits(seed=0, test_share=0.5)


@pytest.fixture(scope="module")
def module(digits):
    return trained(wide_mlp, digits[0])


@pytest.fixture(scope="module", params=list(UNIT), ids=str)
def network(request, module):
    return assay.Network(copy.deepcopy(module).to(request.param))


def dtype_of(network):
    return next(network.module.parameters()).dtype


def test_the_last_layer_is_recovered_to_the_precision_of_its_logits(network, digits):
    trace = network.observe(digits[0])
    fit = HeadFit("penultimate", *(part.shape[1] for part in (trace.features["penultimate"], trace.logits)))
    fit.add(trace.features["penultimate"], trace.logits)
    head = fit.head()
    made = trace.features["penultimate"].double() @ head.weight.T + head.bias
    # No logit is off by more than a few roundings of the largest.
    assert (made - trace.logits).abs().max() < 4 * UNIT[dtype_of(network)] * trace.logits.abs().max()


def test_a_layer_that_does_not_make_the_logits_is_still_refused(network, digits):
    trace = assay.Network(network.module, layers="0").observe(digits[0])
    with pytest.raises(InputError, match="determine the logits linearly"):
        assay.monitors.ViM(layer="0").fit(trace)


@pytest.mark.parametrize("name", ["ViM", "ASH", "DICE", "ReAct", "Mahalanobis", "KNN"])
def test_monitors_find_noise_as_in_single_precision(name, network, module, digits):
    noise = torch.rand(200, *digits[0][0].shape[1:], generator=torch.Generator().manual_seed(0))

    def found(network):
        monitor = getattr(assay.monitors, name)().fit(network.observe(digits[0]))
        return assay.statistics.auroc(
            monitor.score(network.observe(noise)), monitor.score(network.observe(digits[1][0]))
        )

    # Rounding of the network reorders few of 200 x 900 pairs.
    assert found(network) == pytest.approx(found(assay.Network(module)), abs=0.02)


def test_inputs_in_half_precision_are_kept_saved_and_loaded(network, digits, tmp_path):
    inputs = digits[1][0].to(dtype_of(network))
    trace = network.observe(DataLoader(TensorDataset(inputs), batch_size=100), keep_inputs=True)
    assert trace.inputs.dtype == inputs.dtype
    assert torch.equal(trace.inputs, inputs)
    assay.save(trace, tmp_path / "trace")
    assert torch.equal(assay.load(tmp_path / "trace").inputs, inputs)


def test_the_export_is_in_single_precision_and_alarms_agree_but_for_rounding(network, digits, tmp_path):
    trace = network.observe(digits[0])
    guard = assay.Guard(network, assay.monitors.Mahalanobis().fit(trace[::2])).calibrate(trace[1::2], 0.1)
    path = tmp_path / "guard.onnx"
    guard.export(path, digits[0][0][:1])
    written = assay.OnnxGuard(path)
    assert written.fingerprint == guard.fingerprint
    inputs = digits[1][0]
    single = copy.copy(guard)
    single.network = assay.Network(copy.deepcopy(network.module).float())
    theirs = written(inputs)
    assert torch.allclose(theirs.scores, single(inputs).scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(theirs.alarm, single(inputs).alarm)
    ours = guard(inputs)
    # A squared distance is wrong by twice the rounding of a feature; what is correlated adds to that.
    off = (ours.scores - theirs.scores).abs() / theirs.scores
    assert off.max() < 20 * UNIT[dtype_of(network)]
    clear = (theirs.scores / guard.threshold - 1).abs() > off.max()
    assert torch.equal(ours.alarm[clear], theirs.alarm[clear])
    assert clear.float().mean() > 0.5
    half = written(inputs.to(dtype_of(network)))
    assert half.alarm.shape == ours.alarm.shape


def test_a_guard_in_half_precision_is_saved_and_loaded(network, digits, tmp_path):
    trace = network.observe(digits[0])
    guard = assay.Guard(network, assay.monitors.ViM().fit(trace)).calibrate(trace, 0.1)
    assay.save(guard, tmp_path / "guard")
    loaded = assay.load(tmp_path / "guard", network=network)
    assert torch.equal(loaded(digits[1][0]).scores, guard(digits[1][0]).scores)


def test_a_module_that_cannot_be_copied_says_what_to_do():
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).to(torch.bfloat16)
    module.scale = module[1].weight.float() * 2  # part of a graph, which torch does not copy
    with pytest.raises(InputError, match=r"module\.float\(\)"):
        assay.Network(module).in_single_precision()
