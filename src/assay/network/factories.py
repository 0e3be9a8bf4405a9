"""Networks that are no torch modules of their own: Hugging Face models, ONNX files, Python functions."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from assay.network.taps import PENULTIMATE

if TYPE_CHECKING:
    from assay.network.network import Network


class NetworkFactories:
    """The `Network.from_...`; each loads its adapter, and what that needs, when it is called.

    `options` are those of the adapter: `batch_size`, `outputs`, `output`, `label`, `ignore_index` and, where
    it has them, `pool` and `rows`.
    """

    @staticmethod
    def from_huggingface(
        model: nn.Module,
        tokenizer: Any,
        layers: str | Sequence[str] = PENULTIMATE,
        max_length: int = 128,
        *,
        batch_size: int = 32,
        **options: Any,
    ) -> "Network":
        """A sequence classifier of the transformers library, which takes texts: see `HuggingFaceNetwork`."""
        from assay.network.huggingface import HuggingFaceNetwork

        return HuggingFaceNetwork(
            model, tokenizer, max_length=max_length, layers=layers, batch_size=batch_size, **options
        )

    @staticmethod
    def from_onnx(
        path: str | PathLike[str], layers: str | Sequence[str] = PENULTIMATE, **options: Any
    ) -> "Network":
        """An ONNX file as a black box without gradients: see `OnnxNetwork`."""
        from assay.network.onnx import OnnxNetwork

        return OnnxNetwork(path, layers, **options)

    @staticmethod
    def from_function(function: Callable[..., Any], identity: str | None = None, **options: Any) -> "Network":
        """A function of arrays, such as the `predict_proba` of a forest: see `FunctionNetwork`."""
        from assay.network.function import FunctionNetwork

        return FunctionNetwork(function, identity, **options)
