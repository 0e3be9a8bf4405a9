"""Options that mean the same in every command."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.places import Written


def not_negative(seed: int | None) -> int | None:
    """A seed as all generators take it; as a range of the option it would crowd the help."""
    if seed is not None and seed < 0:
        raise typer.BadParameter(f"expected 0 or more, got {seed}")
    return seed


ForMachines = Annotated[bool, typer.Option("--json", help="Print for machines.")]
Report = Annotated[Path | None, typer.Option(help="Where the report goes, as HTML."), Written()]
Seed = Annotated[int, typer.Option(help="Every random choice follows from it.", callback=not_negative)]


def with_finite_numbers(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which refuses NaN and infinity in every option: a gate at NaN neither passes nor fails."""

    @functools.wraps(command)
    def careful(**given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                option = f"--{name.replace('_', '-')}"
                raise typer.BadParameter(f"expected a finite number for {option}, got {value}")
        command(**given)

    return careful
