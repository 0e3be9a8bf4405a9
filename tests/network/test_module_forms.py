"""The modules that people have, besides plain ones that end in a Linear: each is observed as what it is."""

import io
import warnings

import pytest
import torch
from torch import nn

import assay
from assay.errors import GradientError, InputError

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")  # in torch.export itself


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Linear(4, 8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        maps = torch.relu(self.norm(self.conv(x)))
        return self.head(self.drop(torch.relu(self.body(maps.mean(dim=[2, 3])))))


def fully_convolutional(dimensions=2, classes=3):
    torch.manual_seed(0)
    conv, pool = ((nn.Conv1d, nn.AdaptiveAvgPool1d), (nn.Conv2d, nn.AdaptiveAvgPool2d))[dimensions - 1]
    return nn.Sequential(conv(1, 5, 3), nn.ReLU(), conv(5, classes, 1), pool(1), nn.Flatten())


def images(count=10, seed=1):
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def guarded(network, monitor=None, inputs=None):
    """A guard fitted and calibrated on random images."""
    trace = network.observe(images(200, 2) if inputs is None else inputs, keep_inputs=True)
    return assay.Guard(network, (monitor or assay.monitors.Mahalanobis()).fit(trace[:100])).calibrate(
        trace[100:], 0.2
    )


def assert_exported_alike(guard, path, inputs):
    guard.export(path)
    ours, theirs = guard(inputs), assay.OnnxGuard(path)(inputs)
    assert torch.allclose(ours.scores, theirs.scores, rtol=1e-4, atol=1e-4)
    assert torch.equal(ours.alarm, theirs.alarm)
    assert 0 < int(ours.alarm.sum()) < len(inputs)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_a_convolution_may_make_the_logits(dimensions):
    module = fully_convolutional(dimensions)
    inputs = images()[:, :, 0] if dimensions == 1 else images()
    network = assay.Network(module, batch_size=4)
    maps = module[:2](inputs)
    for _ in range(2):  # before and after the number of classes is known
        trace = network.observe(inputs)
        penultimate = trace.features["penultimate"]
        assert torch.allclose(penultimate, maps.flatten(2).mean(2), atol=1e-6)
    # The mean of a 1 x 1 convolution is the layer applied to the mean, so the features make the logits.
    weight = module[2].weight.flatten(1)
    assert torch.allclose(trace.logits, penultimate @ weight.T + module[2].bias, atol=1e-6)


def test_a_fully_convolutional_network_is_guarded_and_exported(tmp_path):
    guard = guarded(assay.Network(fully_convolutional()), assay.monitors.ViM())
    assert_exported_alike(guard, tmp_path / "guard.onnx", images(50, 3))


class Squeezing(nn.Module):
    """A Linear in the middle, and a convolution or a Linear at the end, each with an output per class."""

    def __init__(self, ends_in_linear):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 3, 3)
        self.squeeze = nn.Linear(3, 3)
        self.head = nn.Linear(3, 3) if ends_in_linear else nn.Conv2d(3, 3, 1)

    def forward(self, x):
        maps = self.conv(x)
        maps = maps * torch.sigmoid(self.squeeze(maps.mean(dim=(2, 3))))[:, :, None, None]
        self.seen = maps.mean(dim=(2, 3))
        return self.head(self.seen) if isinstance(self.head, nn.Linear) else self.head(maps).mean(dim=(2, 3))


@pytest.mark.parametrize("ends_in_linear", [True, False])
def test_the_last_of_linear_and_convolution_makes_the_logits(ends_in_linear):
    module = Squeezing(ends_in_linear)
    network = assay.Network(module)
    for _ in range(2):
        features = network.observe(images()).features["penultimate"]
        assert torch.allclose(features, module.seen, atol=1e-6)


class ByHand(nn.Module):
    """No layer makes the logits: a plain product does."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.act = nn.ReLU()
        self.weight = nn.Parameter(torch.rand(4, 3))

    def forward(self, x):
        return self.act(self.conv(x)).mean(dim=(2, 3)) @ self.weight


def test_where_no_layer_makes_the_logits_the_sentence_names_layers_that_work():
    with pytest.raises(InputError, match="such as layers='act' or layers='conv'") as caught:
        assay.Network(ByHand()).observe(images())
    assert "\n" not in str(caught.value)
    assert assay.Network(ByHand(), layers="act").observe(images()).features["act"].shape == (10, 4)


def quantised(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao says that it will move to a package of its own
        return torch.ao.quantization.quantize_dynamic(module.eval(), {nn.Linear}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore:quantized")  # torch says the same before our error does
def test_a_dynamically_quantised_linear_is_the_last_layer():
    module = quantised(Plain())
    network = assay.Network(module)
    heard = []
    module.head.register_forward_pre_hook(lambda _, arguments: heard.append(arguments[0]))
    trace = network.observe(images())
    assert torch.equal(trace.features["penultimate"], heard[0])
    assert trace.features["penultimate"].shape == (10, 8)
    assert guarded(network)(images(50, 3)).alarm.any()
    with pytest.raises(GradientError, match="before quantisation"):
        network.gradient(images(), lambda trace: trace.logits[:, 0])


def test_a_quantised_guard_is_saved_and_loaded(tmp_path):
    network = assay.Network(quantised(Plain()))
    guard = guarded(network)
    assay.save(guard, tmp_path / "guard")
    loaded = assay.load(tmp_path / "guard", network=assay.Network(quantised(Plain())))
    assert torch.equal(loaded(images()).scores, guard(images()).scores)


def scripted(module, kind):
    """TorchScript as people get it: through a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and shipped all the same
        script = (
            torch.jit.trace(module.eval(), images()) if kind == "trace" else torch.jit.script(module.eval())
        )
        script = torch.jit.freeze(script) if kind == "frozen" else script
        content = io.BytesIO()
        torch.jit.save(script, content)
        content.seek(0)
        return torch.jit.load(content)


@pytest.mark.parametrize("kind", ["script", "trace", "frozen"])
@pytest.mark.parametrize("build", [Plain, fully_convolutional])
def test_torchscript_is_observed_like_the_module_it_was_made_from(build, kind, tmp_path):
    module = build().eval()
    plain, script = assay.Network(module), assay.Network(scripted(module, kind))
    expected, trace = plain.observe(images()), script.observe(images())
    assert torch.allclose(trace.logits, expected.logits, atol=1e-6)
    assert torch.allclose(trace.features["penultimate"], expected.features["penultimate"], atol=1e-6)

    def objective(trace):
        return trace.features["penultimate"].sum(dim=1)

    assert torch.allclose(
        script.gradient(images(), objective), plain.gradient(images(), objective), atol=1e-6
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_exported_alike(guarded(script), tmp_path / "guard.onnx", images(50, 3))


def test_torchscript_in_training_mode_runs_in_evaluation_mode_and_stays_as_it_was():
    module = Plain()
    script = scripted(module, "script").train()
    trace = assay.Network(script).observe(images())
    assert torch.allclose(trace.logits, module.eval()(images()), atol=1e-6)
    assert script.training
    assert script.norm.training


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(64, 3), nn.Linear(64, 3)

    def forward(self, x):
        if x.sum() > 0:
            return self.left(x.flatten(1))
        return self.right(x.flatten(1))


def test_layers_that_torchscript_hides_are_said():
    with pytest.raises(InputError, match=r"\['body'\].*pass the module it was made from"):
        assay.Network(scripted(Plain(), "script"), layers="body")
    network = assay.Network(scripted(Branching(), "script"))
    with pytest.raises(InputError, match="pass the module it was made from and the layer to watch"):
        network.observe(images())
    assert len(assay.Network(network.module, layers=()).observe(images())) == 10


def exported(module, *arguments, **named):
    rows = {0: torch.export.Dim("rows", min=1)}
    shapes = (rows,) * len(arguments) if arguments else dict.fromkeys(named, rows)
    return torch.export.export(module.eval(), arguments, named, dynamic_shapes=shapes)


@pytest.mark.parametrize("build", [Plain, fully_convolutional])
def test_an_exported_program_is_observed_like_its_module(build, tmp_path):
    module = build()
    layers = ("penultimate", "norm", "body") if build is Plain else ("penultimate", "0", "2")
    plain = assay.Network(module, layers)
    expected = plain.observe(images())
    program = exported(module, images(4))
    for network in (assay.Network(program, layers), assay.Network(program.module(), layers)):
        trace = network.observe(images())
        assert torch.allclose(trace.logits, expected.logits, atol=1e-6)
        for layer in layers:
            assert torch.allclose(trace.features[layer], expected.features[layer], atol=1e-6), layer
    with pytest.raises(InputError, match=r"\['nothing'\]; choose from \['penultimate', '(conv|0)'"):
        assay.Network(program, "nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_exported_alike(guarded(network), tmp_path / "guard.onnx", images(50, 3))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, x, gate):
        return {"logits": self.head(x * gate)}


def test_an_exported_program_takes_a_dict_in_any_order():
    module, x = TwoInputs(), torch.rand(5, 2)
    gate = torch.tensor([[1.0, 0.0]] * 5)
    for program in (exported(module, x, gate), exported(module, x=x, gate=gate)):
        trace = assay.Network(program).observe({"gate": gate, "x": x})
        assert torch.allclose(trace.logits, module.head(x * gate), atol=1e-6)
        assert torch.equal(trace.features["penultimate"], x * gate)


def test_a_program_for_one_number_of_rows_says_how_to_export_it():
    network = assay.Network(torch.export.export(Plain().eval(), (images(4),)))
    assert len(network.observe(images(4))) == 4
    with pytest.raises(InputError, match=r"Guard failed: x\.size\(\)\[0\] == 4.*dynamic_shapes"):
        assay.Network(network.module).observe(images(7))


@pytest.mark.parametrize("how", ["whole", "in place", "a part"])
def test_a_compiled_module_is_observed_also_after_a_plain_call(how, tmp_path):
    plain, module = Plain().eval(), Plain().eval()
    if how == "whole":
        module = torch.compile(module, backend="eager")
    elif how == "in place":
        module.compile(backend="eager")
    else:
        module.body = torch.compile(module.body, backend="eager")
    with torch.no_grad():
        module(images())  # compiled now, without hooks
    before = [(part.forward, part._compiled_call_impl) for part in module.modules()]
    layers = ("penultimate", "conv")
    expected = assay.Network(plain, layers).observe(images())
    network = assay.Network(module, layers)
    trace = network.observe(images())
    for layer in layers:
        assert torch.allclose(trace.features[layer], expected.features[layer], atol=1e-6), layer
    assert network.fingerprint == assay.Network(plain, layers).fingerprint
    assert_exported_alike(guarded(network), tmp_path / "guard.onnx", images(50, 3))
    assert [(part.forward, part._compiled_call_impl) for part in module.modules()] == before


def test_dropout_is_drawn_in_a_compiled_module():
    module = Plain().eval()
    expected = assay.Network(module).dropout_logits(images(), passes=2, seed=0)
    compiled = torch.compile(module, backend="eager")
    with torch.no_grad():
        compiled(images())
    assert torch.allclose(assay.Network(compiled).dropout_logits(images(), 2, 0), expected, atol=1e-6)
