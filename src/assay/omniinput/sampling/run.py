"""sample_outputs: the output distribution of a model over its whole input space."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

from numpy.typing import ArrayLike
from torch import Tensor

from assay.engine import checked_engine, mapped, progress
from assay.errors import InputError
from assay.omniinput.sampling.bases import Base
from assay.omniinput.sampling.checkpoint import Keeper, Run
from assay.omniinput.sampling.density_estimate import LEAST_BLOCKS
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.forecast import forecast as forecast_of
from assay.omniinput.sampling.joined_ladders import pooled
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.problem import OutputFunction, SamplingError
from assay.omniinput.sampling.question import Question, at_least
from assay.omniinput.sampling.space import InputSpace


def sample_outputs(
    output_fn: OutputFunction | CausalLM,
    space: InputSpace | None = None,
    *,
    base: Base | CausalLM | Tensor | None = None,
    bins: ArrayLike | int | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    sampler: str = "auto",
    kernel: str | Kernel | Sequence[str | Kernel] = "auto",
    relaxed: OutputFunction | None = None,
    squash: tuple[float, float] | None = None,
    ensembles: int = 2,
    replicas: int | None = None,
    swap_every: int = 1,
    keep: int = 64,
    decode: Callable[[list[int]], str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    ladders: int = 1,
    engine: str = "here",
    forecast: Callable[[str], object] | None = None,
) -> OutputDistribution:
    """How many of all possible inputs the model maps to each output value (paper section 2.1).

    output_fn maps a (B, *shape) integer tensor to (B,) outputs; a `CausalLM` has its own space. bins: edges,
    or how many bins to divide the outputs found into. Sampling ends after `budget` model evaluations (default
    200,000) or `seconds`, whichever comes first. docs/input-space.md explains samplers, kernels, `relaxed`,
    `squash`, checkpoints (the result is that of an uninterrupted run) and `ladders`: independent runs that
    share the budget. The result depends on seed and ladders, not on the `engine` they run on. With a `base`,
    inputs are as likely as it says instead of all equally likely: a language model, `TextsOf` one at a
    temperature, `Templates`, or weights (sites, values) for the space. `forecast`, such as print, is called
    with a sentence about time and memory before the work begins.

    If sampling must stop, the error's `partial` is the distribution so far. The paper samples by tempering
    with single-site moves and reweights on the reported bins, which is biased: docs/papers/omniinput.md.
    """
    question = Question(
        output_fn=output_fn, space=space, base=base, bins=bins, budget=budget, seconds=seconds, seed=seed,
        sampler=sampler, kernel=kernel, relaxed=relaxed, squash=squash, ensembles=ensembles,
        replicas=replicas, swap_every=swap_every, keep=keep, decode=decode, checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )  # fmt: skip
    if forecast is not None:
        forecast(str(forecast_of(question)))
    if at_least(1, "ladders", ladders) > 1:
        parts = question.split(ladders)
        return pooled(list(mapped(answer, parts, engine, description="ladders", total=ladders)))
    if checked_engine(engine) != "here":
        raise InputError(f"expected at least 2 ladders to run on {engine!r}, got 1; pass ladders=4, say")
    return answer(question)


def answer(question: Question) -> OutputDistribution:
    """One run from start to end; if it fails, the error carries the distribution so far."""
    run, edges = question.run(), question.edges
    try:
        found = _finished(run, question.keeper())
    except SamplingError as error:
        if error.partial is not None:
            error.partial = question.squashing.undone(error.partial, edges)
        raise
    found = question.squashing.undone(found, edges)
    scale = found.normalisation if question.checked_base is None else "base"
    named = dataclasses.replace(found, output_name=question.output_name, normalisation=scale)
    return named if question.text_of is None else _with_texts(named, question.text_of)


def _finished(run: Run, keeper: Keeper) -> OutputDistribution:
    """Sample to the end of the budget; if that fails, the error carries the distribution so far."""
    try:
        if not keeper.resume(run):
            run.begin()
        for _ in progress(_percents(run, keeper), "sampling", total=100):
            pass
        keeper.keep(run, now=True)
        dist = run.distribution()
        if dist is None or dist.diagnostics["time_blocks"] < LEAST_BLOCKS:
            raise SamplingError(
                "expected a budget that reaches past burn-in, but it was spent while the sampler was still "
                "settling; give at least ten times as many evaluations or seconds"
            )
        if not dist.visited.any():
            raise SamplingError(
                f"expected bins that some outputs fall in, got {dist.edges[0]:.4g} to "
                f"{dist.edges[-1]:.4g} while all outputs lay between {_range(run.seen)}; "
                "choose bins inside that range, or pass bins=40"
            )
    except SamplingError as error:
        error.partial = run.distribution()
        raise
    return dist


def _percents(run: Run, keeper: Keeper) -> Iterator[int]:
    """Advance to the end; yields once for every hundredth of the budget."""
    done = 0
    while not run.finished:
        run.advance()
        keeper.keep(run)
        reached = min(100, int(100 * run.budget.fraction(run.problem.evaluations)))
        yield from range(done, reached)
        done = max(done, reached)


def _range(seen: tuple[float, float] | None) -> str:
    return "other values" if seen is None else f"{seen[0]:.4g} and {seen[1]:.4g}"


def _with_texts(dist: OutputDistribution, text_of: Callable[[Tensor], str]) -> OutputDistribution:
    texts = [text_of(row) for row in dist.kept.inputs]
    return dataclasses.replace(dist, kept=dataclasses.replace(dist.kept, texts=texts))
