"""Options that mean the same in every command."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.places import Written


def not_negative(seed: int | None) -> int | None:
    """A seed that every generator accepts; as a range of the option it would clutter the help."""
    if seed is not None and seed < 0:
        raise typer.BadParameter(f"expected 0 or more, got {seed}")
    return seed


ForMachines = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Report = Annotated[Path | None, typer.Option(help="Write an HTML report to this file."), Written()]
Seed = Annotated[int, typer.Option(help="Seed of all random choices.", callback=not_negative)]
