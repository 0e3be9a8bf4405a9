"""Options that mean the same in every command."""

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.places import Written


def not_negative(seed: int | None) -> int | None:
    """A seed that every generator accepts; as a range of the option it would clutter the help."""
    if seed is not None and seed < 0:
        raise typer.BadParameter(f"expected 0 or more, got {seed}")
    return seed


def within(low: float, high: float) -> Callable[[float | None], float | None]:
    """A check that a number lies in a range; as a range of the option it would clutter the help, too."""

    def checked(value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"expected a number from {low} to {high}, got {value}")
        return value

    return checked


FalseAlarmRate = Annotated[
    float, typer.Option(help="Share of good inputs on which the guard may raise the alarm.")
]
Faults = Annotated[
    list[str] | None,
    typer.Option("--fault", help="A fault of assay.faults; may be repeated. [default: the paper's]"),
]
ForMachines = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Highest = Annotated[float | None, typer.Option("--high", help="Largest value an input may take.")]
Lowest = Annotated[float | None, typer.Option("--low", help="Smallest value an input may take.")]
NetworkReference = Annotated[
    str, typer.Argument(help="module:factory that returns the network, or an .onnx file.")
]
Novelty = Annotated[list[str] | None, typer.Option(help="name=data of unknown classes; may be repeated.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report to this file."), Written()]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", callback=not_negative)]


def without_nan(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same for JSON, which has no NaN: None stands for it."""
    return {name: None if value != value else value for name, value in facts.items()}


def with_finite_numbers(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which refuses NaN and infinity in every option: a gate at NaN neither passes nor fails."""

    @functools.wraps(command)
    def checked(**arguments: Any) -> None:
        for name, value in arguments.items():
            if isinstance(value, float) and not math.isfinite(value):
                option = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"expected a finite number for {option}, got {value}")
        command(**arguments)

    return checked


Networks = Annotated[
    list[str], typer.Argument(help="module:factory that returns a network; several are ranked.")
]

LearnedFrom = Annotated[
    str, typer.Option(help="Data the networks learned from: a file or folder, or `digits`.")
]

OtherData = Annotated[str, typer.Option(help="Other data of the same kind.")]
