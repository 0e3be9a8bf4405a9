"""`assay report`: saved results as one HTML page."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Network

Against = Annotated[
    list[Path] | None, typer.Option(help="An older result to compare with; repeated for several results.")
]


def report(
    results: Annotated[list[Path], typer.Argument(help="Saved results, in the order to show them.")],
    output: Annotated[Path, typer.Option(help="HTML file to write."), Written()] = Path("report.html"),
    title: Annotated[
        str, typer.Option(help="Heading of the report.")
    ] = "How far can this network be trusted?",
    network: Annotated[
        str | None,
        typer.Option(help="module:factory of the network, to make sure that new checks are of it."),
    ] = None,
    against: Against = None,
    as_json: ForMachines = False,
) -> None:
    """Write saved results to one self-contained HTML page.

    With --against, each is compared with an older one of its kind: the page then begins with what became
    better or worse beyond chance.

    Example: `assay report new.safetensors --against old.safetensors --output report.html`
    """
    import assay
    from assay.cli.network_reference import network_at
    from assay.report import changes

    known = None if network is None else network_at(network)
    found = [_result_at(path, known) for path in results]
    older = [_result_at(path) for path in against or []]
    if older and len(older) != len(found):
        raise InputError(
            f"expected an older result for each of {len(found)}, got {len(older)}; repeat --against in "
            "their order"
        )
    compared = [changes(new, old) for new, old in zip(found, older, strict=True)] if older else []
    assay.write_report([*compared, *found], output, title=title, origin=origin(against=_names(against)))
    facts = {"results": [thing.title for thing in found], "output": str(output)}
    if compared:
        facts["changes"] = [json.loads(one.to_frame().to_json(orient="records")) for one in compared]
    if as_json:
        print_json(facts)
    else:
        for one in compared:
            print(one.banner()[1])
        print(f"{len(found)} results; report in {output}")


def _result_at(path: Path, network: "Network | None" = None) -> Any:
    """A saved result; without its network, all that a page shows is there."""
    import assay
    from assay.report import Result
    from assay.storage import load_without_networks

    found = assay.load(path, network=network) if network else load_without_networks(path)
    if not isinstance(found, Result):
        kind = "a guard" if found is None else f"a {type(found).__name__}"
        raise InputError(
            f"expected a result in {path}, got {kind}; "
            "pass what mira, benchmark, reshape, sample or check saved"
        )
    return found


def _names(paths: list[Path] | None) -> str | None:
    return ", ".join(map(str, paths)) if paths else None
