"""An ONNX file has no gradients; the score then needs a perturbation that asks for none."""

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.errors import GradientError, InputError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def network(tmp_path):
    """Two layers written by hand: exporting would need another package."""
    torch.manual_seed(0)
    first, last = nn.Linear(4, 6), nn.Linear(6, 2)
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Gemm", ["t", "w2", "b2"], ["logits"], transB=1),
    ]
    weights = {"w1": first.weight, "b1": first.bias, "w2": last.weight, "b2": last.bias}
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in weights.items()],
    )
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return assay.Network.from_onnx(path)


def test_an_onnx_file_is_scored_with_random_signs_and_says_why_not_with_fgsm(network):
    inputs = torch.randn(600, 4, generator=torch.Generator().manual_seed(1))
    labels = network.observe(inputs).predictions
    train, test = ((inputs[rows], labels[rows]) for rows in (slice(300), slice(300, None)))
    with pytest.raises(GradientError, match="perturbation='random_sign'"):
        assay.mira_score(network, train, test)
    result = assay.mira_score(
        network, train, test, perturbation="random_sign", accuracy_threshold=0.8, steps=3, resamples=20
    )
    assert np.isfinite(result.score)
    assert result.dimensions == 6
    with pytest.raises(InputError, match="choose from"):
        assay.mira_score(network, train, test, layer="h")
