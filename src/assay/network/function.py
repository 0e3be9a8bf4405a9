"""Python functions as networks: any `predict_proba`, a black box without layers, weights or gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.network.chosen_output import chosen_output
from assay.network.gathered_rows import BatchRows
from assay.network.graph import NetworkGraph
from assay.network.inputs import each, length
from assay.network.network import Network
from assay.outputs import PROBABILITIES
from assay.trace import Inputs


class FunctionNetwork(Network):
    """A classifier that is a Python function, built by `Network.from_function`.

    The function takes a NumPy array (N, ...), or one array per name if inputs are a dict, and returns an
    array or a tensor (N, classes): logits, or probabilities, whose logarithms become the logits. A
    probability of zero counts as the smallest normal number of single precision. Rows that are not finite
    reach the function as zeros; their logits are NaN. There are no layers, so only monitors that read logits
    or inputs work.

    A function has no weights to identify it by, so saving anything fitted on it needs `identity`, a name for
    the model.
    """

    module: "ArrayFunction"

    def __init__(
        self,
        function: Callable[..., Any],
        identity: str | None = None,
        *,
        outputs: str | None = PROBABILITIES,
        **options: Any,
    ) -> None:
        """`options` are those of `Network`: batch_size, output, label, rows and ignore_index."""
        if not callable(function) or isinstance(function, nn.Module):
            raise InputError(
                f"expected a function of arrays, got {type(function).__name__}; pass predict_proba itself, "
                "and a torch module to assay.Network(module)"
            )
        super().__init__(ArrayFunction(function), (), identity=identity, outputs=outputs, **options)

    def graph(self, example: Inputs, layers: Sequence[str]) -> NetworkGraph:
        raise InputError(
            f"expected a torch module or an ONNX file to export, got {self!r}, a Python function; export the "
            "model with its own library and guard Network.from_onnx(path)"
        )

    def _check_layers(self) -> None:
        if self.layers:
            raise InputError(
                f"expected no layers to watch, since {self!r} has no layers, got {list(self.layers)}; use a "
                "monitor that reads logits or inputs"
            )

    def __repr__(self) -> str:
        return f"Network.from_function({self._name}, identity={self.identity!r})"

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        finite = _finite_rows(inputs)
        answer = self._checked_answer(self._run(_without_strange_numbers(inputs)), len(finite))
        logits = self.reader.logits(answer, len(finite))
        return logits.masked_fill(~finite[:, None], torch.nan), {}

    def _batch_rows(self, inputs: Inputs, layers: Sequence[str]) -> BatchRows:
        found = super()._batch_rows(inputs, layers)
        if found.source is None:
            return found
        strange = ~_finite_rows(inputs)[found.source]
        return replace(found, logits=found.logits.masked_fill(strange[:, None], torch.nan))

    def _outputs(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Any, dict[str, Tensor]]:
        answer = self._run(_without_strange_numbers(inputs))
        alone = self.rows is not None and self.rows.of_scores
        return self._read_by_rows(_tensors(answer) if alone else answer, length(inputs)), {}

    def _checked_answer(self, answer: Any, count: int) -> Tensor:
        """The class scores in what the function returned, all of them numbers."""
        try:
            values = chosen_output(_tensors(answer), self.output, count, self._name)
        except (TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"expected {self._name} to return an array of shape ({count}, classes), got "
                f"{type(answer).__name__} ({error}); return one row per input"
            ) from error
        if torch.isnan(values).any():
            raise InputError(
                f"expected {self._name} to return one row of numbers per input (probabilities that add up to "
                "1, or logits), got NaN; correct the function"
            )
        return values

    @property
    def _name(self) -> str:
        function = self.module.function
        return str(getattr(function, "__qualname__", type(function).__qualname__))


class ArrayFunction(nn.Module):
    """Calls the function on arrays; the module inside a `FunctionNetwork`."""

    differentiable = False

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor, **named: Tensor) -> Any:
        arrays = {name: tensor.detach().numpy() for name, tensor in named.items()}
        return self.function(*(tensor.detach().numpy() for tensor in tensors), **arrays)


def _tensors(answer: Any) -> Any:
    """The answer as a tensor, or, of a dict or of several tables, every part as one."""
    if isinstance(answer, Mapping):
        return {name: _tensors(part) for name, part in answer.items()}
    if isinstance(answer, list | tuple) and all(getattr(part, "ndim", 0) == 2 for part in answer):
        return [_tensors(part) for part in answer]
    tensor = answer if isinstance(answer, Tensor) else torch.as_tensor(np.asarray(answer))
    return tensor.detach().cpu()


def _without_strange_numbers(inputs: Inputs) -> Inputs:
    """On the CPU, with zeros for NaN and infinity."""
    return each(inputs, lambda tensor: tensor.cpu().nan_to_num(0.0, 0.0, 0.0))


def _finite_rows(inputs: Inputs) -> Tensor:
    tensors = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    flags = [torch.isfinite(tensor).flatten(1).all(dim=1) for tensor in tensors]
    return torch.stack(flags).all(dim=0).cpu()
