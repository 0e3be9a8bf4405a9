"""`assay merge`: what many devices counted, added up."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import ForMachines
from assay.cli.places import Written
from assay.errors import InputError


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(help="Saved Histograms, counts kept by a service or a Watch, or PredictionCounts."),
    ],
    output: Annotated[Path, typer.Option(help="Where the sum goes."), Written()] = Path("merged.safetensors"),
    as_json: ForMachines = False,
) -> None:
    """Add up the histograms of many devices into one; one file is held at a time.

    The result is a Histogram for `assay reshape`; of PredictionCounts it is PredictionCounts.

    Exit status: 0 fine, 2 wrong use (a file that is damaged, counts something else or comes twice is named).

    Example: `assay merge device-*.safetensors --output fleet.safetensors`
    """
    import assay

    check_each_once(files)
    total: Any = None
    for path in files:
        counted = _counted(path)
        try:
            total = counted if total is None else total + counted
        except (InputError, TypeError) as error:
            raise InputError(f"{path} does not add up with the files before it: {error}") from error
    assay.save(total, output)
    rows = total.total if isinstance(total, assay.Histogram) else total.rows
    facts = {"files": len(files), "kind": type(total).__name__, "inputs": rows, "output": str(output)}
    if as_json:
        print(json.dumps(facts))
        return
    print(f"{rows:,} inputs of {len(files):,} files, saved to {output}")


def check_each_once(files: list[Path]) -> None:
    """Refuse a file that is counted twice, also under another name."""
    seen: dict[bytes, Path] = {}
    for path in files:
        if path.is_file():  # what is not there is named when it is read
            content = hashlib.blake2b(path.read_bytes()).digest()
            if content in seen:
                again = "it twice" if path == seen[content] else f"the same in {seen[content]} and in {path}"
                raise InputError(f"expected {path} once, got {again}; pass what each device counted once")
            seen[content] = path


def _counted(path: Path) -> Any:
    """What can be added: the file's object, or the histogram in it."""
    import assay
    from assay.accuracy import PredictionCounts
    from assay.operation import WatchRecord

    found = assay.load(path)
    if isinstance(found, WatchRecord):
        found = found.histogram
    if not isinstance(found, assay.Histogram | PredictionCounts):
        held = "no histogram" if found is None else f"a {type(found).__name__}"
        raise InputError(f"expected a Histogram in {path}, got {held}; save one with assay.save")
    return found
