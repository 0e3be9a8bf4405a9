"""Networks that are no torch modules of their own: Hugging Face models, ONNX files, Python functions."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from assay.labels import IGNORED
from assay.network.chosen_output import Choice
from assay.network.feature_pooling import Pool
from assay.network.prediction_rows import PredictionRows, RowFunction
from assay.network.taps import PENULTIMATE

if TYPE_CHECKING:
    from assay.network.network import Network


class NetworkFactories:
    """The `Network.from_...`; each loads its adapter, and what that needs, when it is called."""

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
        ignore_index: int = IGNORED,
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
            ignore_index=ignore_index,
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
        rows: str | RowFunction | PredictionRows | None = None,
        ignore_index: int = IGNORED,
    ) -> "Network":
        """An ONNX file as a black box without gradients: see `OnnxNetwork`."""
        from assay.network.onnx import OnnxNetwork

        options = {"pool": pool, "batch_size": batch_size, "ignore_index": ignore_index}
        return OnnxNetwork(
            path, layers, outputs=outputs, output=output, label=label, logits=logits, rows=rows, **options
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
        rows: str | RowFunction | PredictionRows | None = None,
        ignore_index: int = IGNORED,
    ) -> "Network":
        """A function of arrays, such as the `predict_proba` of a forest: see `FunctionNetwork`."""
        from assay.network.function import FunctionNetwork

        options = {"batch_size": batch_size, "label": label, "rows": rows, "ignore_index": ignore_index}
        return FunctionNetwork(function, identity, outputs=outputs, output=output, **options)
