"""Hugging Face sequence classifiers: text in, embeddings as the differentiable input."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import get_ident
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.extras import expect_installed
from assay.network.batches import encoded
from assay.network.feature_pooling import Pool
from assay.network.graph import NetworkGraph, traced_network
from assay.network.network import Network
from assay.trace import Inputs

_TOKENS, _MASK, _EMBEDDINGS = "input_ids", "attention_mask", "inputs_embeds"
_CHUNK = 1024  # texts tokenised at once: the Python objects this makes are many times the size of the ids


class HuggingFaceNetwork(Network):
    """A sequence classifier of the transformers library, built by `Network.from_huggingface`.

    Takes a list of str, (list of str, labels), a DataLoader of either, or tokenised dicts. A text is cut at
    `max_length` tokens, or at what the model can take. Rows are padded on the right to that one width, so
    that rows of different batches fit into one Trace; the model itself sees each batch without the columns
    that are padding in every row.

    Gradients are taken with respect to `inputs_embeds`, the output of the model's embedding layer. The model
    runs on the token ids with that output replaced: from embeddings alone, a decoder cannot tell where a row
    ends and takes its prediction from the padding.

    Of a sequence layer, the features are the first token ([CLS]) of an encoder, and the last token of a
    decoder that is not padding; `pool` overrides this. A decoder is a model that transformers lists with
    causal language models and not with masked ones, or whose config says `is_decoder`.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_length: int,
        **options: Any,
    ) -> None:
        """`options` are those of `Network`: layers, pool and batch_size."""
        expect_installed("transformers")
        config = getattr(model, "config", None)
        if config is None or not hasattr(model, "get_input_embeddings"):
            raise InputError(
                f"expected a model of the transformers library, got {type(model).__name__}; "
                "for other modules use assay.Network(module)"
            )
        if getattr(config, "is_encoder_decoder", False):
            raise InputError(
                f"expected an encoder or a decoder, got the encoder-decoder {type(model).__name__}; "
                "wrap its encoder and head in a module for assay.Network"
            )
        self.decoder = _is_decoder(config)
        super().__init__(model, **options)
        self.tokenizer = tokenizer
        self.padding = _padding_token(model, tokenizer, self.decoder)
        self.max_length = _usable_length(config, tokenizer, max_length)

    def encode(self, data: Any) -> Inputs:
        """Token ids and attention mask of texts; data already tokenised are unchanged."""
        if isinstance(data, Mapping):
            if len(data) == 1 and not {_TOKENS, _EMBEDDINGS} & set(data):
                return self.encode(next(iter(data.values())))  # rows such as {"text": ...}
            return self._with_mask(encoded(data))
        if isinstance(data, str) or not _is_texts(data):
            raise InputError(
                f"expected a list of texts or a dict with {_TOKENS}, got {type(data).__name__}; "
                "pass a list of str, even for a single text"
            )
        return self._tokenise(list(data))

    def embed(self, inputs: Inputs) -> Inputs:
        """Inputs with the embeddings of their tokens added if missing, detached from the weights."""
        if isinstance(inputs, Tensor) or _EMBEDDINGS in inputs:
            return inputs
        layer = self.module.get_input_embeddings()  # type: ignore[operator]
        return {**inputs, _EMBEDDINGS: layer(inputs[_TOKENS].to(layer.weight.device)).detach()}

    def _with_mask(self, inputs: Inputs) -> Inputs:
        """Tokens or embeddings with an attention mask, of ones if there was none."""
        named = inputs if isinstance(inputs, Mapping) else {}
        if not (rows := [named[name] for name in (_TOKENS, _EMBEDDINGS) if name in named]):
            raise InputError(
                f"expected a dict with {_TOKENS} or {_EMBEDDINGS}, got {sorted(named)}; pass a list of texts"
            )
        mask = named.get(_MASK, torch.ones(rows[0].shape[:2], dtype=torch.int32, device=rows[0].device))
        if self.decoder and _TOKENS not in named and not mask.all():
            raise InputError(
                f"expected {_TOKENS} beside padded {_EMBEDDINGS}, got none; without them a decoder takes its "
                "prediction from the padding"
            )
        return {**named, _MASK: mask}

    def _tokenise(self, texts: list[str]) -> Inputs:
        columns: dict[str, npt.NDArray[np.int32]] = {}
        mask = np.zeros((len(texts), self.max_length), np.bool_)
        for start in range(0, len(texts), _CHUNK):
            part = slice(start, start + _CHUNK)
            tokens = self.tokenizer(texts[part], truncation=True, max_length=self.max_length)
            lengths = np.fromiter(map(len, tokens[_TOKENS]), np.int64)
            mask[part] = np.arange(self.max_length) < lengths[:, None]
            for name in tokens.keys() - {_MASK}:
                filler = self.padding if name == _TOKENS else 0
                rows = columns.setdefault(name, np.full(mask.shape, filler, np.int32))
                rows[part][mask[part]] = np.fromiter(chain.from_iterable(tokens[name]), np.int32)
        if texts and not mask[:, 0].all():
            raise InputError(
                f"expected texts with at least one token, got none in text {int(np.argmin(mask[:, 0]))} "
                "(counted from 0); leave empty texts out"
            )
        columns[_MASK] = mask.astype(np.int32)
        return {name: torch.from_numpy(rows) for name, rows in columns.items()}

    def _forward(self, inputs: Inputs, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        return super()._forward(_trimmed(inputs), layers)

    def graph(self, example: Inputs, layers: Sequence[str]) -> NetworkGraph:
        """The graph takes token ids and mask, at the width that `encode` pads to."""
        assert isinstance(example, Mapping)
        # If the mask were all ones, models would skip the steps that use it, and so would the graph.
        mask = torch.ones_like(example[_MASK]).index_fill(1, torch.tensor([example[_MASK].shape[1] - 1]), 0)
        return traced_network(self, {**example, _MASK: mask}, layers, forward=super()._forward)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"max_length": self.max_length}

    def _pool_of(self, name: str) -> Pool:
        return super()._pool_of(name) or ("last" if self.decoder else "first")

    def _run(self, inputs: Inputs, run: Callable[..., Any] | None = None) -> Any:
        if isinstance(inputs, Tensor) or not {_TOKENS, _EMBEDDINGS} <= set(inputs):
            return super()._run(inputs, run)
        rest = {name: tensor for name, tensor in inputs.items() if name != _EMBEDDINGS}
        layer = self.module.get_input_embeddings()  # type: ignore[operator]
        with _output_replaced(layer, inputs[_EMBEDDINGS]):
            return super()._run(rest, run)


@contextmanager
def _output_replaced(layer: nn.Module, output: Tensor) -> Iterator[None]:
    """`layer` returns `output` to this thread; the hook runs first, so that all others see it."""
    caller = get_ident()

    def replace(_: nn.Module, __: Any, own: Tensor) -> Tensor:
        return output if get_ident() == caller else own

    handle = layer.register_forward_hook(replace, prepend=True)
    try:
        yield
    finally:
        handle.remove()


def _trimmed(inputs: Inputs) -> Inputs:
    """Without the columns that are padding in every row; integers as int64, which models expect."""
    if isinstance(inputs, Tensor) or _MASK not in inputs:
        return inputs
    used = inputs[_MASK].bool().any(dim=0).nonzero()
    width = inputs[_MASK].shape[1]
    part = slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0, width)

    def narrow(tensor: Tensor) -> Tensor:
        tensor = tensor if tensor.is_floating_point() else tensor.long()
        return tensor[:, part] if tensor.ndim > 1 and tensor.shape[1] == width else tensor

    return {name: narrow(tensor) for name, tensor in inputs.items()}


def _is_texts(data: Any) -> bool:
    try:
        return all(isinstance(text, str) for text in data)
    except TypeError:
        return False


def _is_decoder(config: Any) -> bool:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(config)
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return bool(causal or getattr(config, "is_decoder", False))


def _padding_token(model: Any, tokenizer: Any, decoder: bool) -> int:
    """The padding token: the model's own, by which decoders find the last token of a row, else the
    tokenizer's."""
    own = getattr(model.config, "pad_token_id", None)
    if own is None and decoder:
        raise InputError(
            f"expected {type(model).__name__} to have a padding token, got none; "
            "set model.config.pad_token_id, for example to tokenizer.eos_token_id"
        )
    theirs = getattr(tokenizer, "pad_token_id", None)
    return next((int(token) for token in (own, theirs) if token is not None), 0)


def _usable_length(config: Any, tokenizer: Any, max_length: int) -> int:
    if not callable(tokenizer) or not hasattr(tokenizer, "num_special_tokens_to_add"):
        raise InputError(
            f"expected a tokenizer of the transformers library, got {type(tokenizer).__name__}; "
            "pass the one the model was trained with"
        )
    limits = (max_length, getattr(config, "max_position_embeddings", None), tokenizer.model_max_length)
    longest = min(int(limit) for limit in limits if limit is not None)
    if longest <= tokenizer.num_special_tokens_to_add():
        raise InputError(
            f"expected a max_length above the {tokenizer.num_special_tokens_to_add()} special tokens of "
            f"every text, got {max_length}; pass at least one more"
        )
    return longest
