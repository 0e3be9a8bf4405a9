"""Base measures: which inputs there are and how likely each is, if not all equally likely.

With a base, the output distribution says how likely each output is when inputs come from the base. Moves that
leave the base unchanged take the place of moves that leave the uniform measure unchanged; tempering and
reweighting stay as they are, so that probabilities far below one over the number of evaluations are found
(rare-event probabilities; for language models see Wu and Hilton 2025).
"""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from assay.errors import InputError
from assay.omniinput.sampling.kernels.chain import (
    Info,
    Kernel,
    State,
    Target,
    base_gain,
    metropolis_hastings,
)
from assay.omniinput.sampling.kernels.crossover import Crossover
from assay.omniinput.sampling.kernels.learned import Learned
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.problem import Evaluation, Problem
from assay.omniinput.sampling.space import InputSpace


class Base(Protocol):
    """A distribution over inputs, from which one can draw, and the moves that leave it unchanged."""

    @property
    def space(self) -> InputSpace: ...

    @property
    def kernels(self) -> list[Kernel]: ...

    def draw(self, count: int, generator: torch.Generator) -> Tensor: ...

    def extras(self, sites: Tensor) -> dict[str, Tensor]:
        """What the moves need to know of inputs: "log_base", ln of the probability of every site."""

    def inputs(self, sites: Tensor) -> Any:
        """What the output function gets for these site values."""


@dataclass
class BaseProblem(Problem):
    """The output function over inputs of a base."""

    base: Base = field(kw_only=True)

    def __call__(self, sites: Tensor) -> Evaluation:
        return Evaluation(self.outputs(sites), self.base.extras(sites))

    def outputs(self, sites: Tensor) -> Tensor:
        with self.timed(len(sites)), torch.no_grad():
            found = self.output_fn(self.base.inputs(sites))
        return self._checked(found, len(sites))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        return self.base.draw(count, generator)


class Product:
    """Positions that are independent of each other, each with the probabilities of its own values."""

    def __init__(self, weights: Sequence[Any], space: InputSpace | None = None) -> None:
        rows = [torch.as_tensor(row, dtype=torch.float64).flatten() for row in weights]
        if not rows or any(
            not len(row) or bool((row < 0).any()) or not 0 < float(row.sum()) < torch.inf for row in rows
        ):
            raise InputError(
                "expected weights of at least zero for the values of each position, with a positive sum, got "
                "none or others; give one list of weights per position"
            )
        most = max(map(len, rows))
        self.shares = torch.stack(
            [torch.nn.functional.pad(row / row.sum(), (0, most - len(row))) for row in rows]
        )
        self.space = InputSpace((len(rows),), most) if space is None else space

    @property
    def kernels(self) -> list[Kernel]:
        """Learned moves propose any value, so they are left out where some are impossible."""
        moves: list[Kernel] = [RedrawnSites(), Crossover()]
        return [*moves, Learned()] if bool((self.shares > 0).all()) else moves

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.multinomial(self.shares, count, replacement=True, generator=generator).T.contiguous()

    def extras(self, sites: Tensor) -> dict[str, Tensor]:
        return {"log_base": self.shares[torch.arange(sites.shape[1]), sites].log()}

    def inputs(self, sites: Tensor) -> Any:
        return self.space.embed(sites)


class Templates(Product):
    """Texts with slots, such as "Is {animal} a {thing}?", filled at random; the output function gets texts.

    `slots` has the fillers of each slot, as a list (all equally likely) or as a mapping from filler to
    weight; `weights` are those of the templates.

    >>> base = Templates(["a {colour} cat", "no cat"], {"colour": {"red": 1, "blue": 3}})
    >>> base.inputs(torch.tensor([[0, 1], [1, 0]]))
    ['a blue cat', 'no cat']
    """

    def __init__(
        self,
        templates: Sequence[str],
        slots: Mapping[str, Sequence[str] | Mapping[str, float]],
        weights: Sequence[float] | None = None,
    ) -> None:
        named = {name for text in templates for _, name, _, _ in string.Formatter().parse(text) if name}
        missing = sorted(named - set(slots))
        if missing or not templates or any(not len(fillers) for fillers in slots.values()):
            raise InputError(
                f"expected templates, and fillers for each of their slots, got {len(templates)} templates "
                f"and none for {missing or 'one of the slots'}; name them in slots="
            )
        self.templates, self.names = list(templates), list(slots)
        self.fillers = [list(slots[name]) for name in self.names]
        shares = [_weights(slots[name]) for name in self.names]
        super().__init__([weights or [1.0] * len(self.templates), *shares])

    def inputs(self, sites: Tensor) -> list[str]:
        return [self.text(row) for row in sites]

    def text(self, row: Tensor) -> str:
        """The text of one row of site values."""
        template, *numbers = row.tolist()
        chosen = zip(self.names, self.fillers, numbers, strict=True)
        filled = {name: fillers[number] for name, fillers, number in chosen}
        text: str = self.templates[template].format(**filled)
        return text


def base_of(given: Any, space: InputSpace | None) -> Base:
    """The base meant by the argument `base`: a base, a language model, or weights for a space."""
    if isinstance(given, CausalLM):
        given = TextsOf(given)
    if isinstance(given, Product | TextsOf):
        if space is not None:
            raise InputError(
                "expected no space with a base, which has its own, got both; leave the space out"
            )
        return given
    weights = torch.as_tensor(given, dtype=torch.float64) if isinstance(given, list | Tensor) else None
    if weights is None or space is None or tuple(weights.shape) != (space.sites, space.choices):
        expected = "" if space is None else f" of shape ({space.sites}, {space.choices})"
        got = type(given).__name__ if weights is None else f"weights of shape {tuple(weights.shape)}"
        raise InputError(
            f"expected a base: a CausalLM, assay.TextsOf, assay.Templates, or weights{expected} for a space, "
            f"got {got}; give one row of weights per position and one weight per value"
        )
    return Product(list(weights), space)


def _weights(fillers: Sequence[str] | Mapping[str, float]) -> list[float]:
    return list(fillers.values()) if isinstance(fillers, Mapping) else [1.0] * len(fillers)


class TextsOf:
    """Texts of a language model, drawn token by token at a temperature, after its prompt."""

    def __init__(self, lm: CausalLM, temperature: float = 1.0) -> None:
        if not 0 < temperature < torch.inf:
            raise InputError(f"expected a temperature above 0, got {temperature}; 1 is the model itself")
        self.lm, self.space = lm, lm.space
        self.problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
        self.problem.betas = torch.tensor([1 / temperature], dtype=torch.float64)

    @property
    def kernels(self) -> list[Kernel]:
        return [RedrawnSuffix(), RedrawnToken()]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        nothing = torch.zeros(count, self.space.sites, dtype=torch.int64)
        return self.redrawn(nothing, nothing.double(), 0, generator)[0]

    def extras(self, sites: Tensor) -> dict[str, Tensor]:
        """ln of the probability of each token in the base."""
        log_probs, normalisers = self.lm.scored(sites, self.problem.betas)
        return {"log_base": self._log_base(log_probs, normalisers)}

    def redrawn(
        self, sites: Tensor, log_base: Tensor, cut: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Everything from `cut` on drawn from the base, and ln of the probability of each token."""
        own = torch.zeros(len(sites), dtype=torch.int64)
        new, log_probs, normalisers = self.problem.redrawn(sites, log_base, cut, own, generator)
        return new, torch.cat([log_base[:, :cut], self._log_base(log_probs[:, cut:], normalisers)], dim=1)

    def token(self, sites: Tensor, place: int, generator: torch.Generator) -> Tensor:
        """A token for this position of every row, drawn from the base given what precedes it."""
        own = torch.zeros(len(sites), dtype=torch.int64)
        following, cache = self.lm.begin(len(sites))
        if place:
            following, _ = self.lm.feed(sites[:, :place], cache)
        return following.weighed(self.problem.betas, own).drawn(generator)

    def inputs(self, sites: Tensor) -> Tensor:
        return self.space.embed(sites)

    def _log_base(self, log_probs: Tensor, normalisers: Tensor) -> Tensor:
        return self.problem.betas * log_probs - normalisers[:, :, 0]


@dataclass(frozen=True)
class RedrawnSites:
    """One position or more are drawn anew from the base; the output alone decides."""

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        assert isinstance(problem, BaseProblem)
        rows, sites = state.sites.shape
        fresh = problem.base.draw(rows, generator)
        first = torch.randint(sites, (rows, 1), generator=generator)
        # One position alone half of the time, otherwise each other with a chance that varies.
        chance = torch.rand(rows, 1, generator=generator) * (torch.rand(rows, 1, generator=generator) < 0.5)
        moved = torch.rand(rows, sites, generator=generator) < chance
        moved = moved.scatter(1, first, True)
        proposed = torch.where(moved, fresh, state.sites)
        evaluation = problem(proposed)
        back = -base_gain(state, evaluation)
        return metropolis_hastings(state, proposed, evaluation, back, target, generator)


@dataclass(frozen=True)
class RedrawnSuffix:
    """Everything from a position on is drawn anew from the base; the output alone decides."""

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        assert isinstance(problem, BaseProblem)
        assert isinstance(problem.base, TextsOf)
        cut = int(torch.randint(state.sites.shape[1], (), generator=generator))
        new, log_base = problem.base.redrawn(state.sites, state.extras["log_base"], cut, generator)
        evaluation = Evaluation(problem.outputs(new), {"log_base": log_base})
        back = -base_gain(state, evaluation)
        return metropolis_hastings(state, new, evaluation, back, target, generator)


@dataclass(frozen=True)
class RedrawnToken:
    """One token is drawn anew from what precedes it; what follows must be likely after it, too."""

    gradients: bool = False

    def step(
        self, state: State, target: Target, problem: Problem, generator: torch.Generator, groups: int = 1
    ) -> tuple[State, Info]:
        place = int(torch.randint(state.sites.shape[1], (), generator=generator))
        assert isinstance(problem, BaseProblem)
        assert isinstance(problem.base, TextsOf)
        drawn = problem.base.token(state.sites, place, generator)
        proposed = state.sites.clone()
        proposed[:, place] = drawn
        ended = problem.space.end_site
        if ended is not None:  # what follows an end is fixed: there, only a suffix can be redrawn
            stays = (drawn == ended) | (state.sites[:, place] == ended)
            proposed[stays] = state.sites[stays]
        evaluation = problem(proposed)
        back = (state.extras["log_base"] - evaluation.extras["log_base"])[:, place]
        return metropolis_hastings(state, proposed, evaluation, back, target, generator)
