"""Dense outputs become the rows that a loop over inputs and pixels, or boxes, gives."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import assay
from assay import FunctionRows, PixelRows, Trace
from assay.errors import AssayWarning, GradientError, InputError


class Maps(nn.Module):
    """Logits (N, 3, 6, 8) and, at half the size, a layer of 4 channels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.head = nn.Conv2d(4, 3, 1)
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, images):
        return self.larger(self.head(self.body(images)))


class Peaks(nn.Module):
    """A detector of bright pixels: for every place of a grid two logits and where it lies."""

    def __init__(self):
        super().__init__()
        self.body = nn.Identity()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images):
        values = self.body(self.weight * images[:, 0])
        return {"logits": torch.stack([values, -values], dim=1)}


def bright(output, layers):
    """A row per pixel above one half, of the images in reverse order."""
    logits = output["logits"]
    source, row, column = (logits[:, 0] > 0.5).nonzero(as_tuple=True)
    order = source.argsort(descending=True, stable=True)
    source, row, column = source[order], row[order], column[order]
    features = {"places": torch.stack([row, column], dim=1)}
    features |= {name: value[source, row, column][:, None] for name, value in layers.items()}
    return logits[source, :, row, column], source, features


@pytest.fixture(scope="module")
def module():
    return Maps()


@pytest.fixture(scope="module")
def images():
    return torch.rand(5, 1, 6, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def maps():
    return torch.randint(0, 3, (5, 6, 8), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("stride", [1, 2, 3, 20])
def test_pixels_are_rows_in_the_order_of_a_loop(module, images, maps, stride):
    network = assay.Network(module, layers="body", rows=PixelRows(stride), batch_size=2)
    trace = network.observe((images, maps))
    with torch.no_grad():
        logits, body = module(images), module.body(images)
    rows = [
        (logits[n, :, y, x], body[n, :, y // 2, x // 2], maps[n, y, x], n)
        for n in range(5)
        for y in range(min(stride // 2, 5), 6, stride)
        for x in range(min(stride // 2, 7), 8, stride)
    ]
    expected = [torch.stack([torch.as_tensor(row[part]) for row in rows]) for part in range(4)]
    found = (trace.logits, trace.features["body"], trace.labels, trace.source)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)  # rounding of single precision
    assert trace.input_count == 5


def test_linear_resampling_keeps_the_head_linear(module, images):
    """Enlarging and a convolution of one pixel commute, so the head can be recovered from the rows."""
    network = assay.Network(module, layers="body", rows=PixelRows(resampling="linear"))
    trace = network.observe(images)
    weight, bias = module.head.weight.detach()[:, :, 0, 0], module.head.bias.detach()
    assert torch.allclose(trace.features["body"] @ weight.T + bias, trace.logits, atol=1e-5)
    assert torch.isfinite(assay.monitors.ViM(layer="body").fit(trace).score(trace)).all()


def test_signals_are_pixels_of_one_axis_and_one_row_features_are_those_of_all():
    class Signal(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = nn.Linear(6, 2)
            self.each = nn.Conv1d(1, 3, 1)

        def forward(self, values):
            return self.each(values) + self.whole(values[:, 0]).sum()

    values = torch.rand(4, 1, 6)
    network = assay.Network(Signal(), layers=("each", "whole"), rows="pixels")
    trace = network.observe(values)
    assert trace.logits.shape == (24, 3)
    assert torch.equal(trace.features["whole"], network.module.whole(values[:, 0]).detach()[trace.source])


def test_boxes_are_rows_with_their_features_in_the_order_of_inputs():
    images = torch.zeros(3, 1, 4, 4)
    images[0, 0, 1, 2], images[2, 0, 0, 3], images[2, 0, 3, 3] = 0.9, 0.8, 0.7
    network = assay.Network(Peaks(), layers="body", rows=bright, batch_size=2)
    trace = network.observe(images, keep_inputs=True)
    assert trace.source.tolist() == [0, 2, 2]
    assert trace.input_count == 3
    assert trace.features["places"].tolist() == [[1, 2], [0, 3], [3, 3]]
    assert torch.allclose(trace.features["body"][:, 0], torch.tensor([0.9, 0.8, 0.7]))
    assert torch.equal(trace.inputs, images)
    empty = network.observe(torch.zeros(2, 1, 4, 4))
    assert (len(empty), empty.input_count) == (0, 2)


def test_labels_of_boxes_come_from_a_function_and_those_to_be_ignored_are_left_out():
    images = torch.full((4, 1, 2, 2), 0.9)
    known = [{"corner": [0, 1, -100, 0]}, {"corner": [1, 1, 1, 1]}] * 2

    def labels(loaded, trace):
        return [
            loaded[source]["corner"][2 * int(row) + int(column)]
            for source, (row, column) in zip(trace.source.tolist(), trace.features["places"], strict=True)
        ]

    network = assay.Network(Peaks(), layers=(), rows=FunctionRows(bright, labels), batch_size=2)
    trace = network.observe((images, known))
    assert trace.labels.tolist() == [0, 1, 0, 1, 1, 1, 1] * 2
    assert trace.source.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert trace.ignored == 2
    loader = DataLoader([(image, 0) for image in images], batch_size=4)
    with pytest.raises(InputError, match=r"one label per row \(16\), got 4; pass rows=assay.FunctionRows"):
        assay.Network(Peaks(), layers=(), rows=bright).observe(loader)


def test_pixels_to_be_ignored_are_left_out_and_counted(module, images, maps):
    for ignore_index in (-100, 255):
        marked = maps.clone()
        marked[:, 0] = ignore_index
        network = assay.Network(module, layers="body", rows="pixels", ignore_index=ignore_index)
        trace = network.observe((images, marked))
        assert trace.ignored == 5 * 8
        everything = network.observe((images, maps))
        kept = (marked != ignore_index).flatten()
        assert torch.equal(trace.logits, everything.logits[kept])
        assert torch.equal(trace.source, everything.source[kept])


def test_a_stream_gives_what_observe_gives_and_sources_line_up(module, images, maps):
    network = assay.Network(module, layers="body", rows="pixels")
    whole = network.observe((images, maps), keep_inputs=True)
    parts = list(network.stream((images, maps), keep_inputs=True, batch_size=2))
    assert [part.input_count for part in parts] == [2, 2, 1]
    assert all(int(part.source.max()) == part.input_count - 1 for part in parts)
    joined = Trace.concatenate(parts)
    for part in ("labels", "source", "inputs"):
        assert torch.equal(getattr(joined, part), getattr(whole, part)), part
    assert torch.allclose(joined.logits, whole.logits, atol=1e-6)  # kernels depend on the size of a batch


def test_the_gradient_of_an_input_is_that_of_the_sum_over_its_rows(module, images, maps):
    marked = maps.clone()
    marked[2, 1:4] = -100
    network = assay.Network(module, layers="body", rows="pixels", batch_size=2)

    def loss(trace):
        return nn.functional.cross_entropy(trace.logits, trace.labels, reduction="none")

    found = network.gradient(images, loss, marked)
    moving = images.clone().requires_grad_()
    nn.functional.cross_entropy(module(moving), marked, ignore_index=-100, reduction="sum").backward()
    assert torch.allclose(found, moving.grad, atol=1e-5)
    attacked = assay.faults.fgsm(network, images, marked, 0.1)
    assert float((attacked - images).abs().max()) <= 0.1 + 1e-6


def test_rows_without_a_gradient_are_said():
    network = assay.Network(
        Peaks(), layers=(), rows=lambda output, _: (output["logits"][:, :, 0, 0].detach(), torch.arange(2))
    )
    with pytest.raises(GradientError, match="rows that are detached"):
        network.gradient(torch.rand(2, 1, 2, 2), lambda trace: trace.logits.sum(dim=1))


def test_scores_of_pixels_are_read_as_those_of_inputs_are(module, images, maps):
    class Softmax(nn.Module):
        def __init__(self, form):
            super().__init__()
            self.inner, self.form = module, form

        def forward(self, inputs):
            return self.form(self.inner(inputs))

    expected = assay.Network(module, layers=(), rows="pixels").observe(images).probabilities
    shares = Softmax(lambda logits: logits.softmax(dim=1))
    with pytest.warns(AssayWarning, match="returns probabilities"):
        found = assay.Network(shares, layers=(), rows="pixels").observe(images)
    assert torch.allclose(found.probabilities, expected, atol=1e-6)
    several = Softmax(lambda logits: {"out": logits, "aux": logits + 1})
    with pytest.raises(InputError, match="choose one with output='out'"):
        assay.Network(several, layers=(), rows="pixels").observe(images)
    chosen = assay.Network(several, layers=(), rows="pixels", output="out").observe(images)
    assert torch.allclose(chosen.probabilities, expected)
    yes = assay.Network(Softmax(lambda logits: logits[:, :1]), layers=(), rows="pixels", outputs="logits")
    trace = yes.observe((images, (maps == 0).long()))
    assert torch.allclose(trace.logits[:, 1] - trace.logits[:, 0], module(images)[:, 0].flatten(), atol=1e-6)


def test_files_and_functions_have_rows_too(module, images, maps, tmp_path):
    from assay.network.graph import traced

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, inputs):
            maps = self.inner(inputs)
            return maps, maps.mean(dim=1)

    expected = assay.Network(module, layers="body", rows=PixelRows(2)).observe((images, maps))
    path = tmp_path / "maps.onnx"
    path.write_bytes(traced(Both(), [images[:2]], ["images"], ["maps", "mean"]).SerializeToString())
    body = next(node.output[0] for node in onnx.load(path).graph.node if node.op_type == "Conv")
    file = assay.Network.from_onnx(path, body, rows=PixelRows(2), output="maps")
    found = file.watching([]).observe((images, maps))
    assert torch.allclose(found.logits, expected.logits, atol=1e-5)
    assert torch.allclose(found.features[body], expected.features["body"], atol=1e-5)
    assert torch.equal(found.source, expected.source)

    def corners(output, layers):
        assert set(output) == {"maps", "mean"}
        return output["maps"][:, :, 0, 0], torch.arange(len(output["maps"])), {body: layers[body][:, :, 0, 0]}

    by_function = assay.Network.from_onnx(path, body, rows=corners).observe(images)
    assert torch.allclose(by_function.logits, module(images)[:, :, 0, 0].detach(), atol=1e-5)

    def shares(batch):
        return module(torch.from_numpy(batch)).softmax(dim=1).detach().numpy()

    function = assay.Network.from_function(shares, "maps-1", rows=PixelRows(2))
    broken = images.clone()
    broken[1, 0, 0, 0] = torch.nan
    trace = function.observe(broken, allow_nonfinite=True)
    strange = trace.source == 1
    assert torch.isnan(trace.logits[strange]).all()
    assert torch.allclose(trace.probabilities[~strange], expected.probabilities[~strange], atol=1e-6)
    first = assay.Network.from_function(
        shares, "maps-2", rows=lambda output, _: (output[:, :, 0, 0], np.arange(len(output)))
    )
    assert first.observe(images).source.tolist() == [0, 1, 2, 3, 4]


def test_a_network_is_known_by_its_rows(module):
    plain = assay.Network(module, layers="body", rows="pixels")
    marks = {
        network.fingerprint
        for network in (
            plain,
            assay.Network(module, layers="body"),
            assay.Network(module, layers="body", rows=PixelRows(2)),
            assay.Network(module, layers="body", rows=bright),
        )
    }
    assert len(marks) == 4
    assert assay.Network(module, layers="head", rows=PixelRows()).fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("boxes", "expected rows to be 'pixels', a function"),
        (3, "expected rows to be"),
    ],
)
def test_rules_that_do_not_exist_are_refused(module, rows, words):
    with pytest.raises(InputError, match=words):
        assay.Network(module, rows=rows)


def test_what_does_not_fit_is_said_in_a_sentence(module, images, maps):
    dense = assay.Network(module, layers="body", rows="pixels")
    with pytest.raises(InputError, match="a map of labels per input, in the size of the logits"):
        dense.observe((images, maps[:, :3]))
    with pytest.raises(InputError, match="expected labels from 0 to 2"):
        dense.observe((images, maps + 1))
    with pytest.raises(InputError, match=r"rows='pixels'"):
        assay.Network(module, layers="body").observe(images)
    depth = nn.Sequential(nn.Conv2d(1, 1, 1))
    with pytest.raises(InputError, match=r"at least two classes.*regression"):
        assay.Network(depth, layers=(), rows="pixels").observe(images)
    with pytest.raises(InputError, match=r"return logits \(R, classes\), the source"):
        assay.Network(module, layers=(), rows=lambda output, _: output).observe(images)
    with pytest.raises(InputError, match=r"features of the watched layers \['body'\]"):
        assay.Network(
            module, layers="body", rows=lambda output, _: (output[:, :, 0, 0], torch.arange(5))
        ).observe(images)
    with pytest.raises(InputError, match="stride of at least 1"):
        PixelRows(0)
    with pytest.raises(InputError, match="resampling to be one of"):
        PixelRows(resampling="cubic")
