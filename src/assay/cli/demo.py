"""`assay demo`: everything assay does, on networks trained here."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("report.html"),
    seed: Annotated[int, typer.Option(help="Every random choice follows from it.")] = 0,
) -> None:
    """Train three small networks on bundled digits and answer what can be asked of them.

    Example: `assay demo --output report.html`
    """
    from assay.demo import run_demo

    run_demo(output, seed)
