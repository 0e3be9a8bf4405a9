"""Network: observe any classifier module."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.engine import progress
from assay.errors import AssayError, GradientError, InputError
from assay.identity import COMPILED, digest, module_identity
from assay.labels import check_labels
from assay.network.batches import Batches, encoded, placed
from assay.network.buffers import RowBuffer
from assay.network.chosen_output import Choice, chosen_output
from assay.network.feature_pooling import Pool, check_pool, named_pool, pooled
from assay.network.graph import NetworkGraph, traced_network
from assay.network.inputs import Form, described, form_of, length, perturbable, replaced, shapes
from assay.network.output_reader import OutputReader
from assay.network.taps import PENULTIMATE, evaluating, layer_outputs, modules_of, thinned
from assay.outputs import LOGITS
from assay.trace import Inputs, Trace

ENCODED: Literal["encoded"] = "encoded"
"""Inputs kept as the network encodes them: texts as token ids, without embeddings."""


class Network:
    """A classifier and the layers to watch.

    `layers` are module names, or "penultimate": the input of the last Linear that runs in the forward pass.
    `pool` overrides how a layer's output becomes one row per input (`assay.network.feature_pooling`): for all
    layers, or a dict for some. Always runs in evaluation mode and leaves the module as it was.

    A module may return one tensor, or several in a tuple, dict or object: `output` is the name or position of
    the one with the class scores, by default the one called "logits", or the only one it can be. `outputs`
    says what they are: "logits", "probabilities" or "log-probabilities"; by default the first rows show it,
    and it stays so. One column is a network with two classes. `label` is for networks that answer several
    yes-or-no questions: the number of the one to watch.

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
    ) -> None:
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
        check_pool(pool)
        self.module = module
        self.layers = (layers,) if isinstance(layers, str) else tuple(layers)
        self.pool = pool
        self.batch_size = batch_size
        self.identity = identity
        self.output = output
        self.reader = OutputReader(self._name, outputs, label)
        self.form: Form = {}
        self._check_layers()

    @staticmethod
    def from_huggingface(
        model: nn.Module,
        tokenizer: Any,
        layers: str | Sequence[str] = PENULTIMATE,
        max_length: int = 128,
        *,
        pool: Pool | Mapping[str, Pool] | None = None,
        batch_size: int = 32,
        outputs: str | None = None,
        output: Choice = None,
        label: int | None = None,
    ) -> "Network":
        """A sequence classifier of the transformers library, which takes texts: see `HuggingFaceNetwork`."""
        from assay.network.huggingface import HuggingFaceNetwork

        return HuggingFaceNetwork(
            model,
            tokenizer,
            max_length=max_length,
            layers=layers,
            pool=pool,
            batch_size=batch_size,
            outputs=outputs,
            output=output,
            label=label,
        )

    @staticmethod
    def from_onnx(
        path: str | PathLike[str],
        layers: str | Sequence[str] = PENULTIMATE,
        *,
        pool: Pool | Mapping[str, Pool] | None = None,
        batch_size: int = 256,
        outputs: str | None = None,
        output: Choice = None,
        label: int | None = None,
        logits: str | None = None,
    ) -> "Network":
        """An ONNX file as a black box without gradients: see `OnnxNetwork`."""
        from assay.network.onnx import OnnxNetwork

        return OnnxNetwork(
            path,
            layers,
            pool=pool,
            batch_size=batch_size,
            outputs=outputs,
            output=output,
            label=label,
            logits=logits,
        )

    @staticmethod
    def from_function(
        function: Callable[..., Any],
        identity: str | None = None,
        *,
        batch_size: int = 256,
        outputs: str | None = "probabilities",
        output: Choice = None,
        label: int | None = None,
    ) -> "Network":
        """A function of arrays, such as the `predict_proba` of a forest: see `FunctionNetwork`."""
        from assay.network.function import FunctionNetwork

        return FunctionNetwork(
            function, identity, batch_size=batch_size, outputs=outputs, output=output, label=label
        )

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
        keep_inputs: bool | Literal["encoded"] = False,
        *,
        batch_size: int | None = None,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """What the network does on `data`: a DataLoader, a Dataset, (inputs, labels), or inputs.

        Inputs are kept in the form that can be differentiated; with "encoded" texts are kept as token ids
        without their embeddings, which take a thousand times the memory.

        It takes the time of the batched forward pass and the memory of the Trace and one batch. Inputs that
        came in one piece are kept without a copy.
        """
        batches = Batches(
            data, self.encode, batch_size or self.batch_size, allow_nonfinite, self.reader.label
        )
        embedded = self.embeds and keep_inputs != ENCODED
        kept = batches.whole if keep_inputs and not embedded else None
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
                    part = inputs if embedded else raw
                    named = {"": part} if isinstance(part, Tensor) else part
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
                (gradient,) = torch.autograd.grad(objective(trace).sum(), moving)
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
        """Inputs in a form that can be differentiated; subclasses override it (token ids to embeddings)."""
        return inputs

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
        stated = {"outputs": self.reader.stated, "output": self.output, "label": self.reader.label}
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
        parts = modules_of(self.module)  # for every batch: the module may change in between
        weight = _first_weight(parts)
        inputs = placed(inputs, weight.device, weight.dtype)
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        row = partial(self._row, mask)
        with evaluating(parts), layer_outputs(self._plain_module, layers, parts, row) as features:
            output = self._run(inputs)
        self._check_layers_ran(features, layers)
        rows = length(inputs)
        logits = self.reader.logits(chosen_output(output, self.output, rows, self._name), rows)
        return logits, {name: features[name] for name in layers}

    def _run(self, inputs: Inputs) -> Any:
        if _requires_grad(inputs) and not getattr(self.module, "differentiable", True):
            raise GradientError(
                f"expected a network with gradients, got the black box {type(self.module).__name__}; use a "
                "method that needs only logits and features, or the original torch module"
            )
        try:
            return self.module(inputs) if isinstance(inputs, Tensor) else self.module(**inputs)
        except (AssayError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if isinstance(inputs, Tensor) and not inputs.is_floating_point():
                raise InputError(
                    f"expected floating-point inputs as in training (images usually in [0, 1]), "
                    f"got {shapes(inputs)}; convert, for example inputs.float() / 255"
                ) from error
            if self._ran_before(inputs):  # so the fault is not in the inputs
                error.add_note(f"assay: in the forward pass of {type(self.module).__name__}")
                raise
            like = f" such as {described(self.form)}" if self.form else ""
            reason = " ".join(str(error).split())
            raise InputError(
                f"expected inputs that {type(self.module).__name__} takes{like}, got "
                f"{described(form_of(inputs))}, on which its forward pass fails ({reason}); pass inputs of "
                "the shape it was trained on"
            ) from error

    def _ran_before(self, inputs: Inputs) -> bool:
        """Whether inputs of this shape have gone through the module already."""
        given = form_of(inputs)
        return bool(self.form) and all(
            name in given and shape == given[name][0] for name, (shape, _) in self.form.items()
        )

    def _row(self, mask: Tensor | None, name: str, output: Tensor) -> Tensor:
        """One row of features per input from a layer's output."""
        layer = None if name == PENULTIMATE else self._plain_module.get_submodule(name)
        return pooled(output, layer, self._pool_of(name), mask).float()

    @property
    def _name(self) -> str:
        """For messages: what the user knows the network by."""
        return type(self.module).__name__

    def _pool_of(self, name: str) -> Pool | None:
        return self.pool.get(name) if isinstance(self.pool, Mapping) else self.pool

    @property
    def _plain_module(self) -> nn.Module:
        """The module with its author's layer names: `torch.compile` adds a prefix to them."""
        plain: nn.Module = getattr(self.module, COMPILED, self.module)
        return plain

    def _check_layers(self) -> None:
        known = [name for name, _ in self._plain_module.named_modules() if name]
        if unknown := [name for name in self.layers if name != PENULTIMATE and name not in known]:
            raise InputError(
                f"expected layers of {type(self.module).__name__}, got {unknown}; "
                f"choose from {[PENULTIMATE, *known]}"
            )

    def _check_layers_ran(self, features: Mapping[str, Tensor], layers: Sequence[str]) -> None:
        for name in layers:
            if name not in features:
                known = [part for part, _ in self._plain_module.named_modules() if part]
                what = "a Linear layer" if name == PENULTIMATE else f"layer {name!r}"
                raise InputError(
                    f"expected {what} to run in the forward pass of {type(self.module).__name__}, but none "
                    f"did; choose layers from {known}"
                )


def _first_weight(parts: Iterable[nn.Module]) -> Tensor:
    """Inputs are moved to its device and precision. `Module.parameters()` would be too slow for single
    inputs."""
    for part in parts:
        for weight in part._parameters.values():
            if weight is not None and weight.is_floating_point():
                return weight
    return torch.empty(0)


def _requires_grad(inputs: Inputs) -> bool:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


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
