"""`assay sample`: the outputs of a model over all inputs it could get."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, Seed
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import UNDECIDED
from assay.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from assay import CausalLM, InputSpace, Network, OutputDistribution


class Kind(StrEnum):
    """The kind of model that the argument names."""

    output = "output"
    language = "language-model"
    logit = "logit"


Model = Annotated[
    str,
    typer.Argument(
        help="module:function of a batch of inputs, a Hugging Face model or its folder, or a network; "
        "see --kind."
    ),
]
WhatKind = Annotated[
    Kind,
    typer.Option(
        help="What the model is: a function (output), a language model, or one class of a network (logit)."
    ),
]
Shape = Annotated[str | None, typer.Option(help="Shape of an input: 8, or 1x28x28.")]
Values = Annotated[int, typer.Option(help="Number of values per position: 0 to this minus 1.")]
Length = Annotated[int, typer.Option(help="Tokens per sequence, for a language model.")]
Start = Annotated[
    int | None, typer.Option(help="Token before every sequence; without it the first token is free.")
]
Prompt = Annotated[
    str | None, typer.Option(help="Text before every sequence of a language model; it is not scored.")
]
End = Annotated[
    int | None, typer.Option(help="Token after which a sequence is over, so that its length may vary.")
]
Below = Annotated[
    float | None,
    typer.Option(help="List every continuation of the prompt with at most this many nats per token."),
]
TargetClass = Annotated[int, typer.Option("--class", help="Class whose logit is the output.")]
Scale = Annotated[
    float, typer.Option(help="Divide inputs by this before a network sees them: 255 for pixels.")
]
# A number such as 100 between two colons would be drawn as an emoji.
Bins = Annotated[str | None, typer.Option(help="Bins as low:high:number, such as 0:72:36, or just a number.")]
Evaluations = Annotated[int | None, typer.Option(help="Maximum number of model evaluations.")]
Seconds = Annotated[float | None, typer.Option(help="Maximum number of seconds.")]
Sampler = Annotated[str, typer.Option(help="auto, tempering, multicanonical or importance.")]
Kernels = Annotated[list[str] | None, typer.Option(help="A kind of move; may be repeated.")]
Ladders = Annotated[int, typer.Option(help="Number of independent runs that share the budget.")]
Engine = Annotated[str, typer.Option(help="Where ladders run: here, processes or ray.")]
Kept = Annotated[
    Path | None,
    typer.Option(help="Checkpoint file; an interrupted run continues from it."),
    Written(kept=True),
]
Download = Annotated[
    bool,
    typer.Option("--allow-download", help="Allow downloads of language models from the Hugging Face hub."),
]
Output = Annotated[Path, typer.Option(help="File to save the distribution to."), Written()]


def sample(
    model: Model,
    kind: WhatKind = Kind.output,
    shape: Shape = None,
    values: Values = 2,
    length: Length = 25,
    start: Start = None,
    prompt: Prompt = None,
    end: End = None,
    below: Below = None,
    target_class: TargetClass = 0,
    scale: Scale = 1.0,
    bins: Bins = None,
    budget: Evaluations = None,
    seconds: Seconds = None,
    sampler: Sampler = "auto",
    kernel: Kernels = None,
    seed: Seed = 0,
    ladders: Ladders = 1,
    engine: Engine = "here",
    checkpoint: Kept = None,
    output: Output = Path("outputs.safetensors"),
    report: Report = None,
    allow_download: Download = False,
    as_json: ForMachines = False,
) -> None:
    """Estimate how many of all possible inputs a model maps to each output. Status 3 if it did not converge.

    With --below, list what a language model has memorised after a prompt instead, each text once.

    Example: `assay sample mine:score --shape 8 --values 10 --bins 0:72:36 --budget 200000`
    """
    import assay

    if prompt is not None or below is not None or end is not None:
        kind = Kind.language
    if below is not None:
        lm, _, _ = _language_model(model, length, start, prompt, end, allow_download)
        _list_memorised(lm, below, budget, output, as_json)
        return

    edges = _edges(bins)
    source, space, decode = _source(
        kind, model, shape, values, length, start, prompt, end, target_class, scale, allow_download
    )
    with _partial_kept(output):
        dist = assay.sample_outputs(
            source, space, bins=edges, budget=budget, seconds=seconds, sampler=sampler,
            kernel=kernel or "auto", seed=seed, ladders=ladders, engine=engine, decode=decode,
            checkpoint=checkpoint, forecast=None if as_json else _say,
        )  # fmt: skip
    assay.save(dist, output)
    if report:
        assay.write_report([dist], report, origin=origin())
    _print(dist, output, as_json)
    if not dist.converged:
        raise typer.Exit(UNDECIDED)


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


@contextmanager
def _partial_kept(output: Path) -> Iterator[None]:
    """If sampling must stop, save the distribution so far before the error is raised again."""
    from assay import save
    from assay.omniinput.sampling.problem import SamplingError

    try:
        yield
    except SamplingError as error:
        if error.partial is not None:
            save(error.partial, output)
            print(f"the distribution so far is in {output}")
        raise


def _source(
    kind: Kind,
    model: str,
    shape: str | None,
    values: int,
    length: int,
    start: int | None,
    prompt: str | None,
    end: int | None,
    target_class: int,
    scale: float,
    allow_download: bool,
) -> "tuple[Any, InputSpace | None, Any]":
    """The output function or language model, its space, and a function that decodes inputs to text."""
    from assay.cli.network_reference import callable_at

    if kind is Kind.language:
        return _language_model(model, length, start, prompt, end, allow_download)
    space = _space(shape, values)
    if kind is Kind.logit:
        return _logit(model, space, target_class, scale), space, None
    return callable_at(model), space, None


def _space(shape: str | None, values: int) -> "InputSpace":
    from assay import InputSpace

    sizes = (shape or "").split("x")
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise InputError(f"expected a shape such as 8 or 1x28x28, got {shape!r}; give --shape")
    return InputSpace(tuple(int(size) for size in sizes), values)


def _language_model(
    model: str, length: int, start: int | None, prompt: str | None, end: int | None, allow_download: bool
) -> "tuple[CausalLM, None, Any]":
    """A Hugging Face model with its tokenizer, or the CausalLM that module:name is or returns."""
    from assay import CausalLM
    from assay.cli.network_reference import made, named
    from assay.omniinput.sampling.pretrained import pretrained

    if ":" in model:
        if prompt is not None or end is not None:
            raise InputError(
                f"expected a Hugging Face model with --prompt or --end, got {model}; give them to its "
                "assay.CausalLM"
            )
        found = named(model)
        found = found if isinstance(found, CausalLM) else made(found, model)
        if not isinstance(found, CausalLM):
            raise InputError(
                f"expected {model} to be or to return an assay.CausalLM, got {type(found).__name__}; "
                "wrap its next-token logits in assay.CausalLM"
            )
        return found, None, None
    tokenizer = pretrained("AutoTokenizer", model, allow_download)
    lm = CausalLM.from_huggingface(
        model, length, start=start, prompt=prompt, end=end, tokenizer=tokenizer,
        allow_download=allow_download,
    )  # fmt: skip
    return lm, None, tokenizer.decode


def _logit(model: str, space: "InputSpace", target_class: int, scale: float) -> Any:
    from assay.cli.network_reference import network_at

    if not 0 < scale < math.inf:
        raise InputError(f"expected a --scale above 0, got {scale}; give the largest value, such as 255")
    network = network_at(model)
    classes = _classes(network, space.shape)
    if not 0 <= target_class < classes:
        raise InputError(f"expected a --class of 0 to {classes - 1}, got {target_class}; choose one of these")

    def logit(inputs: "Tensor") -> "Tensor":
        return network(inputs.float() / scale)[:, target_class]

    return logit


def _classes(network: "Network", shape: tuple[int, ...]) -> int:
    """The number of logits on inputs of this shape; the error suggests a shape that works."""
    import torch

    def logits(sizes: tuple[int, ...]) -> int:
        with torch.no_grad():
            return network(torch.zeros(2, *sizes)).shape[1]  # a single row could be mistaken for one channel

    def takes(sizes: tuple[int, ...]) -> bool:
        try:
            return bool(logits(sizes))
        except InputError:
            return False

    try:
        return logits(shape)
    except InputError as error:
        others = ((1, *shape), (3, *shape), (math.prod(shape),), shape[1:])
        fitting = next((sizes for sizes in others if takes(sizes)), None)
        if fitting is None:
            raise
        asked, better = ("x".join(map(str, sizes)) for sizes in (shape, fitting))
        raise InputError(
            f"expected a --shape that the network takes, got {asked}; give --shape {better}"
        ) from error


def _edges(bins: str | None) -> Any:
    import numpy as np

    if bins is None:
        return None
    wanted, advice = "expected bins as low:high:number or a number", "give, for example, --bins 0:72:36"
    if bins.isdecimal() and int(bins):
        return int(bins)
    try:
        *ends, number = bins.split(":")
        (low, high), count = map(float, ends), int(number)
    except ValueError as error:
        raise InputError(f"{wanted}, got {bins!r}; {advice}") from error
    if not (-math.inf < low < high < math.inf and count >= 1):
        raise InputError(f"{wanted} with low below high, got {bins!r}; {advice}")
    return np.linspace(low, high, count + 1)


def _list_memorised(lm: "CausalLM", below: float, budget: int | None, output: Path, as_json: bool) -> None:
    """Print and save every continuation below a loss; status 3 if the budget ended before the search."""
    import assay

    found = assay.memorised(lm, below, **({} if budget is None else {"budget": budget}))
    assay.save(found, output)
    frame = found.to_frame()
    if as_json:
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
        print_json({"continuations": rows, "complete": found.complete, "output": str(output)})
    else:
        print(found.summary())
        print(frame.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
        print(f"saved to {output}")
    if not found.complete:
        raise typer.Exit(UNDECIDED)


def _print(dist: "OutputDistribution", output: Path, as_json: bool) -> None:
    if as_json:
        frame = json.loads(dist.to_frame().to_json(orient="records", double_precision=15))
        facts = {"bins": frame, "converged": dist.converged, "reasons": list(map(str, dist.reasons))}
        print_json(facts | {"output": str(output)})
        return
    print(dist.summary())
    shown = dist.to_frame()[["lower", "upper", "log_density", "error", "effective_sample_size", "samples"]]
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    print(f"saved to {output}")
