"""`assay merge`: add up what many devices counted."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.live_rows import watched_counts
from assay.cli.options import ForMachines
from assay.cli.places import Written
from assay.errors import InputError


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(help="Saved Histograms, counts kept by a service or a Watch, or PredictionCounts."),
    ],
    output: Annotated[Path, typer.Option(help="Where the sum goes."), Written()] = Path("merged.safetensors"),
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Of services and Watches, add up what assay accuracy needs.")
    ] = False,
    as_json: ForMachines = False,
) -> None:
    """Add up the counts of many devices; only one file is in memory at a time.

    The result is a Histogram for `assay reshape`; of PredictionCounts, and with --accuracy, it is
    PredictionCounts for `assay accuracy`.

    Exit status: 0 fine, 2 wrong use (names the file that is damaged, repeated or counts something else).

    Example: `assay merge device-*.safetensors --output fleet.safetensors`
    """
    import assay

    check_each_once(files)
    total: Any = None
    for path in files:
        counted = _load_counts(path, accuracy)
        try:
            total = counted if total is None else total + counted
        except (InputError, TypeError) as error:
            raise InputError(f"{path} cannot be added to the files before it: {error}") from error
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
        if path.is_file():  # a missing file is named when it is read
            content = hashlib.blake2b(path.read_bytes()).digest()
            if content in seen:
                again = "it twice" if path == seen[content] else f"the same in {seen[content]} and in {path}"
                raise InputError(f"expected {path} once, got {again}; pass the counts of each device once")
            seen[content] = path


def _load_counts(path: Path, accuracy: bool) -> Any:
    """The counts in a file: its object, or the histogram in it or, for accuracy, the sums of predictions."""
    import assay
    from assay.accuracy import PredictionCounts
    from assay.operation import WatchRecord

    found = assay.load(path)
    if isinstance(found, WatchRecord):
        if accuracy:
            return watched_counts(found, path)
        found = found.histogram
    if not isinstance(found, assay.Histogram | PredictionCounts):
        kind = "no histogram" if found is None else f"a {type(found).__name__}"
        raise InputError(f"expected a Histogram in {path}, got {kind}; save one with assay.save")
    return found
