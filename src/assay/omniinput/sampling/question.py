"""Question: the checked arguments of `sample_outputs`, and the run they describe."""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from assay.errors import InputError
from assay.omniinput.sampling.bases import Base, BaseProblem, Templates, base_of
from assay.omniinput.sampling.checkpoint import Keeper, Run
from assay.omniinput.sampling.kernels import kernels_of
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.kernels.suffix import LanguageProblem, Suffix
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.model_identity import model_identity
from assay.omniinput.sampling.plan import DEFAULT_BINS, Budget, Plan
from assay.omniinput.sampling.problem import OutputFunction, Problem
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.importance_then_tempering import ImportanceThenTempering
from assay.omniinput.sampling.samplers.multicanonical import Multicanonical
from assay.omniinput.sampling.samplers.tempering import Tempering
from assay.omniinput.sampling.space import InputSpace
from assay.omniinput.sampling.squash import Identity, Squash

Array = NDArray[np.float64]

DEFAULT_BUDGET = 200_000
SAMPLERS = ("auto", "tempering", "multicanonical", "importance")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The arguments of `sample_outputs` for one run, which explains each."""

    output_fn: Any
    space: InputSpace | None
    base: Any
    bins: ArrayLike | int | None
    budget: int | None
    seconds: float | None
    seed: int
    sampler: str
    kernel: Any
    relaxed: OutputFunction | None
    squash: tuple[float, float] | None
    ensembles: int
    replicas: int | None
    swap_every: int
    keep: int
    decode: Callable[[list[int]], str] | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float

    def split(self, ladders: int) -> "list[Question]":
        """Independent questions that share the budget, each with its own seed and checkpoint."""
        if self.budget is None and self.seconds is None:
            return dataclasses.replace(self, budget=DEFAULT_BUDGET).split(ladders)
        if self.edges is None:
            raise InputError(
                f"expected edges of bins for {ladders} independent ladders, which must agree on them, got "
                f"bins={self.bins!r}; give, for example, numpy.linspace(0, 100, 41)"
            )
        return [
            dataclasses.replace(
                self,
                budget=None if self.budget is None else max(1, self.budget // ladders),
                seconds=None if self.seconds is None else self.seconds / ladders,
                seed=int(seed),
                checkpoint=None if self.checkpoint is None else f"{self.checkpoint}.{number}",
            )
            for number, seed in enumerate(np.random.SeedSequence(self.seed).generate_state(ladders))
        ]

    def run(self) -> Run:
        """The run that answers it; bad arguments are refused before the model is called."""
        lm, space, kernels, plan = self.lm, self.checked_space, self.kernels, self.plan
        budget = self._budget()
        if self.sampler not in SAMPLERS or (self.sampler == "importance" and lm is None):
            raise InputError(
                f"expected a sampler among {', '.join(SAMPLERS)} ('importance' for a CausalLM only), got "
                f"{self.sampler!r}; leave it at 'auto' if in doubt"
            )
        generator = torch.Generator().manual_seed(self.seed)
        if self.checked_base is not None:
            base_problem = BaseProblem(self._function, space, base=self.checked_base)
            return Tempering(base_problem, kernels, plan, budget, generator)
        if lm is None or self.sampler == "multicanonical":
            relaxed = None if self.relaxed is None else _squashed(self.relaxed, self.squashing)
            gradients = any(kernel.gradients for kernel in kernels)
            problem = Problem(self._function, space, gradients, relaxed)
            kind = Multicanonical if self.sampler == "multicanonical" else Tempering
            return kind(problem, kernels, plan, budget, generator)
        language = LanguageProblem(lm.negative_log_likelihood, space, lm=lm)
        if self.sampler == "importance":
            return Importance(language, plan, budget, generator)
        if self.sampler == "tempering":
            return Tempering(language, kernels, plan, budget, generator)
        return ImportanceThenTempering(language, kernels, plan, budget, generator)

    @property
    def _function(self) -> OutputFunction:
        language = isinstance(self.output_fn, CausalLM)
        function = self.output_fn.negative_log_likelihood if language else self.output_fn
        return _squashed(function, self.squashing)

    @cached_property
    def checked_base(self) -> Base | None:
        if self.base is None:
            return None
        if self.sampler not in ("auto", "tempering") or self.kernel != "auto" or self.relaxed is not None:
            raise InputError(
                "expected a base without relaxed=, with sampler 'auto' or 'tempering' and its own moves, got "
                f"sampler={self.sampler!r} and kernel={self.kernel!r}; leave these out"
            )
        return base_of(self.base, self.space)

    def keeper(self) -> Keeper:
        """The writer and reader of the run's checkpoints."""
        method = f"{self.sampler} {self.kernels}"
        model = None if self.checkpoint is None else model_identity(self.output_fn, self.relaxed, self.base)
        return Keeper(self.checkpoint, self.checked_space, method, model, self.checkpoint_every)

    @property
    def lm(self) -> CausalLM | None:
        """The language model whose own likelihood is sampled, over all of its sequences."""
        return self.output_fn if isinstance(self.output_fn, CausalLM) and self.base is None else None

    @property
    def text_of(self) -> Callable[[Tensor], str] | None:
        """An input as text: by `decode`, by the model's own tokenizer, or as a filled template."""
        if self.decode is None and isinstance(self.checked_base, Templates):
            return self.checked_base.text
        sources = (self, self.lm, getattr(self.checked_base, "lm", None))
        decode = next((one.decode for one in sources if one is not None and one.decode is not None), None)
        return None if decode is None else lambda row: str(decode(row.flatten().tolist()))

    @property
    def output_name(self) -> str:
        language = isinstance(self.output_fn, CausalLM)
        return "negative log-likelihood (nats)" if language else "output"

    @property
    def kernels(self) -> list[Kernel]:
        if self.checked_base is not None:
            return self.checked_base.kernels
        if self.lm is not None and self.sampler != "multicanonical" and self.kernel == "auto":
            return [Suffix()]  # needs token likelihoods, which a flat histogram does not use
        return kernels_of(self.kernel)

    @property
    def plan(self) -> Plan:
        return Plan(
            edges=self.squashing.edges(self.edges),
            bins=self.bins if isinstance(self.bins, int) else DEFAULT_BINS,
            seed=self.seed,
            ensembles=at_least(1, "ensembles", self.ensembles),
            replicas=None if self.replicas is None else at_least(2, "replicas", self.replicas),
            swap_every=at_least(1, "swap_every", self.swap_every),
            keep=at_least(1, "keep", self.keep),
        )

    @property
    def edges(self) -> Array | None:
        """The edges of the bins; None if only their number was given."""
        if self.bins is None or (isinstance(self.bins, int) and self.bins >= 1):
            return None
        edges = np.asarray(self.bins, dtype=np.float64)
        rising = edges.ndim == 1 and len(edges) >= 2 and (np.diff(edges) > 0).all()
        if not rising or not np.isfinite(edges).all():
            raise InputError(
                f"expected ascending, finite bin edges or a positive number of bins, got {self.bins!r:.80}; "
                "give, for example, numpy.linspace(0, 100, 41)"
            )
        return edges

    @property
    def squashing(self) -> Squash | Identity:
        if self.squash is None:
            return Identity()
        if self.lm is not None or self.edges is None:
            raise InputError(
                "expected an output function and edges of bins with squash=, got "
                f"{'a CausalLM' if self.lm is not None else 'no edges'}; give bins, for example, as "
                "numpy.linspace(-20, 20, 41), and a language model without squash"
            )
        return Squash(*self.squash)

    @property
    def checked_space(self) -> InputSpace:
        if self.checked_base is not None:
            return self.checked_base.space
        if (self.lm is None) == (self.space is None):
            raise InputError(
                "expected an InputSpace with an output function, and none with a CausalLM, which has its "
                f"own; got {'neither' if self.space is None else 'both'}"
            )
        space = self.lm.space if self.lm is not None else self.space
        assert space is not None
        if space.log_size == 0.0:
            raise InputError(
                f"expected a space of at least two inputs, got one point (shape {space.shape}, "
                f"{space.choices} value(s), {space.sites} free position(s)); free more positions or allow "
                "more values"
            )
        if space.end is not None and (self.lm is None or self.sampler == "multicanonical"):
            raise InputError(
                "expected a CausalLM for sequences that end, got a function or sampler that changes one "
                "position at a time; leave `end` out, or pass base= with a language model that has it"
            )
        return space

    def _budget(self) -> Budget:
        evaluations = self.budget
        if evaluations is None and self.seconds is None:
            evaluations = DEFAULT_BUDGET
        if (evaluations is not None and evaluations < 1) or (
            self.seconds is not None and not self.seconds > 0
        ):
            raise InputError(
                f"expected a positive budget, got budget={evaluations} and seconds={self.seconds}; "
                "give model evaluations, seconds, or both"
            )
        return Budget(None if evaluations is None else int(evaluations), self.seconds)


def at_least(least: int, name: str, value: int) -> int:
    if value < least:
        raise InputError(f"expected {name} of at least {least}, got {value}; raise it")
    return value


def _squashed(function: OutputFunction, squashing: Squash | Identity) -> OutputFunction:
    return lambda inputs: squashing(function(inputs))
