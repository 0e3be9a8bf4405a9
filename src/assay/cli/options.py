"""Options that mean the same in every command."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

ForMachines = Annotated[bool, typer.Option("--json", help="Print for machines.")]
Report = Annotated[Path | None, typer.Option(help="Where the report goes, as HTML.")]
Seed = Annotated[int, typer.Option(help="Every random choice follows from it.")]


def refuse_no_numbers(given: Mapping[str, Any]) -> None:
    """A gate at NaN would neither pass nor fail, and infinity is as useless."""
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise typer.BadParameter(f"expected a finite number for --{name.replace('_', '-')}, got {value}")
