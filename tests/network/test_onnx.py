"""An ONNX file gives what the torch module gives, up to the last digits, and no gradients."""

import sys
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import assay
from assay.errors import GradientError, InputError, MissingExtraError

# The bound of the acceptance test; both sides compute in single precision.
TOLERANCE = 1e-5


def small_cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    ).eval()


def small_mlp():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)
    ).eval()


def exported(module, inputs, path, *, fixed=False, names=("x",), outputs=("scores",)):
    axes = {} if fixed else {name: {0: "n"} for name in (*names, *outputs)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is the older of the two, and says so
        torch.onnx.export(
            module,
            inputs,
            str(path),
            dynamo=False,
            input_names=list(names),
            output_names=list(outputs),
            dynamic_axes=axes,
        )
    return path


@pytest.fixture
def images():
    return torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("build", [small_cnn, small_mlp])
def test_logits_and_penultimate_features_are_those_of_torch(build, images, path):
    module = build()
    expected = assay.Network(module).observe((images, torch.zeros(10, dtype=torch.long)))
    trace = assay.Network.from_onnx(exported(module, (images[:2],), path), batch_size=4).observe(
        (images, torch.zeros(10, dtype=torch.long))
    )
    assert torch.allclose(trace.logits, expected.logits, atol=TOLERANCE)
    assert torch.allclose(trace.layer("penultimate"), expected.layer("penultimate"), atol=TOLERANCE)
    assert torch.equal(trace.labels, expected.labels)


def test_the_newer_exporter_with_weights_in_their_own_file_works_too(images, path):
    pytest.importorskip("onnxscript")
    module = nn.Sequential(*small_cnn()[:4], nn.Linear(16, 300), nn.ReLU(), nn.Linear(300, 3)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (images[:2],),
            str(path),
            dynamo=True,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("n")},),
        )
    assert path.with_name("net.onnx.data").is_file()
    network = assay.Network.from_onnx(path)
    expected = assay.Network(module).observe(images)
    trace = network.observe(images)
    assert torch.allclose(trace.logits, expected.logits, atol=TOLERANCE)
    assert torch.allclose(trace.layer("penultimate"), expected.layer("penultimate"), atol=TOLERANCE)
    before = network.fingerprint
    weights = bytearray(path.with_name("net.onnx.data").read_bytes())
    weights[0] ^= 1
    path.with_name("net.onnx.data").write_bytes(weights)
    assert assay.Network.from_onnx(path).fingerprint != before
    path.with_name("net.onnx.data").unlink()
    with pytest.raises(InputError, match=r"net\.onnx"):
        assay.Network.from_onnx(path)


def test_inner_layers_go_by_tensor_or_node_and_maps_are_averaged(images, path):
    module = small_cnn()
    exported(module, (images,), path)
    expected = assay.Network(module, layers=("0", "4")).observe(images)
    trace = assay.Network.from_onnx(path, layers=("/0/Conv_output_0", "/4/Gemm")).observe(images)
    assert torch.allclose(trace.features["/0/Conv_output_0"], expected.features["0"], atol=TOLERANCE)
    assert torch.allclose(trace.features["/4/Gemm"], expected.features["4"], atol=TOLERANCE)
    flat = assay.Network.from_onnx(path, layers="/0/Conv_output_0", pool="flatten").observe(images)
    assert flat.features["/0/Conv_output_0"].shape == (10, 4 * 36)
    with pytest.raises(InputError, match=r"got 'conv'; choose 'penultimate', or .*'scores'"):
        assay.Network.from_onnx(path, layers="conv")


class TwoHeads(nn.Module):
    """The last Linear of the graph is not the last one before the logits."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.other = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 5)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return self.head(hidden), self.other(torch.tanh(hidden)), hidden


def test_outputs_are_chosen_by_name(path):
    module, x = TwoHeads(), torch.rand(7, 4)
    exported(module, (x,), path, outputs=("logits", "other", "hidden"))
    with torch.no_grad():
        head, other, hidden = module(x)
    first = assay.Network.from_onnx(path, layers=("penultimate", "hidden")).observe(x)
    assert torch.allclose(first.logits, head, atol=TOLERANCE)
    assert torch.allclose(first.layer("penultimate"), hidden, atol=TOLERANCE)
    assert torch.allclose(first.layer("hidden"), hidden, atol=TOLERANCE)
    second = assay.Network.from_onnx(path, logits="other").observe(x)
    assert torch.allclose(second.logits, other, atol=TOLERANCE)
    assert torch.allclose(second.layer("penultimate"), torch.tanh(hidden), atol=TOLERANCE)


def test_a_final_softmax_is_left_out(path):
    module, x = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1)), torch.rand(5, 4)
    exported(module, (x,), path)
    network = assay.Network.from_onnx(path)
    assert torch.allclose(network(x), module[0](x), atol=TOLERANCE)
    # The penultimate layer of a single Linear is the input of the network.
    assert torch.allclose(network.observe(x).layer("penultimate"), x)
    assert torch.allclose(assay.Network.from_onnx(path, logits="scores")(x), module(x), atol=TOLERANCE)


@pytest.mark.parametrize("size", [1, 4])
def test_a_graph_of_fixed_batch_size_is_run_in_pieces(images, path, size):
    module = small_cnn()
    exported(module, (images[:size],), path, fixed=True)
    trace = assay.Network.from_onnx(path).observe(images)
    with torch.no_grad():
        assert torch.allclose(trace.logits, module(images), atol=TOLERANCE)
    assert trace.layer("penultimate").shape == (10, 8)


class Attention(nn.Module):
    """Products of activations between the layers and after the last; two inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 3, bias=False)

    def forward(self, tokens, attention_mask):
        scores = self.query(tokens) @ tokens.transpose(1, 2)
        weights = torch.softmax(scores + (1 - attention_mask[:, None]) * -1e9, 2)
        return (weights @ torch.tanh(self.head(tokens)))[:, 0]


def test_several_inputs_go_by_name_and_sequences_take_a_token(path):
    module = Attention()
    inputs = {"tokens": torch.rand(5, 6, 4), "attention_mask": torch.tensor([[1] * 4 + [0] * 2] * 5)}
    exported(module, tuple(inputs.values()), path, names=tuple(inputs))
    for pool, token in ((None, 0), ("last", 3)):
        expected = assay.Network(module, pool=pool).observe(inputs)
        trace = assay.Network.from_onnx(path, pool=pool).observe(inputs)
        assert torch.allclose(trace.logits, expected.logits, atol=TOLERANCE)
        assert torch.allclose(trace.layer("penultimate"), expected.layer("penultimate"), atol=TOLERANCE), (
            token
        )
    with pytest.raises(
        InputError, match=r"expected the inputs \['attention_mask', 'tokens'\], got \['tokens'\]"
    ):
        assay.Network.from_onnx(path)({"tokens": inputs["tokens"]})


def test_gradients_are_refused_in_a_sentence(images, path):
    network = assay.Network.from_onnx(exported(small_cnn(), (images,), path))
    assert not network(images).requires_grad
    with pytest.raises(GradientError, match="expected a network with gradients, got the black box"):
        network(images.clone().requires_grad_())
    with pytest.raises(GradientError, match="original torch module"):
        network.gradient(images, lambda trace: trace.logits[:, 0])


def test_bad_inputs_are_refused_with_what_the_graph_takes(images, path):
    network = assay.Network.from_onnx(exported(small_cnn(), (images,), path))
    with pytest.raises(InputError, match=r"\('n', 1, 8, 8\).*\(2, 3, 8, 8\)"):
        network(torch.rand(2, 3, 8, 8))
    with pytest.raises(InputError, match=r"'x' of type float32, got torch\.uint8"):
        network((images * 255).byte())
    assert torch.allclose(network(images.double()), network(images))
    assert len(network(images[:0])) == 0


def test_the_fingerprint_follows_the_weights(images, path, tmp_path):
    module = small_cnn()
    first = assay.Network.from_onnx(exported(module, (images,), path)).fingerprint
    assert assay.Network.from_onnx(path, layers=()).fingerprint == first
    with torch.no_grad():
        module[0].bias += 1
    assert assay.Network.from_onnx(exported(module, (images,), tmp_path / "b.onnx")).fingerprint != first


def graph_file(path, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs],
        [numpy_helper.from_array(values, name) for name, values in weights],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


FLOAT, WEIGHT = TensorProto.FLOAT, np.arange(12, dtype=np.float32).reshape(3, 4)


def test_weights_that_are_transposed_in_the_graph_are_weights(path):
    nodes = [helper.make_node("Transpose", ["w"], ["wt"]), helper.make_node("MatMul", ["x", "wt"], ["y"])]
    graph_file(path, nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 3])], [("w", WEIGHT)])
    x = torch.rand(2, 4)
    trace = assay.Network.from_onnx(path).observe(x)
    assert torch.allclose(trace.logits, x @ torch.from_numpy(WEIGHT.T.copy()))
    assert torch.equal(trace.layer("penultimate"), x)


def test_a_graph_without_layers_or_logits_is_said(path):
    graph_file(
        path, [helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])]
    )
    with pytest.raises(InputError, match=r"Gemm or MatMul with weights before 'y', or a Conv .* found none"):
        assay.Network.from_onnx(path)
    assert assay.Network.from_onnx(path, layers=()).observe(torch.ones(2, 4)).logits.shape == (2, 4)
    node = helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)
    graph_file(path, [node], [("x", FLOAT, ["n", 4])], [("label", TensorProto.INT64, ["n"])])
    with pytest.raises(InputError, match=r"expected an output with class scores, got 'label' int64 \(n\)"):
        assay.Network.from_onnx(path, layers=())


@pytest.mark.parametrize("content", [b"", b"hello", b"\0" * 100, None])
def test_files_that_are_no_onnx_are_refused(images, path, content):
    exported(small_cnn(), (images,), path)
    path.write_bytes(path.read_bytes()[:300] if content is None else content)
    with pytest.raises(InputError, match=r"net\.onnx: "):
        assay.Network.from_onnx(path)


def test_a_missing_file_is_said(path):
    with pytest.raises(InputError, match=r"net\.onnx: expected an ONNX file, found none"):
        assay.Network.from_onnx(path)


def test_an_operator_that_does_not_exist_is_said(path):
    node = helper.make_node("Nonsense", ["x"], ["y"])
    graph_file(path, [node], [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])])
    with pytest.raises(InputError, match=r"cannot be run by onnxruntime"):
        assay.Network.from_onnx(path, layers=())


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_names_the_line_that_installs_it(path, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package}.*pip install 'assay\[onnx\]'"):
        assay.Network.from_onnx(path)


def test_a_convolution_with_a_channel_per_class_is_the_last_layer(images, path):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Conv2d(5, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()
    trace = assay.Network.from_onnx(exported(module, images, path)).observe(images)
    expected = assay.Network(module).observe(images)
    assert torch.allclose(trace.logits, expected.logits, atol=TOLERANCE)
    assert torch.allclose(trace.features["penultimate"], expected.features["penultimate"], atol=TOLERANCE)


@pytest.mark.parametrize("build", [small_cnn, small_mlp])
def test_a_dynamically_quantised_file_shows_what_goes_into_its_last_layer(build, images, path, tmp_path):
    from onnxruntime.quantization import quantize_dynamic

    module = build()
    # Seven bits per weight: with eight, sums overflow on processors without VNNI, as onnxruntime documents.
    quantize_dynamic(exported(module, images, path), tmp_path / "int8.onnx", reduce_range=True)
    network = assay.Network.from_onnx(tmp_path / "int8.onnx")
    assert {"MatMulInteger", "ConvInteger"} & {node.op_type for node in network.file.nodes}
    trace, expected = network.observe(images), assay.Network(module).observe(images)
    # So few bits per weight and activation cost a few percent of the spread.
    for found, wanted in (
        (trace.logits, expected.logits),
        (trace.features["penultimate"], expected.features["penultimate"]),
    ):
        assert (found - wanted).abs().max() < 0.1 * wanted.std()
