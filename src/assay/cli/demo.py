"""`assay demo`: a tour of assay, on networks trained on the spot."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Seed
from assay.cli.places import Written


def demo(
    output: Annotated[Path, typer.Option(help="HTML file to write."), Written()] = Path("report.html"),
    seed: Seed = 0,
    as_json: ForMachines = False,
) -> None:
    """Train three small networks on bundled digits and show what assay can tell about them.

    Example: `assay demo --output report.html`
    """
    from assay.demo.tour import run_demo

    sections = run_demo(output, seed, quiet=as_json)
    if as_json:
        names = ("title", "question", "words", "advice")
        chapters = [{name: getattr(section, name) for name in names} for section in sections]
        print_json({"chapters": chapters, "output": str(output)})
