"""Images of type uint8 stay uint8 until a batch goes through the network: `Network(scale=255)`."""

import pytest
import torch
from torch import nn

import assay
from assay import monitors
from assay.cli.network_reference import network_at
from assay.demo.networks import small_cnn, trained
from assay.errors import InputError
from assay.faults import ADVERSARIAL

BATCH = 64


def as_pixels(inputs):
    return (inputs * 255).round().byte()


@pytest.fixture(scope="module")
def module():
    return nn.Sequential(nn.Dropout(0.1), trained(small_cnn, assay.data.digits()[0]))


@pytest.fixture(scope="module")
def data():
    inputs, labels = assay.data.digits()[1]
    return as_pixels(inputs), labels


@pytest.fixture
def network(module):
    return assay.Network(module, scale=255, batch_size=BATCH)


@pytest.fixture
def sizes(monkeypatch):
    """How many images were divided at once."""
    from assay.network import inputs, network

    found = []

    def recorded(given, scale):
        found.append(inputs.length(given))
        return inputs.scaled(given, scale)

    monkeypatch.setattr(network, "scaled", recorded)
    return found


def test_a_network_does_on_pixels_what_it_does_on_their_fractions(network, module, data):
    pixels, labels = data
    plain = assay.Network(module, batch_size=BATCH)
    fractions = pixels.float() / 255
    ours, theirs = network.observe(data, keep_inputs=True), plain.observe((fractions, labels))
    assert torch.equal(ours.logits, theirs.logits)
    assert torch.equal(ours.features["penultimate"], theirs.features["penultimate"])
    assert ours.inputs.data_ptr() == pixels.data_ptr()  # kept without a copy
    assert torch.equal(network(pixels), plain(fractions))
    assert torch.equal(network.dropout_logits(pixels, 2, 0), plain.dropout_logits(fractions, 2, 0))
    energy = lambda trace: trace.logits.logsumexp(dim=1)  # noqa: E731
    assert torch.equal(network.gradient(pixels, energy), plain.gradient(fractions, energy))
    # Floats are taken as they are: an attack or a monitor that moves pixels a little goes on from them.
    assert torch.equal(network.observe(fractions).logits, theirs.logits)


def test_batches_of_pixels_are_kept_as_pixels(network, data):
    pixels, labels = data
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(pixels, labels), batch_size=50)
    trace = network.observe(loader, keep_inputs=True)
    assert trace.inputs.dtype == torch.uint8
    assert torch.equal(trace.inputs, pixels)


def test_a_scale_of_one_is_for_networks_trained_on_whole_numbers(data):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert torch.equal(assay.Network(module, scale=1)(data[0]), module(data[0].float()))


@pytest.mark.parametrize(
    "build",
    [
        lambda network: monitors.Mahalanobis(),
        lambda network: monitors.ODIN(network),
        lambda network: monitors.MonteCarloDropout(network, passes=2),
        lambda network: monitors.Reconstruction(epochs=1),
        lambda network: monitors.InputRange(low=0, high=254),
    ],
    ids=["Mahalanobis", "ODIN", "MonteCarloDropout", "Reconstruction", "InputRange"],
)
def test_guards_judge_pixels_save_and_load(network, module, data, build, tmp_path):
    trace = network.observe(data, keep_inputs=True)
    guard = assay.Guard(network, build(network).fit(trace[:200])).calibrate(trace[200:], 0.1)
    assay.save(guard, tmp_path / "guard")
    again = assay.load(tmp_path / "guard", network=assay.Network(module, scale=255, batch_size=BATCH))
    ours = guard(data[0])
    assert torch.equal(again(data[0]).alarm, ours.alarm)
    assert ours.scores.isfinite().all()
    with pytest.raises(assay.AssayError, match="another network"):
        assay.load(tmp_path / "guard", network=assay.Network(module))


def same_alarms(written, guard, inputs):
    """But for the input whose score is the threshold: there rounding decides."""
    found, expected = written(inputs), guard(inputs)
    differ = found.alarm != expected.alarm
    return int(differ.sum()) <= 1 and bool(((expected.scores - guard.threshold).abs()[differ] < 1e-3).all())


@pytest.mark.parametrize("by", ["logits", "inputs"])
def test_an_exported_guard_takes_pixels(network, data, by, tmp_path):
    trace = network.observe(data, keep_inputs=True)
    monitor = monitors.Energy() if by == "logits" else monitors.InputRange(low=0, high=254)
    guard = assay.Guard(network, monitor.fit(trace)).calibrate(trace, 0.1)
    guard.export(tmp_path / "guard.onnx")
    written = assay.OnnxGuard(tmp_path / "guard.onnx")
    assert torch.allclose(written(data[0]).scores, guard(data[0]).scores, atol=1e-4)
    assert same_alarms(written, guard, data[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # in torch.onnx, of the exporter itself
def test_an_onnx_file_takes_pixels_too(module, data, tmp_path):
    path = tmp_path / "net.onnx"
    torch.onnx.export(
        module, (torch.rand(2, 1, 8, 8),), path, dynamo=False, input_names=["image"],
        dynamic_axes={"image": {0: "rows"}},
    )  # fmt: skip
    network = assay.Network.from_onnx(path, scale=255, layers=())
    assert torch.allclose(network(data[0]), module.eval()(data[0].float() / 255), atol=1e-4)
    wider = network.watching(["penultimate"])
    guard = assay.Guard(wider, monitors.Mahalanobis().fit(wider.observe(data)))
    guard.calibrate(wider.observe(data), 0.1)
    guard.export(tmp_path / "guard.onnx")
    written = assay.OnnxGuard(tmp_path / "guard.onnx")
    assert same_alarms(written, guard, data[0])
    assert network_at(f"{path}?scale=255").fingerprint == network.fingerprint
    assert network.fingerprint != assay.Network.from_onnx(path).fingerprint


def test_a_check_never_divides_more_than_a_batch(network, data, sizes):
    found = assay.check_network(
        network, data, faults=["gaussian", "stuck_frame", "fgsm", "pgd_l2"], low=0.0, high=1.0,
        novelty={"noise": torch.rand(60, 1, 8, 8)},
    )  # fmt: skip
    assert max(sizes) <= BATCH
    assert found.monitorability is not None
    assert found.passed is not False


def test_a_benchmark_on_pixels_says_what_it_says_on_fractions(network, module, data, sizes):
    inputs, labels = data
    plain = assay.Network(module)
    tables = []
    for net, images in ((network, inputs), (plain, inputs.float() / 255)):
        trace = net.observe((images, labels))
        guards = {
            monitor.__name__: assay.Guard(net, monitor().fit(trace)).calibrate(trace, 0.05)
            for monitor in (monitors.MaxSoftmax, monitors.Mahalanobis)
        }
        scenarios = assay.build_scenarios(
            images, labels, network=net, severities=(3,), faults=["gaussian", "dead_rows", "fgsm"],
            novelty={"grey": torch.full((50, 1, 8, 8), 0.5)},
        )  # fmt: skip
        assert {scenario.inputs.dtype for scenario in scenarios} == {images.dtype}
        tables.append(assay.run_benchmark(guards, scenarios).table["specific_mcc"])
    assert max(sizes) <= BATCH
    # Rounding to whole pixels moves a value by at most 1/510, so few alarms change.
    assert (tables[0] - tables[1]).abs().max() < 0.05


@pytest.mark.parametrize("scale", [0, -255, float("nan"), float("inf")])
def test_a_scale_that_is_none_is_refused(module, scale):
    with pytest.raises(InputError, match="a scale above 0, such as 255"):
        assay.Network(module, scale=scale)


def test_pixels_without_a_scale_say_what_to_do(module, data):
    network = assay.Network(module)
    with pytest.raises(InputError, match=r"got torch.uint8.*scale=255"):
        network.observe(data)
    with pytest.raises(InputError, match="scale=255"):
        ADVERSARIAL["fgsm"](data[0], 1, network=network)
