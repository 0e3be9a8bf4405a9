"""`assay report`: saved results as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines
from assay.cli.places import Written
from assay.errors import InputError


def report(
    results: Annotated[list[Path], typer.Argument(help="Saved results, in the order to show them.")],
    output: Annotated[Path, typer.Option(help="HTML file to write."), Written()] = Path("report.html"),
    title: Annotated[
        str, typer.Option(help="Heading of the report.")
    ] = "How far can this network be trusted?",
    network: Annotated[
        str | None, typer.Option(help="module:factory of the network, for results that need it to load.")
    ] = None,
    as_json: ForMachines = False,
) -> None:
    """Write saved results to one self-contained HTML page.

    Example: `assay report mira.safetensors benchmark.safetensors --output report.html`
    """
    import assay
    from assay.cli.network_reference import network_at
    from assay.report import Result

    known = None if network is None else network_at(network)
    found = [assay.load(path, network=known) for path in results]
    for path, thing in zip(results, found, strict=True):
        if not isinstance(thing, Result):
            raise InputError(
                f"expected a result in {path}, got a {type(thing).__name__}; "
                "pass what mira, benchmark, reshape, sample or check saved"
            )
    assay.write_report(found, output, title=title)
    facts = {"results": [thing.title for thing in found], "output": str(output)}
    if as_json:
        print_json(facts)
    else:
        print(f"{len(found)} results; report in {output}")
