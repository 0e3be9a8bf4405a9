"""Transformers models as causal language models: from this machine, with their key-value cache and prompt."""

import copy
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from assay.errors import InputError
from assay.extras import expect_installed


class TransformersModel:
    """Next-token logits of a transformers model, with what a CausalLM needs to know of its cache."""

    def __init__(self, model: Any) -> None:
        config: Any = getattr(model, "config", None)
        if hasattr(config, "get_text_config"):  # a model of images and text keeps its vocabulary inside
            config = config.get_text_config(decoder=True)
        if not hasattr(config, "vocab_size"):
            raise InputError(
                f"expected a transformers causal language model or its name, got {type(model).__name__}; "
                "for any other model pass a function of tokens to assay.CausalLM"
            )
        self.model, self.values = model.eval(), int(config.vocab_size)
        self.context: int | None = getattr(config, "max_position_embeddings", None)
        self.keeps_last = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=tokens.to(self.model.device), use_cache=False).logits
        return logits

    def cached(self, tokens: Tensor, cache: Any, last: bool = False) -> tuple[Tensor, Any]:
        """Logits of the new tokens, or of the last alone, where the model can leave the others out."""
        kept = {"logits_to_keep": 1} if last and self.keeps_last else {}
        found = self.model(
            input_ids=tokens.to(self.model.device), past_key_values=cache, use_cache=True, **kept
        )
        return found.logits, found.past_key_values

    def pick(self, cache: Any, rows: Tensor) -> Any:
        """The cache of these rows, as many as it has; where its layers are known, only changed rows move."""
        from transformers.cache_utils import DynamicLayer

        device = self.model.device
        if not all(type(layer) is DynamicLayer for layer in getattr(cache, "layers", [None])):
            cache.batch_select_indices(rows.to(device))
            return cache
        to = (rows != torch.arange(len(rows))).nonzero()[:, 0]
        to, origin = to.to(device), rows[to].to(device)
        for layer in cache.layers:
            for kept in (layer.keys, layer.values):
                kept.index_copy_(0, to, kept.index_select(0, origin))
        return cache

    def spread(self, cache: Any, rows: int) -> Any:
        """The cache of one row for many, which had the same tokens so far."""
        cache = copy.deepcopy(cache)
        cache.batch_repeat_interleave(rows)
        return cache


def prompt_tokens(prompt: str | Sequence[int] | Tensor, tokenizer: Any, values: int) -> Tensor:
    """The tokens of a prompt, which may be text where there is a tokenizer that fits the model."""
    if isinstance(prompt, str):
        if tokenizer is None:
            raise InputError(
                "expected a tokenizer for a prompt of text, got none; pass tokenizer=, the name of the model "
                "instead of the model, or the prompt as a list of tokens"
            )
        prompt = tokenizer(prompt)["input_ids"]
    tokens = torch.as_tensor(prompt).flatten()
    whole = len(tokens) and not tokens.is_floating_point()
    if not whole or int(tokens.min()) < 0 or int(tokens.max()) >= values:
        got = f"{int(tokens.min())} to {int(tokens.max())}" if len(tokens) else "none"
        raise InputError(
            f"expected a prompt of tokens from 0 to {values - 1}, got {got}; use the model's own tokenizer"
        )
    return tokens.to(torch.int64)


def check_tokenizer(tokenizer: Any, values: int) -> None:
    """A tokenizer that knows more tokens than the model belongs to another model."""
    if tokenizer is not None and len(tokenizer) > values:
        raise InputError(
            f"expected a tokenizer of at most {values} tokens, as the model has, got {len(tokenizer)}; "
            "use the model's own tokenizer"
        )


def pretrained(kind: str, name: str, allow_download: bool) -> Any:
    """An object of a transformers class from a folder or a name; nothing is downloaded unless allowed."""
    expect_installed("transformers")
    import transformers

    try:
        if name.endswith(".gguf"):  # one file with weights and tokenizer, quantised as for llama.cpp
            folder, more = str(Path(name).parent), {"gguf_file": Path(name).name}
        else:
            folder, more = name if allow_download else _local_folder(name), {}
        return getattr(transformers, kind).from_pretrained(
            folder, local_files_only=not allow_download, **more
        )
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        advice = "check the name and the connection"
        if not allow_download:
            advice = (
                "pass its folder, download it first, or allow the download (allow_download=True, on the "
                "command line --allow-download)"
            )
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise InputError(
            f"expected a language model with its tokenizer at {name!r}, found none that can be read "
            f"({reason}); {advice}"
        ) from error


def _local_folder(name: str) -> str:
    """The folder of a model on this machine.

    Looked up here, because the library of the hub contacts the hub before it obeys `local_files_only`.
    """
    from huggingface_hub import try_to_load_from_cache

    if Path(name).is_dir():
        return name
    found = try_to_load_from_cache(name, "config.json")
    if not isinstance(found, str):
        raise FileNotFoundError("no such folder, and not among earlier downloads")
    return str(Path(found).parent)
