"""CausalLM: a causal language model whose output is the negative log-likelihood of a whole sequence."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from assay.errors import InputError
from assay.extras import expect_installed
from assay.omniinput.sampling.problem import SamplingError
from assay.omniinput.sampling.space import InputSpace

NextTokenLogits = Callable[[Tensor], Tensor]
"""(B, T) tokens to (B, T, values): entry t scores the token that follows tokens 0 to t."""

CachedLogits = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(new tokens (B, T), cache or None) to (logits of the new tokens, cache that includes them)."""


class CausalLM:
    """Next-token logits over a fixed length, scored in nats: z = -sum_t ln p(x_t | x_<t).

    `start` is how the first token is scored. None: not at all, every first token is equally likely. An
    integer: by the model, after this token (which may lie outside 0..values-1). A tensor of `values` logits:
    by their softmax. `cached` is the same model with a key-value cache, if it has one; without it, drawing a
    sequence costs a whole forward pass per token.

    >>> uniform = CausalLM(lambda tokens: torch.zeros(*tokens.shape, 4), values=4, length=3)
    >>> uniform.negative_log_likelihood(torch.tensor([[0, 1, 2]])).exp().round()
    tensor([16.], dtype=torch.float64)
    """

    def __init__(
        self,
        next_token_logits: NextTokenLogits,
        values: int,
        length: int,
        *,
        start: int | Tensor | None = None,
        cached: CachedLogits | None = None,
    ) -> None:
        if values < 2 or length < 2:
            raise InputError(
                f"expected values and length of at least 2, got values={values} and length={length}; "
                "a language model needs a vocabulary and a sequence"
            )
        if isinstance(start, Tensor) and tuple(start.shape) != (values,):
            raise InputError(
                f"expected start logits of shape ({values},), got {tuple(start.shape)}; "
                "give one logit per token, a token number, or None for a free first token"
            )
        self.space = InputSpace((length,), values)
        self.next_token_logits = next_token_logits
        self.start = start
        self.cached = cached or self._by_whole_forwards
        self.pick: Callable[[Any, Tensor], Any] | None = None
        if cached is None:
            self.pick = lambda cache, rows: cache[rows]

    @classmethod
    def from_huggingface(
        cls, model: Any, length: int, *, start: int | None = None, allow_download: bool = False
    ) -> "CausalLM":
        """A transformers causal language model, or the name or folder of one, with its key-value cache.

        A name is looked up among earlier downloads; the hub is contacted only with `allow_download`.
        """
        if isinstance(model, str):
            model = pretrained("AutoModelForCausalLM", model, allow_download)
        if not hasattr(getattr(model, "config", None), "vocab_size"):
            raise InputError(
                f"expected a transformers causal language model or its name, got {type(model).__name__}; "
                "for any other model pass a function of tokens to assay.CausalLM"
            )
        model.eval()

        def logits(tokens: Tensor) -> Tensor:
            result: Tensor = model(input_ids=tokens.to(model.device), use_cache=False).logits
            return result

        def cached(tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
            result = model(input_ids=tokens.to(model.device), past_key_values=cache, use_cache=True)
            return result.logits, result.past_key_values

        def pick(cache: Any, rows: Tensor) -> Any:
            cache.batch_select_indices(rows.to(model.device))
            return cache

        found = cls(logits, model.config.vocab_size, length, start=start, cached=cached)
        found.pick = pick
        return found

    @property
    def values(self) -> int:
        return self.space.values

    @property
    def length(self) -> int:
        return self.space.sites

    @property
    def log_total_likelihood(self) -> float:
        """ln of the sum of exp(-z) over all sequences: 0, or ln values where the first token is free."""
        return math.log(self.values) if self.start is None else 0.0

    def begin(self, rows: int) -> tuple[Tensor, Any]:
        """Log-probabilities of the first token (rows, values), and the cache to continue with.

        A free first token has log "probability" zero for every value: then S_0(beta) = values, z does not
        depend on it, and no formula needs a special case.
        """
        if self.start is None:
            return torch.zeros(rows, self.values), None
        if isinstance(self.start, Tensor):
            return torch.log_softmax(self.start.float(), dim=0).expand(rows, -1), None
        log_probs, cache = self.feed(torch.full((rows, 1), self.start), None)
        return log_probs[:, 0], cache

    def feed(self, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Log-probabilities (rows, T, values) of what follows each of the new tokens, and the new cache."""
        with torch.no_grad():
            logits, cache = self.cached(tokens, cache)
        expected = (*tokens.shape, self.values)
        if tuple(logits.shape) != expected:
            raise SamplingError(
                f"expected next-token logits of shape {expected}, got {tuple(logits.shape)}; "
                "return one row of logits per token, one column per value"
            )
        if not bool(torch.isfinite(logits).all()):
            raise SamplingError(
                "expected finite next-token logits, got NaN or infinity; every sequence of the space needs a "
                "finite likelihood, so give impossible tokens a very low logit instead of minus infinity"
            )
        return torch.log_softmax(logits.float().cpu(), dim=-1), cache

    def picked(self, cache: Any, rows: Tensor, tokens: Tensor) -> Any:
        """The cache of some rows, in this order, with these tokens so far (rows, T).

        The format of a user's cache is unknown; then the tokens go through the model once more.
        """
        if self.pick is not None and cache is not None:
            return self.pick(cache, rows)
        _, fresh = self.begin(len(tokens))
        return self.feed(tokens, fresh)[1] if tokens.shape[1] else fresh

    def log_probabilities(self, tokens: Tensor) -> Tensor:
        """(rows, length, values): the conditional of every position given the tokens before it."""
        if isinstance(self.start, int):  # one call for all of them, the start token included
            started = torch.full((len(tokens), 1), self.start)
            return self.feed(torch.cat([started, tokens[:, :-1]], dim=1), None)[0]
        first, cache = self.begin(len(tokens))
        rest, _ = self.feed(tokens[:, :-1], cache)
        return torch.cat([first[:, None], rest], dim=1)

    def negative_log_likelihood(self, tokens: Tensor) -> Tensor:
        """z of whole sequences, in nats; an output function for `assay.sample_outputs`."""
        chosen = self.log_probabilities(tokens).gather(2, tokens[:, :, None])[:, :, 0]
        return -chosen.double().sum(dim=1)

    def _by_whole_forwards(self, tokens: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        """The cache of a model that has none: all tokens so far."""
        so_far = tokens if cache is None else torch.cat([cache, tokens], dim=1)
        logits = self.next_token_logits(so_far)
        if not isinstance(logits, Tensor) or logits.ndim != 3:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise SamplingError(
                f"expected next-token logits of shape (rows, tokens, {self.values}), got {got}; "
                "map (B, T) tokens to (B, T, values)"
            )
        return logits[:, -tokens.shape[1] :], so_far


def log_normalisers(log_probs: Tensor, betas: Tensor, log_psi: Tensor | None = None) -> Tensor:
    """ln S(beta) = ln sum_v p(v)^beta psi(v) for every beta: (..., values) to (..., K), in double precision.

    log_psi (K, values), zero by default. All betas at once if that is small; otherwise one by one, so that
    memory stays that of the logits.
    """
    tilts = torch.zeros(len(betas), 1) if log_psi is None else log_psi
    if log_probs.numel() * len(betas) <= 4_000_000:
        scaled = log_probs[..., None, :] * betas.to(log_probs.dtype)[:, None] + tilts
        return torch.logsumexp(scaled, dim=-1).double()
    each = [
        torch.logsumexp(log_probs * float(beta) + tilt, dim=-1)
        for beta, tilt in zip(betas, tilts, strict=True)
    ]
    return torch.stack(each, dim=-1).double()


def drawn_tokens(
    log_probs: Tensor, betas: Tensor, generator: torch.Generator, log_psi: Tensor | float = 0.0
) -> Tensor:
    """One token per row from p^beta psi / S(beta): (rows, values), (rows,), (rows, values) to (rows, 1)."""
    scaled = log_probs * betas.to(log_probs.dtype)[:, None] + log_psi
    return torch.multinomial(torch.softmax(scaled, dim=1), 1, generator=generator)


def pretrained(kind: str, name: str, allow_download: bool) -> Any:
    """An object of a transformers class from a folder or a name; nothing is downloaded unless allowed."""
    expect_installed("transformers")
    import transformers

    try:
        place = name if allow_download else _local_folder(name)
        return getattr(transformers, kind).from_pretrained(place, local_files_only=not allow_download)
    except (OSError, ValueError, SafetensorError) as error:
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
