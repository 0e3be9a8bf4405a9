"""Options that mean the same in every command."""

from pathlib import Path
from typing import Annotated

import typer

ForMachines = Annotated[bool, typer.Option("--json", help="Print for machines.")]
Report = Annotated[Path | None, typer.Option(help="Where the report goes, as HTML.")]
Seed = Annotated[int, typer.Option(help="Every random choice follows from it.")]
