"""sample_outputs: the output distribution of a model over its whole input space."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from assay.engine import checked_engine, mapped, progress
from assay.errors import InputError
from assay.omniinput.model_identity import model_identity
from assay.omniinput.sampling import assembly
from assay.omniinput.sampling.checkpoint import Keeper, Run
from assay.omniinput.sampling.density_estimate import LEAST_BLOCKS
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.joined_ladders import pooled
from assay.omniinput.sampling.kernels import kernels_of
from assay.omniinput.sampling.kernels.chain import Kernel
from assay.omniinput.sampling.kernels.suffix import LanguageProblem, Suffix
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.plan import DEFAULT_BINS, Budget, Plan
from assay.omniinput.sampling.problem import OutputFunction, Problem, SamplingError
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.importance_then_tempering import ImportanceThenTempering
from assay.omniinput.sampling.samplers.multicanonical import Multicanonical
from assay.omniinput.sampling.samplers.tempering import Tempering
from assay.omniinput.sampling.space import InputSpace
from assay.omniinput.sampling.squash import Squash

Array = NDArray[np.float64]

DEFAULT_BUDGET = 200_000
SAMPLERS = ("auto", "tempering", "multicanonical", "importance")


def sample_outputs(
    output_fn: OutputFunction | CausalLM,
    space: InputSpace | None = None,
    *,
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
) -> OutputDistribution:
    """How many of all possible inputs the model maps to each output value (paper section 2.1).

    output_fn maps a (B, *shape) integer tensor to (B,) outputs; a `CausalLM` brings its own space and is
    scored by its negative log-likelihood in nats. bins: edges of the output bins, or how many to lay over
    what is found. budget counts model evaluations (inputs through the model; for a language model, whole
    sequences), seconds is wall-clock time; sampling ends with whichever comes first (200,000 evaluations if
    neither is given).

    sampler: "tempering" for any model; "multicanonical" as an independent second opinion; "importance" for a
    CausalLM; "auto" is importance sampling with tempering where it is weak for a CausalLM, else tempering.
    kernel names one or several of the moves in `assay.omniinput.sampling.kernels`; "tilted", "informed" and "langevin"
    need gradients, through `relaxed` (a function of one-hot inputs) or an output_fn that takes floats.

    squash=(centre, length) tempers a function of the output that flattens out away from the centre, where
    most inputs lie, instead of the output itself: for outputs that jump between neighbouring temperatures,
    so that swaps are refused however near these are. Bins and result are those of the output.

    With `checkpoint`, the run is written there every `checkpoint_every` seconds and taken up from there if
    the file exists; the result is the one an uninterrupted run gives. A run of another model is refused. If
    sampling must stop (NaN, too small a budget), the error's `partial` holds the distribution so far. The
    paper samples by tempering with single-site moves and reweights on the reported bins, which is biased;
    docs/papers/omniinput.md has the differences. Time is that of the model plus little: replicas of all
    ensembles share each model call.

    With ladders > 1, as many independent runs share the budget, each with seeds of its own, and are joined by
    the precision of each in each bin; they need bins. `engine` says where they run: "here", one after the
    other, in local "processes", or on a "ray" cluster. The result depends on seed and ladders, not on the
    engine (with `seconds` on how fast machines are). More ladders adapt more often, so each needs enough.
    """
    if _at_least(1, "ladders", ladders) > 1:
        options = {
            "bins": bins, "sampler": sampler, "kernel": kernel, "relaxed": relaxed, "squash": squash,
            "ensembles": ensembles, "replicas": replicas, "swap_every": swap_every, "keep": keep,
            "decode": decode, "checkpoint_every": checkpoint_every,
        }  # fmt: skip
        parts = Ladders(budget, seconds, seed, checkpoint, ladders).parts()
        return _joined(partial(_part, output_fn, space, options), parts, engine, bins)
    if checked_engine(engine) != "here":
        raise InputError(f"expected at least 2 ladders to run on {engine!r}, got 1; pass ladders=4, say")
    lm = output_fn if isinstance(output_fn, CausalLM) else None
    where = _checked_space(lm, space)
    edges = _edges(bins)
    squashing = _squashing(squash, lm, edges)
    plan = Plan(
        edges=edges if squashing is None or edges is None else squashing.edges(edges),
        bins=bins if isinstance(bins, int) else DEFAULT_BINS,
        seed=seed,
        ensembles=_at_least(1, "ensembles", ensembles),
        replicas=None if replicas is None else _at_least(2, "replicas", replicas),
        swap_every=_at_least(1, "swap_every", swap_every),
        keep=_at_least(1, "keep", keep),
    )
    kernels = _kernels(lm, sampler, kernel)
    function, soft = (output_fn, relaxed) if squashing is None else _squashed(squashing, output_fn, relaxed)
    run = _run(sampler, lm, function, where, kernels, soft, plan, _budget(budget, seconds))
    model = None if checkpoint is None else model_identity(output_fn, relaxed)
    keeper = Keeper(checkpoint, where, f"{sampler} {kernels}", model, checkpoint_every)
    try:
        dist = _finished(run, keeper)
    except SamplingError as error:
        error.partial = _unsquashed(squashing, error.partial, edges)
        raise
    dist = _unsquashed(squashing, dist, edges) or dist
    named = dataclasses.replace(
        dist, output_name="output" if lm is None else "negative log-likelihood (nats)"
    )
    return named if decode is None else _with_texts(named, decode)


@dataclasses.dataclass(frozen=True)
class Ladders:
    """What independent runs share; `seconds` are those of all together."""

    budget: int | None
    seconds: float | None
    seed: int
    checkpoint: str | os.PathLike[str] | None
    count: int

    def parts(self) -> list[dict[str, Any]]:
        """What each run has of its own."""
        if self.budget is None and self.seconds is None:
            return dataclasses.replace(self, budget=DEFAULT_BUDGET).parts()
        seeds = np.random.SeedSequence(self.seed).generate_state(self.count)
        return [
            {
                "budget": None if self.budget is None else max(1, self.budget // self.count),
                "seconds": None if self.seconds is None else self.seconds / self.count,
                "seed": int(seed),
                "checkpoint": None if self.checkpoint is None else f"{self.checkpoint}.{number}",
            }
            for number, seed in enumerate(seeds)
        ]


def _part(output_fn: Any, space: InputSpace | None, options: dict[str, Any], part: dict[str, Any]) -> Any:
    return sample_outputs(output_fn, space, **options, **part)


def _joined(
    sample: Callable[[dict[str, Any]], Any], parts: list[dict[str, Any]], engine: str, bins: Any
) -> OutputDistribution:
    if _edges(bins) is None:
        raise InputError(
            f"expected edges of bins for {len(parts)} independent ladders, which must agree on them, got "
            f"bins={bins!r}; give, for example, numpy.linspace(0, 100, 41)"
        )
    return pooled(list(mapped(sample, parts, engine, description="ladders", total=len(parts))))


def _finished(run: Run, keeper: Keeper) -> OutputDistribution:
    """Sample to the end of the budget; an error on the way takes along what was sampled."""
    try:
        if not keeper.resume(run):
            run.begin()
        for _ in progress(_percents(run, keeper), "sampling", total=100):
            pass
        keeper.keep(run, now=True)
        dist = distribution_of(run)
        if dist is None or dist.diagnostics["time_blocks"] < LEAST_BLOCKS:
            raise SamplingError(
                "expected a budget that reaches past burn-in, but it was spent while the sampler was still "
                "settling; give at least ten times as many evaluations or seconds"
            )
        if not dist.visited.any():
            raise SamplingError(
                f"expected bins that some outputs fall in, got {dist.edges[0]:.4g} to "
                f"{dist.edges[-1]:.4g} while all outputs lay between {_seen(run)}; "
                "choose bins inside that range, or pass bins=40"
            )
    except SamplingError as error:
        error.partial = distribution_of(run)
        raise
    return dist


def distribution_of(run: Run) -> OutputDistribution | None:
    """The distribution so far; None before anything that could give one was sampled."""
    match run:
        case Tempering():
            recorded = run.record is not None and run.record.steps
            return assembly.tempering_distribution(run) if recorded else None
        case Multicanonical():
            recorded = run.pilot.record is not None and run.pilot.record.steps
            return assembly.multicanonical_distribution(run) if recorded else None
        case Importance():
            return assembly.importance_distribution(run) if len(run.blocks) else None
        case ImportanceThenTempering():
            first = distribution_of(run.importance)
            second = None if run.tempering is None else distribution_of(run.tempering)
            return assembly.combined(first, second) if first and second else first or second
    return None


def _percents(run: Run, keeper: Keeper) -> Iterator[int]:
    """Advance to the end; yields once for every hundredth of the budget."""
    done = 0
    while not run.finished:
        run.advance()
        keeper.keep(run)
        reached = min(100, int(100 * run.budget.fraction(run.problem.evaluations)))
        yield from range(done, reached)
        done = max(done, reached)


def _run(
    sampler: str,
    lm: CausalLM | None,
    output_fn: Any,
    space: InputSpace,
    kernels: list[Kernel],
    relaxed: OutputFunction | None,
    plan: Plan,
    budget: Budget,
) -> Run:
    if sampler not in SAMPLERS or (sampler == "importance" and lm is None):
        raise InputError(
            f"expected a sampler among {', '.join(SAMPLERS)} ('importance' for a CausalLM only), got "
            f"{sampler!r}; leave it at 'auto' if in doubt"
        )
    generator = torch.Generator().manual_seed(plan.seed)
    if lm is None or sampler == "multicanonical":
        function = output_fn if lm is None else lm.negative_log_likelihood
        gradients = any(kernel.gradients for kernel in kernels)
        problem = Problem(function, space, gradients, relaxed)
        kind = Multicanonical if sampler == "multicanonical" else Tempering
        return kind(problem, kernels, plan, budget, generator)
    language = LanguageProblem(lm.negative_log_likelihood, space, lm=lm)
    if sampler == "importance":
        return Importance(language, plan, budget, generator)
    if sampler == "tempering":
        return Tempering(language, kernels, plan, budget, generator)
    return ImportanceThenTempering(language, kernels, plan, budget, generator)


def _squashing(squash: tuple[float, float] | None, lm: CausalLM | None, edges: Array | None) -> Squash | None:
    if squash is None:
        return None
    if lm is not None or edges is None:
        raise InputError(
            "expected an output function and edges of bins with squash=, got "
            f"{'a CausalLM' if lm is not None else 'no edges'}; give bins, for example, as "
            "numpy.linspace(-20, 20, 41), and a language model without squash"
        )
    return Squash(*squash)


def _squashed(
    squash: Squash, output_fn: Any, relaxed: OutputFunction | None
) -> tuple[OutputFunction, OutputFunction | None]:
    def function(inputs: torch.Tensor) -> torch.Tensor:
        return squash(output_fn(inputs))

    def soft(one_hot: torch.Tensor) -> torch.Tensor:
        assert relaxed is not None
        return squash(relaxed(one_hot))

    return function, None if relaxed is None else soft


def _unsquashed(
    squash: Squash | None, dist: OutputDistribution | None, edges: Array | None
) -> OutputDistribution | None:
    if squash is None or dist is None or edges is None:
        return dist
    return squash.undone(dist, edges)


def _budget(evaluations: int | None, seconds: float | None) -> Budget:
    if evaluations is None and seconds is None:
        evaluations = DEFAULT_BUDGET
    if (evaluations is not None and evaluations < 1) or (seconds is not None and seconds <= 0):
        raise InputError(
            f"expected a positive budget, got budget={evaluations} and seconds={seconds}; "
            "give model evaluations, seconds, or both"
        )
    return Budget(None if evaluations is None else int(evaluations), seconds)


def _kernels(lm: CausalLM | None, sampler: str, choice: Any) -> list[Kernel]:
    if lm is not None and sampler != "multicanonical" and choice == "auto":
        return [Suffix()]  # which needs the likelihoods of single tokens; a flat histogram sees outputs alone
    return kernels_of(choice)


def _checked_space(lm: CausalLM | None, space: InputSpace | None) -> InputSpace:
    if (lm is None) == (space is None):
        raise InputError(
            "expected an InputSpace with an output function, and none with a CausalLM, which brings its own; "
            f"got {'neither' if space is None else 'both'}"
        )
    where = lm.space if lm is not None else space
    assert where is not None
    if where.log_size == 0.0:
        raise InputError(
            f"expected a space of at least two inputs, got one point (shape {where.shape}, {where.values} "
            f"value(s), {where.sites} free position(s)); free more positions or allow more values"
        )
    return where


def _edges(bins: ArrayLike | int | None) -> Array | None:
    if bins is None or (isinstance(bins, int) and bins >= 1):
        return None
    edges = np.asarray(bins, dtype=np.float64)
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise InputError(
            f"expected ascending, finite bin edges or a positive number of bins, got {bins!r:.80}; "
            "give, for example, numpy.linspace(0, 100, 41)"
        )
    return edges


def _at_least(least: int, name: str, value: int) -> int:
    if value < least:
        raise InputError(f"expected {name} of at least {least}, got {value}; raise it")
    return value


def _seen(run: Run) -> str:
    match run:
        case ImportanceThenTempering(tempering=Tempering() as tempering):
            return _seen(tempering)
        case Multicanonical():
            return _seen(run.pilot)
        case Tempering() if run.record is not None:
            return f"{run.record.lowest:.4g} and {run.record.highest:.4g}"
    return "other values"


def _with_texts(dist: OutputDistribution, decode: Callable[[list[int]], str]) -> OutputDistribution:
    texts = [decode(row.flatten().tolist()) for row in dist.kept.inputs]
    return dataclasses.replace(dist, kept=dataclasses.replace(dist.kept, texts=texts))
