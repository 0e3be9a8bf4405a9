"""Network: observe any classifier module."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.data.dataset_items import Columns, Transform
from assay.data.pieces import is_place
from assay.engine import progress
from assay.errors import InputError
from assay.identity import check_identity, digest, module_identity
from assay.labels import IGNORED, class_numbers
from assay.network.batches import Batches, encoded, first_weight, placed
from assay.network.buffers import owned
from assay.network.chosen_output import Choice, chosen_output
from assay.network.compiled import as_written, uncompiled
from assay.network.factories import NetworkFactories
from assay.network.feature_pooling import Pool, check_pool, named_pool, pooled
from assay.network.gathered_rows import BatchRows, GatheredRows
from assay.network.graph import NetworkGraph, traced_network
from assay.network.graph_modules import as_module
from assay.network.half_precision import module_in_single_precision
from assay.network.input_gradient import gradients_of
from assay.network.inputs import (
    ENCODED,
    Form,
    KeepInputs,
    each,
    form_of,
    length,
    scaled,
)
from assay.network.module_call import output_of
from assay.network.output_reader import OutputReader
from assay.network.prediction_rows import PredictionRows, RowFunction, prediction_rows
from assay.network.sharded_observation import observed_in_pieces, observed_to_folder
from assay.network.taps import PENULTIMATE, Row, evaluating, modules_of
from assay.network.thinned_logits import thinned_logits
from assay.network.watched_layers import check_layers, listening, silence
from assay.sharded_trace import ShardedTrace
from assay.trace import Inputs, Trace

Read = TypeVar("Read")


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

    `rows` says how a dense output becomes rows where an input has several predictions: "pixels" for maps of
    logits (N, classes, H, W), or `PixelRows` with a stride; a function for boxes, or `FunctionRows`. Rows
    whose label is `ignore_index` are left out wherever labels are read.

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
        rows: str | RowFunction | PredictionRows | None = None,
        ignore_index: int = IGNORED,
        scale: float | None = None,
    ) -> None:
        module = as_module(module)
        if batch_size < 1:
            raise InputError(f"expected a batch_size of at least 1, got {batch_size}")
        check_identity(identity)
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
        self.rows = prediction_rows(rows)
        self.ignore_index = ignore_index
        self.scale = None if scale is None else float(scale)
        self.form: Form = {}
        self._classes: int | None = None
        self._check_layers()

    def watching(self, layers: Sequence[str]) -> "Network":
        """The same network that also watches these layers; itself if it already does."""
        missing = [layer for layer in layers if layer not in self.layers]
        return self.watching_only((*self.layers, *missing)) if missing else self

    def watching_only(self, layers: Sequence[str]) -> "Network":
        """The same network that watches these layers and no others."""
        other = copy(self)
        other.layers = tuple(layers)
        other._check_layers()
        return other

    def __call__(self, inputs: Any) -> Tensor:
        """The logits, a row per prediction, differentiable with respect to the inputs."""
        return self._batch_rows(self.embed(self.encode(inputs)), layers=()).logits

    def observe(
        self,
        data: Any,
        keep_inputs: KeepInputs = False,
        *,
        batch_size: int | None = None,
        allow_nonfinite: bool = False,
        transform: Transform | None = None,
        columns: Columns | None = None,
        engine: str = "here",
        workers: int | None = None,
    ) -> Trace:
        """What the network does on `data`: (inputs, labels), inputs, a DataLoader, or what `stream` takes.

        It takes the time of the batched forward pass and the memory of the Trace and one batch. Inputs that
        came in one piece are kept without a copy; keep_inputs="encoded" keeps texts as token ids, not as
        embeddings. `transform` is called on the input of every item, such as a PIL image. `columns` names
        inputs and labels of a dataset of dicts, where they are not found.

        `engine` and `workers` say where it runs: here, in "processes" or on "ray". Data may be a place to
        read from: a Path, a list of Paths (no texts), a dataset of Ray.
        """
        size = batch_size or self.batch_size
        if engine != "here" or is_place(data):
            options: dict[str, Any] = {"batch_size": size, "allow_nonfinite": allow_nonfinite}
            options |= {"transform": transform, "columns": columns}
            return observed_in_pieces(self, data, keep_inputs, options, engine=engine, workers=workers)
        fits = allow_nonfinite and isinstance(data, Tensor) and data.ndim and 0 < len(data) <= size
        if fits and transform is None:
            return self._observe_at_once(data, keep_inputs)
        batches = self.batches(data, size, allow_nonfinite, transform=transform, columns=columns)
        kept = batches.whole if keep_inputs and not self._embedded(keep_inputs) else None
        gathered = GatheredRows()
        for inputs, rows in self._observed(progress(batches, "observing", len(batches)), keep_inputs):
            gathered.add(rows, inputs if keep_inputs and kept is None else None)
        return gathered.trace(kept, batches.ignored)

    def observe_to(
        self, folder: str | PathLike[str], data: Any, keep_inputs: KeepInputs = False, **options: Any
    ) -> ShardedTrace:
        """`observe` into a folder, a shard per file or per `shard_rows` inputs; memory is that of a shard.

        If it is stopped, the same call goes on from there; other data or another network is refused.
        `options` are those of `observe`, and `shard_rows`.
        """
        return observed_to_folder(self, folder, data, keep_inputs, **options)

    def _observe_at_once(self, data: Tensor, keep_inputs: KeepInputs) -> Trace:
        """`observe` for one batch, without what only many need: for a guarded call on a single input."""
        raw = self.encode(data)
        with torch.no_grad():
            inputs = self.embed(raw)
            rows = self._batch_rows(inputs, self.layers)
        self.form = self.form or form_of(raw)
        kept = each(inputs, owned) if self._embedded(keep_inputs) else raw
        return rows.on_its_own(kept if keep_inputs else None)

    def stream(self, data: Any, keep_inputs: KeepInputs = False, **options: Any) -> Iterator[Trace]:
        """A Trace per batch, each made when it is asked for, so that memory does not grow with the data.

        `data` is any iterable of batches (a generator, a list, a WebLoader), or of items with a label each,
        a dataset of Hugging Face as it is, or anything that `observe` takes; `options` are those of
        `observe`. Together the Traces are what `observe` gives: `Trace.concatenate(network.stream(data))`.
        `assay.monitors.fit_together` fits several monitors on one stream.
        """
        batches = self.batches(data, **options)
        counted = 0
        for inputs, rows in self._observed(batches, keep_inputs):
            gathered = GatheredRows()
            gathered.add(rows, inputs if keep_inputs else None)
            yield gathered.trace(ignored=batches.ignored - counted)
            counted = batches.ignored

    def gradient(self, inputs: Inputs, objective: Callable[[Trace], Tensor], labels: Any = None) -> Tensor:
        """d objective / d inputs, for the perturbable tensor of the inputs, input by input.

        `objective` takes the differentiable Trace of a batch (with its labels, where given) and returns one
        number per row, whose sum is differentiated. One forward and one backward pass per batch.
        """
        return gradients_of(self, inputs, objective, labels)

    def dropout_logits(self, inputs: Inputs, passes: int, seed: int) -> Tensor:
        """Logits (passes, N, classes) of as many thinned networks, each one dropout mask from `seed`."""
        return thinned_logits(self, inputs, passes, seed)

    def batches(
        self, data: Any, batch_size: int | None = None, allow_nonfinite: bool = False, **options: Any
    ) -> Batches:
        """The data as encoded batches, without the rows that are to be ignored; `options` as in `Batches`."""
        return Batches(
            data,
            self.encode,
            batch_size or self.batch_size,
            allow_nonfinite,
            label=self.reader.label,
            dense=self.rows is not None,
            ignore_index=self.ignore_index,
            **options,
        )

    def row_labels(self, known: Any, trace: Trace) -> Tensor:
        """A class number per row of the Trace of labelled inputs; rows to ignore have `ignore_index`."""
        return class_numbers(known) if self.rows is None else self.rows.labels(known, trace)

    def expect_one_row_per_input(self, task: str) -> None:
        """A clear error where an input has several predictions, which this task does not know."""
        if self.rows is not None:
            raise InputError(
                f"expected a network with one prediction per input for {task}, got {self!r} with "
                f"{self.rows!r}; use monitors, Guard and run_benchmark, which judge every prediction"
            )

    def encode(self, data: Any) -> Inputs:
        """Data as tensors; subclasses override it (text to token ids)."""
        return encoded(data)

    def embed(self, inputs: Inputs) -> Inputs:
        """Inputs that have gradients: pixels over `scale`; subclasses override it (tokens: embeddings)."""
        return inputs if self.scale is None else scaled(inputs, self.scale)

    @property
    def outputs(self) -> str | None:
        """What the network returns, as stated or recognised; None until rows have shown it."""
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
        module = module_in_single_precision(uncompiled(self.module))
        if module is None:
            return self
        single = copy(self)
        single.module = module
        return single

    @property
    def fingerprint(self) -> str:
        """A hash of weights, buffers, layers with their settings, and pooling, by which fitted monitors and
        histograms recognise their network. It does not depend on device, compilation or the layers watched.
        """
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
        stated: dict[str, Any] = {"outputs": self.reader.stated, "output": self.output}
        stated |= {"label": self.reader.label, "scale": self.scale}
        known = {name: value for name, value in stated.items() if value is not None}
        return {"pool": named_pool(self.pool)} | known | ({} if self.rows is None else self.rows.stated())

    def __repr__(self) -> str:
        return f"Network({type(self.module).__name__}, layers={self.layers})"

    def _observed(
        self, batches: Iterable[tuple[Inputs, Any]], keep_inputs: KeepInputs
    ) -> Iterator[tuple[Inputs, BatchRows]]:
        """The inputs of every batch, as a Trace keeps them, and what the network did on them."""
        for raw, known in batches:
            inputs = self.embed(raw)
            with torch.no_grad():  # not around the yield, where the caller's own code runs
                rows = self._batch_rows(inputs, self.layers).labelled(known, self.rows, self.ignore_index)
            self.form = self.form or form_of(raw)
            yield inputs if self._embedded(keep_inputs) else raw, rows

    def _embedded(self, keep_inputs: KeepInputs) -> bool:
        """Whether a Trace keeps inputs in the form that can be differentiated."""
        return self.embeds and keep_inputs != ENCODED

    def _batch_rows(self, inputs: Inputs, layers: Sequence[str]) -> BatchRows:
        """What the network does on one batch, on the module's device."""
        count = length(inputs)
        if self.rows is None:
            return BatchRows(*self._forward(inputs, layers), input_count=count)
        found = self.rows.trace(*self._outputs(inputs, layers), count)
        if found.logits.shape[1] == 1 and self.reader.stated is None:
            raise InputError(
                f"expected scores of at least two classes per prediction from {self._name}, got one number; "
                'pass outputs="logits" or "probabilities" if it answers yes or no (regression is not judged)'
            )
        logits = self.reader.logits(found.logits, len(found))
        return BatchRows(logits, found.features, source=found.source, input_count=count)

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits and pooled features of one batch, on the module's device."""
        mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
        count = length(inputs)

        def read(output: Any) -> tuple[Tensor, int]:
            scores = chosen_output(output, self.output, count, self._name)
            logits = self.reader.logits(scores, count)
            return logits, scores.shape[1] if scores.ndim > 1 else 1

        return self._run_watched(inputs, layers, partial(self._row, mask), read)

    def _outputs(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Any, dict[str, Tensor]]:
        """What `rows` reads of the module, and the outputs of the layers: as they are or, if `pool` is a
        function, as it has them."""
        count = length(inputs)

        def read(output: Any) -> tuple[Any, int]:
            found = self._read_by_rows(output, count)
            return found, found.shape[1] if isinstance(found, Tensor) and found.ndim > 1 else 0

        return self._run_watched(inputs, layers, self._unpooled, read)

    def _read_by_rows(self, output: Any, count: int) -> Any:
        """The class scores alone, where `rows` reads no more than that."""
        alone = self.rows is not None and self.rows.of_scores
        return chosen_output(output, self.output, count, self._name) if alone else output

    def _run_watched(
        self, inputs: Inputs, layers: Sequence[str], row: Row, read: Callable[[Any], tuple[Read, int]]
    ) -> tuple[Read, dict[str, Tensor]]:
        """What `read` makes of the module's output, which also counts its classes, and what `row` makes of
        the layers' outputs."""
        module = uncompiled(self.module)
        parts = modules_of(module)  # for every batch: the module may change in between
        weight = first_weight(parts)
        inputs = placed(inputs, weight.device, weight.dtype)
        heard = listening(module, layers, parts, self._classes, row)
        with evaluating(parts), as_written(parts), heard as taps:
            output = self._run(inputs, taps.run)
        found, self._classes = read(output)
        features = taps.features(layers, self._classes)
        if missing := [name for name in layers if name not in features]:
            raise silence(missing[0], module, partial(self._run, inputs, module))
        return found, features

    def _unpooled(self, name: str, output: Tensor, _: bool) -> Tensor:
        pool = self._pool_of(name)
        return pool(output) if callable(pool) else output

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
