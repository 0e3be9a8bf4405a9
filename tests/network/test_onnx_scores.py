"""The class scores of an ONNX file: the right output, before the softmax or sigmoid that it ends in."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

import assay
from assay.errors import AssayWarning, InputError

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
WEIGHT = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
node = helper.make_node

# z is the tensor of logits; every chain below ends in the output "y".
CHAINS = {
    "softmax": [node("Softmax", ["z"], ["y"], axis=1)],
    "softmax, then copied and cast": [
        node("Softmax", ["z"], ["a"], axis=-1),
        node("Identity", ["a"], ["b"]),
        node("Cast", ["b"], ["y"], to=FLOAT),
    ],
    "log softmax": [node("LogSoftmax", ["z"], ["y"], axis=1)],
    "logarithm of a softmax": [node("Softmax", ["z"], ["a"], axis=1), node("Log", ["a"], ["y"])],
    "taken apart": [
        node("Exp", ["z"], ["e"]),
        node("ReduceSum", ["e", "one"], ["s"], keepdims=1),
        node("Div", ["e", "s"], ["y"]),
    ],
    "taken apart, less the largest": [
        node("ReduceMax", ["z"], ["m"], axes=[-1], keepdims=1),
        node("Sub", ["z", "m"], ["c"]),
        node("Exp", ["c"], ["e"]),
        node("ReduceSum", ["e", "one"], ["s"], keepdims=1),
        node("Div", ["e", "s"], ["y"]),
    ],
    "as jax writes it": [
        node("ReduceMax", ["z"], ["m"], axes=[1], keepdims=0),
        node("Max", ["lowest", "m"], ["m1"]),
        node("Reshape", ["m1", "column"], ["m2"]),
        node("Sub", ["z", "m2"], ["c"]),
        node("Exp", ["c"], ["e"]),
        node("ReduceSum", ["e", "one"], ["s"], keepdims=0),
        node("Reshape", ["s", "column"], ["s2"]),
        node("Div", ["e", "s2"], ["y"]),
    ],
    "by a reciprocal": [
        node("Exp", ["z"], ["e"]),
        node("ReduceSum", ["e", "one"], ["s"], keepdims=1),
        node("Reciprocal", ["s"], ["r"]),
        node("Mul", ["r", "e"], ["y"]),
    ],
    "less its log sum of exponentials": [
        node("ReduceLogSumExp", ["z"], ["l"], axes=[1], keepdims=1),
        node("Sub", ["z", "l"], ["y"]),
    ],
    "less the logarithm of a sum": [
        node("ReduceMax", ["z"], ["m"], axes=[1], keepdims=1),
        node("Sub", ["z", "m"], ["c"]),
        node("Exp", ["c"], ["e"]),
        node("ReduceSum", ["e", "one"], ["s"], keepdims=1),
        node("Log", ["s"], ["l"]),
        node("Sub", ["c", "l"], ["y"]),
    ],
}
CONSTANTS = {
    "one": np.array([1], np.int64),
    "column": np.array([-1, 1], np.int64),
    "lowest": np.array(-np.inf, np.float32),
}


def written(path, nodes, outputs=(("y", FLOAT, ["n", 3]),), weight=WEIGHT):
    """A graph with z = x weight, and then these nodes."""
    graph = helper.make_graph(
        [node("MatMul", ["x", "w"], ["z"]), *nodes],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        [numpy_helper.from_array(values, name) for name, values in {"w": weight, **CONSTANTS}.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.onnx"


@pytest.fixture
def rows():
    return torch.randn(50, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("chain", CHAINS)
def test_a_softmax_is_followed_to_its_input_in_any_form(path, rows, chain):
    network = assay.Network.from_onnx(written(path, CHAINS[chain]))
    trace = network.observe(rows)
    torch.testing.assert_close(trace.logits, rows @ torch.from_numpy(WEIGHT))
    assert torch.equal(trace.layer("penultimate"), rows)
    assert network.outputs == "logits"
    asked = assay.Network.from_onnx(path, output="y", layers=())
    assert torch.equal(asked.observe(rows).logits, trace.logits)


NO_SOFTMAX = {
    "over the rows": [
        node("Exp", ["z"], ["e"]),
        node("ReduceSum", ["e", "zero"], ["s"], keepdims=1),
        node("Div", ["e", "s"], ["y"]),
    ],
    "softmax over the rows": [node("Softmax", ["z"], ["y"], axis=0)],
    "of two tensors": [
        node("Exp", ["z"], ["e"]),
        node("Exp", ["x4"], ["f"]),
        node("ReduceSum", ["f", "one"], ["s"], keepdims=1),
        node("Div", ["e", "s"], ["y"]),
    ],
}


@pytest.mark.parametrize("chain", NO_SOFTMAX)
def test_what_only_looks_like_a_softmax_is_taken_as_it_is(path, rows, chain, monkeypatch):
    monkeypatch.setitem(CONSTANTS, "zero", np.array([0], np.int64))
    nodes = [node("Identity", ["x"], ["x4"]), *NO_SOFTMAX[chain]]
    network = assay.Network.from_onnx(written(path, nodes), outputs=None, layers=())
    assert network.logits == "y"


def test_the_exponent_is_taken_where_something_else_is_subtracted(path, rows, monkeypatch):
    bias = np.array([1, 2, 3], np.float32)
    monkeypatch.setitem(CONSTANTS, "bias", bias)
    nodes = [node("Sub", ["z", "bias"], ["c"]), node("Exp", ["c"], ["e"]), *CHAINS["taken apart"][1:]]
    network = assay.Network.from_onnx(written(path, nodes))
    expected = rows @ torch.from_numpy(WEIGHT) - torch.from_numpy(bias)
    torch.testing.assert_close(network.observe(rows).logits, expected)


def test_a_statement_goes_before_what_the_graph_shows(path, rows):
    written(path, CHAINS["softmax"])
    chances = (rows @ torch.from_numpy(WEIGHT)).softmax(dim=1)
    taken = assay.Network.from_onnx(path, outputs="logits")
    torch.testing.assert_close(taken.observe(rows).logits, chances)
    assert taken.fingerprint != assay.Network.from_onnx(path).fingerprint
    stated = assay.Network.from_onnx(path, outputs="probabilities")
    torch.testing.assert_close(stated.observe(rows).logits, rows @ torch.from_numpy(WEIGHT))
    one = assay.Network.from_onnx(path, outputs="probabilities", label=2)
    torch.testing.assert_close(one.observe(rows).probabilities[:, 1].float(), chances[:, 2])


def test_a_sigmoid_is_followed_and_several_need_a_label(path, rows, tmp_path):
    last = [node("Sigmoid", ["z"], ["y"])]
    single = assay.Network.from_onnx(written(path, last, [("y", FLOAT, ["n", 1])], WEIGHT[:, :1].copy()))
    trace = single.observe(rows)
    torch.testing.assert_close(trace.logits[:, 1], rows @ torch.from_numpy(WEIGHT[:, 0].copy()))
    written(path, last)
    with pytest.raises(InputError, match=r"3 values between 0 and 1 .* several sigmoids give; pass label="):
        assay.Network.from_onnx(path).observe(rows[:2])
    second = assay.Network.from_onnx(path, label=1)
    seen = second.observe(rows)
    torch.testing.assert_close(seen.logits[:, 1], rows @ torch.from_numpy(WEIGHT[:, 1].copy()))
    guard = assay.Guard(second, assay.monitors.Mahalanobis().fit(seen)).calibrate(seen, 0.1)
    guard.export(tmp_path / "guard.onnx")
    answer = assay.OnnxGuard(tmp_path / "guard.onnx").answer(rows)
    torch.testing.assert_close(answer.trace.logits, seen.logits, rtol=1e-4, atol=1e-4)


def test_probabilities_that_no_node_shows_are_recognised_and_exported(path, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(CONSTANTS, "third", np.array(1 / 3, np.float32))
    nodes = [
        node("Abs", ["z"], ["a"]),
        node("ReduceSum", ["a", "one"], ["s"], keepdims=1),
        node("Div", ["a", "s"], ["y"]),
    ]
    network = assay.Network.from_onnx(written(path, nodes))
    with pytest.warns(AssayWarning, match=r"net\.onnx \('y'\) returns probabilities"):
        seen = network.observe(rows)
    values = (rows @ torch.from_numpy(WEIGHT)).abs()
    torch.testing.assert_close(seen.probabilities.float(), values / values.sum(dim=1, keepdim=True))
    guard = assay.Guard(network, assay.monitors.Mahalanobis().fit(seen)).calibrate(seen, 0.1)
    guard.export(tmp_path / "guard.onnx", features=True)
    answer = assay.OnnxGuard(tmp_path / "guard.onnx").answer(rows)
    torch.testing.assert_close(answer.trace.logits, seen.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(answer.verdict.scores, guard(rows).scores, rtol=1e-4, atol=1e-4)
    wider = network.watching(("z",))
    assert wider.outputs == "probabilities"


def test_of_several_outputs_one_is_chosen_or_asked_for(path, rows):
    outputs = [("label", INT, ["n"]), ("hidden", FLOAT, ["n", 4]), ("y", FLOAT, ["n", 3])]
    nodes = [
        node("ArgMax", ["z"], ["label"], axis=1, keepdims=0),
        node("Identity", ["x"], ["hidden"]),
        *CHAINS["softmax"],
    ]
    written(path, nodes, outputs)
    with pytest.raises(InputError, match=r"got 'hidden' float32 \(n, 4\), 'y' float32 \(n, 3\); choose one"):
        assay.Network.from_onnx(path)
    for choice in ("y", 2, -1):
        trace = assay.Network.from_onnx(path, output=choice).observe(rows)
        torch.testing.assert_close(trace.logits, rows @ torch.from_numpy(WEIGHT))
    with pytest.raises(InputError, match=r"one of the outputs \['label', 'hidden', 'y'\], got number 3"):
        assay.Network.from_onnx(path, output=3)
    with pytest.raises(InputError, match="got 'other'"):
        assay.Network.from_onnx(path, output="other")
    # Logits and their softmax are one: nothing to ask.
    both = [("z", FLOAT, ["n", 3]), ("y", FLOAT, ["n", 3])]
    written(path, CHAINS["softmax"], both)
    assert assay.Network.from_onnx(path).logits == "z"


@pytest.mark.parametrize("as_dicts", [False, True])
def test_skl2onnx(tmp_path, as_dicts):
    skl2onnx = pytest.importorskip("skl2onnx")
    train, test = assay.data.digits()
    rows, labels = train.inputs[:400].flatten(1).numpy(), train.labels[:400].numpy()
    model = LogisticRegression(max_iter=300).fit(rows, labels)
    path = tmp_path / "digits.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the converter
        content = skl2onnx.to_onnx(model, rows[:1], options={"zipmap": as_dicts}).SerializeToString()
    path.write_bytes(content)
    network = assay.Network.from_onnx(path, layers=())
    unseen = test.inputs.flatten(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)  # said where no Softmax is to be seen in the graph
        trace = network.observe((unseen, test.labels))
    expected = torch.from_numpy(model.predict_proba(unseen.numpy())).double()
    torch.testing.assert_close(trace.probabilities, expected, rtol=1e-3, atol=1e-6)
    assert trace.correct.double().mean() == model.score(unseen.numpy(), test.labels.numpy())


def test_magika():
    magika = pytest.importorskip("magika")
    path = next(Path(magika.__file__).parent.rglob("model.onnx"))
    network = assay.Network.from_onnx(path)
    octets = torch.randint(0, 256, (4, 2048), generator=torch.Generator().manual_seed(0)).int()
    chances = assay.Network.from_onnx(path, output="target_label", outputs="logits", layers=())(octets)
    torch.testing.assert_close(network(octets).softmax(dim=1), chances, rtol=1e-4, atol=1e-6)
    assert chances.shape == (4, 214)
    assert network.observe(octets).layer("penultimate").ndim == 2
