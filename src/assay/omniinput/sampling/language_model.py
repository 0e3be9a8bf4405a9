"""CausalLM: a causal language model whose output is the negative log-likelihood of a whole sequence."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.omniinput.sampling.pretrained import (
    TransformersModel,
    check_tokenizer,
    pretrained,
    prompt_tokens,
)
from assay.omniinput.sampling.problem import SamplingError
from assay.omniinput.sampling.space import InputSpace
from assay.omniinput.sampling.vocabulary import NextTokens

NextTokenLogits = Callable[[Tensor], Tensor]
"""(B, T) tokens to (B, T, values): entry t scores the token that follows tokens 0 to t."""

CachedLogits = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(new tokens (B, T), cache or None) to (logits of the new tokens, cache that includes them)."""

Tokens = Sequence[int] | Tensor

Clock = Callable[[], AbstractContextManager[None]]
"""Entered around every call of the model."""

MOST_LOGITS = 2**25
"""Entries of the logits of one call of the model: 128 MB in single precision. Larger batches are divided."""


class CausalLM:
    """Next-token logits over a length, scored in nats: z = -sum_t ln p(x_t | x_<t).

    `start` is how the first token is scored. None: not at all, every first token is equally likely. An
    integer: by the model, after this token (which may lie outside 0..values-1). A tensor of `values` logits:
    by their softmax. `prompt` has any number of tokens before the sequence, none of which is scored. The
    sequences consist of the `allowed` tokens (or all but the `forbidden` ones), with their probabilities
    among all. With `end`, a sequence may end before `length`: whatever follows this token is the token again
    and costs nothing.

    `cached` is the same model with a key-value cache, if it has one; without it, drawing a sequence costs a
    whole forward pass per token.

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
        prompt: Tokens | None = None,
        allowed: Tokens | None = None,
        forbidden: Tokens | None = None,
        end: int | None = None,
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
        if start is not None and prompt is not None:
            raise InputError(
                "expected a start or a prompt, got both; put the start token at the head of the prompt"
            )
        self.space = InputSpace((length,), values, allowed=_allowed(allowed, forbidden, values), end=end)
        self.next_token_logits = next_token_logits
        self.start = start
        self.prompt = None if prompt is None else prompt_tokens(prompt, None, values)
        self.decode: Callable[[list[int]], str] | None = None
        self._model: TransformersModel | None = None
        self._cached = cached
        self._begun: tuple[Tensor, Any] | None = None  # logits and cache after the prompt

    @classmethod
    def from_huggingface(
        cls,
        model: Any,
        length: int,
        *,
        start: int | None = None,
        prompt: str | Tokens | None = None,
        allowed: Tokens | None = None,
        forbidden: Tokens | None = None,
        end: int | None = None,
        tokenizer: Any = None,
        allow_download: bool = False,
    ) -> "CausalLM":
        """A transformers causal language model, or the name or folder of one, with its key-value cache.

        A name is looked up among earlier downloads; the hub is contacted only with `allow_download`. A prompt
        may be text if there is a tokenizer: one is loaded with a name, or passed as `tokenizer`.
        """
        if isinstance(model, str):
            if tokenizer is None and isinstance(prompt, str):
                tokenizer = pretrained("AutoTokenizer", model, allow_download)
            model = pretrained("AutoModelForCausalLM", model, allow_download)
        wrapped = TransformersModel(model)
        check_tokenizer(tokenizer, wrapped.values)
        tokens = None if prompt is None else prompt_tokens(prompt, tokenizer, wrapped.values)
        before = 1 if tokens is None else len(tokens)
        if wrapped.context is not None and before + length - 1 > wrapped.context:
            raise InputError(
                f"expected a prompt and a length within the model's context of {wrapped.context} tokens, got "
                f"{before} and {length}; shorten the prompt or the length"
            )
        found = cls(
            wrapped, wrapped.values, length, start=start, prompt=tokens, allowed=allowed,
            forbidden=forbidden, end=end,
        )  # fmt: skip
        found._model = wrapped
        found.decode = None if tokenizer is None else tokenizer.decode
        return found

    @property
    def values(self) -> int:
        return self.space.values

    @property
    def length(self) -> int:
        return self.space.sites

    @property
    def log_total_likelihood(self) -> float | None:
        """ln of the sum of exp(-z) over all sequences: 0, or ln values where the first token is free.

        None if tokens are forbidden: how likely they are is unknown.
        """
        if self.space.allowed is not None and self.space.choices < self.values:
            return None
        if self.start is not None or self.prompt is not None:
            return 0.0
        if self.space.end is None:
            return math.log(self.values)
        return None  # a free first token that ends the sequence has no continuations

    @property
    def most_rows(self) -> int:
        """How many rows fit into one call of the model for one token each."""
        return max(1, MOST_LOGITS // self.values)

    def begin(self, rows: int, clock: Clock = nullcontext) -> tuple[NextTokens, Any]:
        """What may come first in each row, and the cache to continue with; a prompt is read once."""
        shared = torch.zeros(rows, dtype=torch.int64)
        if isinstance(self.start, Tensor):
            return self._following(self.start.float()[None], shared, None), None
        before = torch.tensor([self.start]) if isinstance(self.start, int) else self.prompt
        if before is None:
            return NextTokens.free(self.space.choices, rows, torch.device("cpu")), None
        if self._model is None:
            logits, cache = self._logits(before.expand(rows, -1), None, True, clock)
            return self._following(logits[:1, -1], shared, None), cache
        if self._begun is None:
            self._begun = self._logits(before[None], None, True, clock)
        logits, cache = self._begun
        return self._following(logits[:, -1], shared, None), self._model.spread(cache, rows)

    def feed(self, sites: Tensor, cache: Any, clock: Clock = nullcontext) -> tuple[NextTokens, Any]:
        """What may follow the last of the new tokens (rows, T), given as site values, and the new cache."""
        logits, cache = self._logits(self._tokens(sites), cache, True, clock)
        return self._following(logits[:, -1], None, sites[:, -1]), cache

    def picked(self, cache: Any, rows: Tensor, sites: Tensor, clock: Clock = nullcontext) -> Any:
        """The cache of some rows, in this order, with these site values so far (rows, T).

        The format of a user's cache is unknown; then the tokens go through the model once more.
        """
        if self._model is not None and cache is not None:
            return self._model.pick(cache, rows)
        if self._cached is None:
            return None if cache is None else cache[rows]
        _, fresh = self.begin(len(sites), clock)
        return self.feed(sites, fresh, clock)[1] if sites.shape[1] else fresh

    def scored(
        self, sites: Tensor, betas: Tensor | None = None, clock: Clock = nullcontext
    ) -> tuple[Tensor, Tensor]:
        """ln p of every token of whole sequences (rows, length), and ln S of its position (rows, length, K).

        Rows go through the model in parts that keep the logits small; `clock` is entered around each call.
        """
        size = max(1, MOST_LOGITS // (self.values * self.length))
        parts = [self._scored(part, betas, clock) for part in torch.split(sites, size)]
        chosen, normalisers = zip(*parts, strict=True)
        return torch.cat(chosen), torch.cat(normalisers)

    def _scored(self, sites: Tensor, betas: Tensor | None, clock: Clock) -> tuple[Tensor, Tensor]:
        rows, length = sites.shape
        first, cache = self.begin(rows, clock)
        logits, _ = self._logits(self._tokens(sites[:, :-1]), cache, False, clock)
        rest = self._following(logits.flatten(0, 1), None, sites[:, :-1].flatten())
        chosen = torch.cat(
            [first.of(sites[:, 0])[:, None], rest.of(sites[:, 1:].flatten()).view(rows, -1)], 1
        )
        if betas is None:
            return chosen, torch.empty(rows, length, 0, dtype=torch.float64)
        after = rest.log_normalisers(betas).view(rows, length - 1, -1)
        return chosen, torch.cat([first.log_normalisers(betas)[:, None], after], dim=1)

    def negative_log_likelihood(self, tokens: Tensor) -> Tensor:
        """z of whole sequences, in nats; an output function for `assay.sample_outputs`."""
        return -self.scored(self.space.extract(tokens))[0].sum(dim=1)

    def _tokens(self, sites: Tensor) -> Tensor:
        return sites if self.space.allowed is None else self.space.allowed[sites]

    def _following(self, logits: Tensor, row: Tensor | None, last: Tensor | None) -> NextTokens:
        """What may follow; nothing but the end, where the last site value was the end."""
        if logits.shape[1] != self.values:
            raise self._of_shape(tuple(logits.shape))
        allowed = self.space.allowed
        end = self.space.end_site
        ended = None if end is None or last is None else last == end
        return NextTokens.after(
            logits,
            row,
            None if allowed is None else allowed.to(logits.device),
            ended,
            -1 if end is None else end,
        )

    def _logits(self, tokens: Tensor, cache: Any, last: bool, clock: Clock) -> tuple[Tensor, Any]:
        """Of the new tokens, or of the last alone where the model can leave out the others."""
        with torch.no_grad(), clock():
            if self._model is not None:
                logits, cache = self._model.cached(tokens, cache, last)
            elif self._cached is not None:
                logits, cache = self._cached(tokens, cache)
            else:
                logits, cache = self._by_whole_forwards(tokens, cache)
        expected = tokens.shape[1]
        if not isinstance(logits, Tensor) or logits.ndim != 3 or (not last and logits.shape[1] != expected):
            raise self._of_shape(tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__)
        return logits, cache

    def _of_shape(self, got: object) -> SamplingError:
        return SamplingError(
            f"expected next-token logits of shape (rows, tokens, {self.values}), got {got}; "
            "map (B, T) tokens to (B, T, values)"
        )

    def _by_whole_forwards(self, tokens: Tensor, cache: Tensor | None) -> tuple[Any, Tensor]:
        """The cache of a model that has none: all tokens so far."""
        so_far = tokens if cache is None else torch.cat([cache, tokens], dim=1)
        logits = self.next_token_logits(so_far)
        return (logits[:, -tokens.shape[1] :] if isinstance(logits, Tensor) else logits), so_far


def _allowed(allowed: Tokens | None, forbidden: Tokens | None, values: int) -> Tensor | None:
    """The tokens of the space; None if all are."""
    if allowed is None and forbidden is None:
        return None
    if allowed is not None and forbidden is not None:
        raise InputError("expected allowed or forbidden tokens, got both; give the allowed ones alone")
    if allowed is not None:
        return torch.as_tensor(allowed)
    out = torch.as_tensor(forbidden).flatten()
    mask = torch.ones(values, dtype=torch.bool)
    if out.dtype is torch.bool and len(out) == values:
        return ~out
    if len(out) and (int(out.min()) < 0 or int(out.max()) >= values):
        raise InputError(
            f"expected forbidden tokens from 0 to {values - 1}, got {int(out.min())} to {int(out.max())}; "
            "use the model's own tokenizer"
        )
    mask[out.long()] = False
    return mask
