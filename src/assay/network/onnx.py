"""ONNX files: black boxes with logits and features, without gradients."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.network.chosen_output import Choice
from assay.network.feature_pooling import pooled
from assay.network.graph import NetworkGraph
from assay.network.inputs import length
from assay.network.network import Network
from assay.network.onnx_graph import OnnxGraph
from assay.network.onnx_scores import SIGMOID, SOFTMAX, ClassScores, scores_of
from assay.network.prediction_rows import PredictionRows, RowFunction, prediction_rows
from assay.network.taps import PENULTIMATE
from assay.outputs import LOGITS
from assay.trace import Inputs

_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(bool)": np.bool_,
}

Feeds = dict[str, npt.NDArray[np.generic]]


class OnnxNetwork(Network):
    """A classifier in an ONNX file, run by onnxruntime on the CPU; built by `Network.from_onnx`.

    `output` names the output (or inner tensor) with the class scores; without it, the output called "logits",
    else the only one that can be class scores. If that comes from a softmax, also one taken apart into Exp,
    ReduceSum and Div, or from a sigmoid, the logits before it are read. `outputs` and `label` as in
    `Network`; with outputs="logits" nothing is followed, and `logits` names such an output. `layers` are
    "penultimate" (the input of the last Gemm or MatMul with weights that the logits need), or names of
    outputs, inner tensors or nodes. Features become one row per input as in `Network`. The graph does not say
    what a tensor of three axes means, so it is treated as a sequence unless `pool` says otherwise. A graph of
    fixed batch size is run in pieces of that size. Methods that need gradients raise `GradientError`.
    """

    module: "OnnxSession"

    def __init__(
        self,
        path: str | PathLike[str],
        layers: str | Sequence[str] = PENULTIMATE,
        *,
        outputs: str | None = None,
        output: Choice = None,
        label: int | None = None,
        logits: str | None = None,
        rows: str | RowFunction | PredictionRows | None = None,
        **options: Any,
    ) -> None:
        """`options` are those of `Network`: pool, batch_size and ignore_index."""
        if logits is not None:
            outputs, output = LOGITS, logits
        self.file = OnnxGraph(path)
        rule = prediction_rows(rows)
        whole = rule is not None and not rule.of_scores  # a function, which reads all outputs of the file
        scores = ClassScores(self.file.outputs[0]) if whole else self._scores(outputs, output, label)
        self.logits = scores.tensor
        layer_names = (layers,) if isinstance(layers, str) else tuple(layers)
        self.tensors = {
            name: self.file.penultimate(self.logits) if name == PENULTIMATE else self.file.tensor(name)
            for name in layer_names
        }
        read = self.file.outputs if whole else [self.logits]
        session = OnnxSession(self.file, [*read, *self.tensors.values()])
        super().__init__(session, (), outputs=outputs, output=output, label=label, rows=rule, **options)
        self.layers = layer_names
        if scores.behind:
            self.reader.takes_logits(several=scores.behind == SIGMOID)

    def _scores(self, outputs: str | None, output: Choice, label: int | None) -> ClassScores:
        """Where the class scores are: before a softmax or sigmoid, where that can be followed."""
        found = scores_of(self.file, output, follow=outputs != LOGITS)
        if label is not None and found.behind == SOFTMAX:  # of one class alone, the logit says nothing
            return scores_of(self.file, output, follow=False)
        return found

    def graph(self, example: Inputs, layers: Sequence[str]) -> NetworkGraph:
        """The graph in the file; its layers are pooled when the guard reads them."""
        outputs = self._run(example)
        shown = {"": outputs[self.logits]} | {name: outputs[self.tensors[name]] for name in layers}
        tensors = {name: self.tensors[name] for name in layers}
        return NetworkGraph(
            self.file.whole(),
            list(self.module.takes),
            self.logits,
            tensors,
            shown,
            self._read,
            lambda output: self.reader.logits(output, len(output)),
        )

    def _model_identity(self) -> str:
        return self.file.fingerprint

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"logits": self.logits}

    def _with_layers(self, layers: tuple[str, ...]) -> Network:
        wider = OnnxNetwork(
            self.file.path,
            layers,
            pool=self.pool,
            batch_size=self.batch_size,
            outputs=self.reader.stated,
            output=self.output,
            label=self.reader.label,
            rows=self.rows,
            ignore_index=self.ignore_index,
        )
        wider.reader = self.reader
        return wider

    def __repr__(self) -> str:
        return f"Network.from_onnx({str(self.file.path)!r}, layers={self.layers})"

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        outputs = self._run(inputs)
        logits = self.reader.logits(outputs[self.logits], length(inputs))
        features = {name: self._read(name, outputs[self.tensors[name]], inputs) for name in layers}
        return logits, features

    def _outputs(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Any, dict[str, Tensor]]:
        found = self._run(inputs)
        alone = self.rows is not None and self.rows.of_scores
        output = found[self.logits] if alone else {name: found[name] for name in self.file.outputs}
        return output, {name: self._unpooled(name, found[self.tensors[name]], False) for name in layers}

    @property
    def _name(self) -> str:
        return f"{self.file.path} ({self.logits!r})"

    def _read(self, name: str, output: Tensor, inputs: Inputs) -> Tensor:
        """One row of features per input from a layer's output."""
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        return pooled(output, self._pool_of(name), mask).float()


class OnnxSession(nn.Module):
    """Runs the graph on tensors; the module inside an `OnnxNetwork`."""

    differentiable = False

    def __init__(self, graph: OnnxGraph, names: Sequence[str]) -> None:
        super().__init__()
        self.path = graph.path
        self.names = list(dict.fromkeys(names))
        self.session, self.errors = _open_session(graph, self.names)
        self.takes = {entry.name: entry for entry in self.session.get_inputs()}
        if unknown := {entry.type for entry in self.takes.values()} - set(_TYPES):
            raise InputError(
                f"{self.path}: expected inputs that are tensors of numbers, got {sorted(unknown)}; "
                "export the network again without its preprocessing"
            )

    def forward(self, *tensors: Tensor, **named: Tensor) -> dict[str, Tensor]:
        """The output tensors, by name."""
        feeds = self._feeds(dict(zip(self.takes, tensors, strict=False)) | named)
        rows = len(next(iter(feeds.values())))
        sizes = [entry.shape[0] for entry in self.takes.values() if entry.shape]
        fixed = max(1, next((size for size in sizes if isinstance(size, int)), rows))
        pieces = [self._run(_padded_batch(feeds, start, fixed)) for start in range(0, max(1, rows), fixed)]
        joined = [
            np.concatenate(parts) if len(parts) > 1 else parts[0] for parts in zip(*pieces, strict=True)
        ]
        return {
            name: torch.from_numpy(values[:rows]) for name, values in zip(self.names, joined, strict=True)
        }

    def _run(self, feeds: Feeds) -> list[npt.NDArray[Any]]:
        try:
            outputs = self.session.run(self.names, feeds)
        except self.errors as error:
            raise InputError(
                f"{self.path}: expected inputs {self._expected_shapes()}, got "
                f"{ {name: values.shape for name, values in feeds.items()} } ({error}); "
                "pass inputs as in training"
            ) from error
        return [np.require(values, requirements=["W"]) for values in outputs]

    def _feeds(self, inputs: Mapping[str, Tensor]) -> Feeds:
        if set(inputs) != set(self.takes):
            raise InputError(
                f"{self.path}: expected the inputs {sorted(self.takes)}, got {sorted(inputs)}; "
                "pass a dict with these names"
            )
        feeds: Feeds = {}
        for name, tensor in inputs.items():
            dtype = np.dtype(_TYPES[self.takes[name].type])
            if (dtype.kind == "f") != tensor.is_floating_point():
                raise InputError(
                    f"{self.path}: expected {name!r} of type {dtype}, got {tensor.dtype}; "
                    "convert the inputs as in training"
                )
            if tensor.dtype == torch.bfloat16:  # NumPy has no such type
                tensor = tensor.float()
            feeds[name] = tensor.detach().cpu().numpy().astype(dtype, copy=False)
        return feeds

    def _expected_shapes(self) -> dict[str, Any]:
        return {name: tuple(entry.shape) for name, entry in self.takes.items()}


def _padded_batch(feeds: Feeds, start: int, size: int) -> Feeds:
    """`size` rows from `start` on; if fewer are left, the last row is repeated."""
    pieces = {name: values[start : start + size] for name, values in feeds.items()}
    return {
        name: values
        if len(values) == size
        else np.concatenate([values, np.repeat(values[-1:], size - len(values), axis=0)])
        for name, values in pieces.items()
    }


def _open_session(graph: OnnxGraph, names: Sequence[str]) -> tuple[Any, tuple[type[Exception], ...]]:
    """An open session, and the errors it may raise: their only common parent is Exception."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    errors = (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, so onnxruntime need not print them as well
    # The graph is opened from memory; this tells where weights stored in separate files are.
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(graph.path.parent.resolve())
    )
    try:
        session = onnxruntime.InferenceSession(
            graph.exposing(names), options, providers=["CPUExecutionProvider"]
        )
    except errors as error:
        raise InputError(
            f"{graph.path}: cannot be run by onnxruntime ({error}); export the network again"
        ) from error
    return session, errors
