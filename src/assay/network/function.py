"""Python functions as networks: any `predict_proba`, a black box without layers, weights or gradients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.network.graph import NetworkGraph
from assay.network.inputs import each
from assay.network.network import Network
from assay.trace import Inputs

OUTPUTS = ("probabilities", "logits")


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
        outputs: str = "probabilities",
        batch_size: int = 256,
    ) -> None:
        if not callable(function) or isinstance(function, nn.Module):
            raise InputError(
                f"expected a function of arrays, got {type(function).__name__}; pass predict_proba itself, "
                "and a torch module to assay.Network(module)"
            )
        if outputs not in OUTPUTS:
            raise InputError(f"expected outputs to be one of {list(OUTPUTS)}, got {outputs!r}")
        super().__init__(ArrayFunction(function), (), batch_size=batch_size, identity=identity)
        self.outputs = outputs

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
        function = self.module.function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"Network.from_function({name}, identity={self.identity!r})"

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        finite = _finite_rows(inputs)
        finite_inputs = each(inputs, lambda tensor: tensor.cpu().nan_to_num(0.0, 0.0, 0.0))
        answer = self._checked_answer(self._run(finite_inputs), len(finite))
        logits = self._log_probabilities(answer) if self.outputs == "probabilities" else answer
        return logits.float().masked_fill(~finite[:, None], torch.nan), {}

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"outputs": self.outputs}

    def _checked_answer(self, answer: Any, count: int) -> Tensor:
        try:
            values = torch.as_tensor(answer).detach().cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"expected {self!r} to return an array of shape ({count}, classes), got "
                f"{type(answer).__name__}; return one row per input"
            ) from error
        if values.ndim != 2 or values.shape[1] < 2 or len(values) != count:
            raise InputError(
                f"expected {self!r} to return shape ({count}, classes) with at least two classes, got "
                f"{tuple(values.shape)}; return one row of {self.outputs} per input"
            )
        return values.double()

    def _log_probabilities(self, probabilities: Tensor) -> Tensor:
        off = (probabilities.sum(dim=1) - 1).abs()
        if not (probabilities >= 0).all() or not (off < 1e-3).all():  # far above rounding errors
            raise InputError(
                f"expected {self!r} to return probabilities that add up to 1, got rows that do not; pass "
                'outputs="logits" if it returns logits'
            )
        return probabilities.clamp(min=torch.finfo(torch.float32).tiny).log()


class ArrayFunction(nn.Module):
    """Calls the function on arrays; the module inside a `FunctionNetwork`."""

    differentiable = False

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor, **named: Tensor) -> Any:
        arrays = {name: tensor.detach().numpy() for name, tensor in named.items()}
        return self.function(*(tensor.detach().numpy() for tensor in tensors), **arrays)


def _finite_rows(inputs: Inputs) -> Tensor:
    tensors = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    flags = [torch.isfinite(tensor).flatten(1).all(dim=1) for tensor in tensors]
    return torch.stack(flags).all(dim=0).cpu()
