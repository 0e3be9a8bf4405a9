"""Options that mean the same in every command."""

from pathlib import Path
from typing import Annotated

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
