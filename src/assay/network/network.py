"""Network: observe any classifier module."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.engine import progress
from assay.errors import GradientError, InputError
from assay.identity import digest, module_identity
from assay.labels import check_labels
from assay.network.batches import Batches, encoded, placed
from assay.network.buffers import RowBuffer
from assay.network.chosen_output import Choice, chosen_output
from assay.network.compiled import as_written, uncompiled
from assay.network.factories import NetworkFactories
from assay.network.feature_pooling import Pool, check_pool, named_pool, pooled
from assay.network.graph import NetworkGraph, traced_network
from assay.network.graph_modules import as_module
from assay.network.inputs import HALF, Form, form_of, length, perturbable, replaced, scaled
from assay.network.module_call import output_of
from assay.network.output_reader import OutputReader
from assay.network.taps import PENULTIMATE, evaluating, modules_of, thinned
from assay.network.watched_layers import check_layers, listening, silence
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace


class Network(NetworkFactories):
    """A classifier and the layers to watch.

    `layers` are module names, or "penultimate": what goes into the layer that makes the logits, which is the
    last Linear that runs, or a convolution with one channel per class that runs after it (`heads.py`).
    `pool` overrides how a layer's output becomes one row per input (`assay.network.feature_pooling`): for all
    layers, or a dict for some. Always runs in evaluation mode and leaves the module as it was.

    A module may return one tensor, or several in a tuple, dict or object: `output` is the name or position of
    the one with the class scores, by default the one called "logits", or the only one it can be. `outputs`
    says what they are: "logits", "probabilities" or "log-probabilities"; by default the first rows show it,
    and it stays so. One column is a network with two classes. `label` is for networks that answer several
    yes-or-no questions: the number of the one to watch.

    `scale` is for inputs of type uint8, such as images that would take four times the memory as floats: they
    stay as they are, and each batch is divided by `scale` on its way into the module.

    `identity` names the model where weights do not identify it: a Guard of a module without weights cannot be
    saved unless the model has a name.
    """

    def __init__(
        self,
        module: nn.Module,
        layers: str | Sequence[str] = PENULTIMATE,
        *,
        pool: Pool | Mapping[str, Pool] | None = None,
        batch_size: int = 256,
        identity: str | None = None,
        outputs: str | None = None,
        output: Choice = None,
        label: int | None = None,
        scale: float | None = None,
    ) -> None:
        module = as_module(module)
        if not isinstance(module, nn.Module):
            raise InputError(
                f"expected a torch.nn.Module, got {type(module).__name__}; for a file use Network.from_onnx"
            )
        if batch_size < 1:
            raise InputError(f"expected a batch_size of at least 1, got {batch_size}")
        if identity is not None and not identity.strip():
            raise InputError(
                "expected an identity that says which model it is, got an empty one; name model and version"
            )
        if scale is not None and not (math.isfinite(scale) and scale > 0):
            raise InputError(f"expected a scale above 0, such as 255, got {scale}")
        check_pool(pool)
        self.module = module
        self.layers = (layers,) if isinstance(layers, str) else tuple(layers)
        self.pool = pool
        self.batch_size = batch_size
        self.identity = identity
        self.output = output
        self.reader = OutputReader(self._name, outputs, label)
        self.scale = None if scale is None else float(scale)
        self.form: Form = {}
        self._classes: int | None = None
        self._check_layers()

    def watching(self, layers: Sequence[str]) -> "Network":
        """The same network that also watches these layers; itself if it already does."""
        missing = [layer for layer in layers if layer not in self.layers]
        return self._with_layers((*self.layers, *missing)) if missing else self

    def __call__(self, inputs: Any) -> Tensor:
        """The logits, differentiable with respect to the inputs."""
        return self._forward(self.embed(self.encode(inputs)), layers=())[0]

    def observe(
        self,
        data: Any,
        keep_inputs: bool = False,
        *,
        batch_size: int | None = None,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """What the network does on `data`: a DataLoader, a Dataset, (inputs, labels), or inputs.

        It takes the time of the batched forward pass and the memory of the Trace and one batch. Inputs that
        came in one piece are kept without a copy.
        """
        batches = Batches(
            data, self.encode, batch_size or self.batch_size, allow_nonfinite, self.reader.label
        )
        kept = batches.whole if keep_inputs and not self.embeds else None
        gathered: dict[tuple[str, str], RowBuffer] = {}
        with torch.no_grad():
            for raw, labels in progress(batches, "observing", len(batches)):
                inputs = self.embed(raw)
                logits, features = self._forward(inputs, self.layers)
                self.form = self.form or form_of(raw)
                parts = {("logits", ""): logits} | {("features", name): row for name, row in features.items()}
                if labels is not None:
                    check_labels(labels, logits.shape[1])  # now, not after the last batch
                    parts["labels", ""] = labels
                if keep_inputs and kept is None:
                    seen = inputs if self.embeds else raw
                    named = {"": seen} if isinstance(seen, Tensor) else seen
                    parts |= {("inputs", name): tensor for name, tensor in named.items()}
                for key, tensor in parts.items():
                    gathered.setdefault(key, RowBuffer()).add(tensor)
        return _trace(gathered, kept)

    def gradient(
        self, inputs: Inputs, objective: Callable[[Trace], Tensor], labels: Tensor | None = None
    ) -> Tensor:
        """d objective / d inputs, row by row, for the perturbable tensor of the inputs.

        `objective` takes the differentiable Trace of a batch (with its labels, where given) and returns one
        number per row, whose sum is differentiated. One forward and one backward pass per batch.
        """
        gradients = RowBuffer()
        data = inputs if labels is None else (inputs, labels)
        for raw, known in Batches(data, self.encode, self.batch_size, label=self.reader.label):
            part = self.embed(raw)
            moving = perturbable(part).detach().requires_grad_()
            with torch.enable_grad():
                logits, features = self._forward(replaced(part, moving), self.layers)
                rows = {name: row.cpu() for name, row in features.items()}
                trace = Trace(logits.cpu(), rows, known, outputs=LOGITS)
                total = objective(trace).sum()
                gradient = _gradient(total, moving)
            if gradient is None:
                raise GradientError(
                    f"expected a network with gradients, got {type(self.module).__name__}, through which "
                    "none pass, as with quantised layers; use the module before quantisation, or a method "
                    "that needs only logits and features"
                )
            gradients.add(gradient)
        return gradients.tensor()

    def dropout_logits(self, inputs: Inputs, passes: int, seed: int) -> Tensor:
        """Logits (passes, N, classes) of as many thinned networks, each one dropout mask from `seed`."""
        results = []
        with torch.no_grad():
            for number in range(passes):
                logits = RowBuffer()
                for part, _ in Batches(inputs, self.encode, self.batch_size, allow_nonfinite=True):
                    # Seeded per pass, not per batch: every batch meets the same thinned network.
                    with thinned(self.module, seed * 10_007 + number):
                        logits.add(self._forward(self.embed(part), layers=())[0])
                results.append(logits.tensor())
        return torch.stack(results)

    def encode(self, data: Any) -> Inputs:
        """Data as tensors; subclasses override it (text to token ids)."""
        return encoded(data)

    def embed(self, inputs: Inputs) -> Inputs:
        """Inputs in a form that can be differentiated: pixels divided by `scale`; subclasses override it
        (token ids to embeddings)."""
        return inputs if self.scale is None else scaled(inputs, self.scale)

    @property
    def outputs(self) -> str | None:
        """What its outputs are read as, stated or recognised; None until rows have shown it."""
        return self.reader.kind

    def read_as(self, outputs: str) -> None:
        """Read outputs as a file says that they were read when it was saved; `load` calls it."""
        self.reader.read_as(outputs)

    @property
    def embeds(self) -> bool:
        """Whether inputs change their form before they can be differentiated."""
        return type(self).embed is not Network.embed

    def graph(self, example: Inputs, layers: Sequence[str]) -> NetworkGraph:
        """The forward pass as an ONNX graph for inputs with the shape and type of `example`."""
        return traced_network(self, example, layers)

    def in_single_precision(self) -> "Network":
        """The same network with its weights in single precision, in a copy; itself if none are in half."""
        module = uncompiled(self.module)
        if not any(tensor.dtype in HALF for tensor in (*module.parameters(), *module.buffers())):
            return self
        single = copy(self)
        try:
            single.module = deepcopy(module).float()
        except (RuntimeError, TypeError) as error:
            raise InputError(
                f"expected a module that can be copied to single precision, got {type(module).__name__} "
                f"({error}); pass assay.Network(module.float())"
            ) from error
        return single

    @property
    def fingerprint(self) -> str:
        """A hash of weights, buffers, architecture and pooling, by which fitted monitors and histograms
        recognise their network. It does not depend on device, compilation or the layers watched."""
        model = self._model_identity()
        if model is None and self.identity is None:
            raise InputError(
                f"expected a network with weights, by which files and counts recognise it, got {self!r} "
                'without any; name it with identity="forest-2026-11", and change the name with the model'
            )
        return digest(model, self.identity, self._settings())

    def _model_identity(self) -> str | None:
        """A hash that identifies the model; None if it has nothing to hash."""
        return module_identity(self.module)

    def _settings(self) -> dict[str, Any]:
        """Settings that logits and features also depend on; what outputs are, only where it was stated."""
        stated = {
            "outputs": self.reader.stated,
            "output": self.output,
            "label": self.reader.label,
            "scale": self.scale,
        }
        return {"pool": named_pool(self.pool)} | {
            name: value for name, value in stated.items() if value is not None
        }

    def _with_layers(self, layers: tuple[str, ...]) -> "Network":
        wider = copy(self)
        wider.layers = layers
        wider._check_layers()
        return wider

    def __repr__(self) -> str:
        return f"Network({type(self.module).__name__}, layers={self.layers})"

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits and pooled features of one batch, on the module's device."""
        module = uncompiled(self.module)
        parts = modules_of(module)  # for every batch: the module may change in between
        weight = _first_weight(parts)
        inputs = placed(inputs, weight.device, weight.dtype)
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        row = partial(self._row, mask)
        with (
            evaluating(parts),
            as_written(parts),
            listening(module, layers, parts, self._classes, row) as taps,
        ):
            output = self._run(inputs, taps.run)
        count = length(inputs)
        scores = chosen_output(output, self.output, count, self._name)
        logits = self.reader.logits(scores, count)
        self._classes = scores.shape[1] if scores.ndim > 1 else 1
        features = taps.features(layers, self._classes)
        if missing := [name for name in layers if name not in features]:
            raise silence(missing[0], module, partial(self._run, inputs, module))
        return logits, features

    def _run(self, inputs: Inputs, run: Callable[..., Any] | None = None) -> Any:
        """What the module returns, or what `run` does in its place; subclasses override it."""
        return output_of(self.module, inputs, self.form, run)

    def _row(self, mask: Tensor | None, name: str, output: Tensor, channels_first: bool) -> Tensor:
        """One row of features per input from a layer's output."""
        return pooled(output, self._pool_of(name), mask, channels_first).float()

    @property
    def _name(self) -> str:
        """For messages: what the user knows the network by."""
        return type(self.module).__name__

    def _pool_of(self, name: str) -> Pool | None:
        return self.pool.get(name) if isinstance(self.pool, Mapping) else self.pool

    def _check_layers(self) -> None:
        check_layers(uncompiled(self.module), self.layers)


def _first_weight(parts: Iterable[nn.Module]) -> Tensor:
    """Inputs are moved to its device and precision. `Module.parameters()` would be too slow for single
    inputs."""
    for part in parts:
        for weight in part._parameters.values():
            if weight is not None and weight.is_floating_point():
                return weight
    return torch.empty(0)


def _gradient(total: Tensor, moving: Tensor) -> Tensor | None:
    """d total / d moving; None if none flows from one to the other."""
    if not total.requires_grad:
        return None
    found: tuple[Tensor | None, ...] = torch.autograd.grad(total, moving, allow_unused=True)
    return found[0]


def _trace(gathered: Mapping[tuple[str, str], RowBuffer], kept: Inputs | None) -> Trace:
    parts: dict[str, dict[str, Tensor]] = {"logits": {}, "features": {}, "labels": {}, "inputs": {}}
    for (part, name), buffer in gathered.items():
        parts[part][name] = buffer.tensor()
    inputs: Inputs | None = parts["inputs"] or kept
    return Trace(
        parts["logits"][""],
        parts["features"],
        parts["labels"].get(""),
        inputs[""] if isinstance(inputs, Mapping) and "" in inputs else inputs,
        outputs=LOGITS,
    )
