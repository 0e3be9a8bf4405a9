"""`assay merge`: add up what many devices counted."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.count_files import count_files, counted_rows, in_order_once
from assay.cli.json_output import print_json
from assay.cli.live_rows import watched_counts
from assay.cli.options import ForMachines
from assay.cli.places import Written
from assay.errors import InputError, StorageError

PART = 1000
"""Files that are added up in one job."""
SHOWN = 20
"""Broken files that a message names."""


def merge(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Saved Histograms, counts kept by a service or a Watch, or PredictionCounts: files, "
            "folders, patterns in quotes, or @list.txt with a name per line."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Where the sum goes."), Written()] = Path("merged.safetensors"),
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Of services and Watches, add up what assay accuracy needs.")
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out files that cannot be read, and name them.")
    ] = False,
    engine: Annotated[str, typer.Option(help="Where files are read: here, processes or ray.")] = "here",
    as_json: ForMachines = False,
) -> None:
    """Add up the counts of many devices, a few files in memory at a time.

    The result is a Histogram for `assay reshape`; of PredictionCounts, and with --accuracy, it is
    PredictionCounts for `assay accuracy`. It does not depend on the order or the names of the files.

    Exit status: 0 fine, 2 wrong use (names the files that are damaged, repeated or count something else).

    Example: `assay merge devices/ --output fleet.safetensors`
    """
    import assay
    from assay.engine import checked_engine

    checked_engine(engine)
    paths, broken = in_order_once(count_files(files, but=output))
    found = _sum_of_parts(paths, accuracy, engine)
    broken = {**broken, **found.broken}
    if broken and not (skip_broken and found.files):
        raise InputError(_naming(broken))
    assay.save(found.total, output)
    rows = counted_rows(found.total)
    facts = {"files": found.files, "kind": type(found.total).__name__, "inputs": rows, "output": str(output)}
    if broken:
        typer.echo(f"assay: left out {len(broken):,} files: {_naming(broken)}", err=True)
    if as_json:
        print_json(facts | ({"broken": sorted(broken)} if skip_broken else {}))
        return
    print(f"{rows:,} inputs of {found.files:,} files, saved to {output}")


@dataclass
class PartSum:
    """The sum of some files, and what stands out among them."""

    total: Any = None
    files: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    streams: dict[str, str] = field(default_factory=dict)
    """The file of each stream that services and Watches counted."""


def _sum_of_parts(paths: Sequence[str], accuracy: bool, engine: str) -> PartSum:
    from assay.engine import mapped

    parts = [paths[start : start + PART] for start in range(0, len(paths), PART)]
    whole = PartSum()

    def sums() -> Iterator[Any]:
        jobs = mapped(partial(_part_sum, accuracy), parts, engine, description="merging", total=len(parts))
        first: tuple[Any, str] | None = None
        for part, files in zip(jobs, parts, strict=True):
            for stream, path in part.streams.items():
                _expect_new(whole.streams, stream, path)
            whole.broken |= part.broken
            whole.files += part.files
            if part.total is not None:
                first = first or (part.total, files[0])
                _expect_same(*first, part.total, files[0])
                yield part.total

    whole.total = tree_sum(sums())
    return whole


def _part_sum(accuracy: bool, paths: Sequence[str]) -> PartSum:
    """The sum of a part; one file and a sum for each level of the tree are in memory."""
    part = PartSum()

    def counts() -> Iterator[Any]:
        first: tuple[Any, str] | None = None
        for path in paths:
            try:
                stream, counted = _load_counts(Path(path), accuracy)
            except StorageError as error:
                part.broken[path] = str(error)
                continue
            if stream:
                _expect_new(part.streams, stream, path)
            first = first or (counted, path)
            _expect_same(*first, counted, path)
            part.files += 1
            yield counted

    part.total = tree_sum(counts())
    return part


def tree_sum(counts: Iterable[Any]) -> Any:
    """The sum by pairs of pairs: rounding, and sums in memory, grow with the logarithm of their number.

    >>> tree_sum(range(1, 101)), tree_sum([])
    (5050, None)
    """
    levels: list[Any] = []  # levels[k] is the sum of 2**k counts, or None
    for carried in counts:
        level = 0
        while level < len(levels) and levels[level] is not None:
            carried, levels[level] = levels[level] + carried, None
            level += 1
        levels[level : level + 1] = [carried]
    total = None
    for one in levels:
        total = one if total is None else total if one is None else one + total
    return total


def _expect_new(streams: dict[str, str], stream: str, path: str) -> None:
    if stream in streams:
        raise InputError(
            f"expected each device once, got two states of one in {streams[stream]} and {path}; pass the "
            "newer alone"
        )
    streams[stream] = path


def _expect_same(first: Any, first_path: str, counted: Any, path: str) -> None:
    """Refuse what cannot be added up, before it is part of a sum and has no name any more."""
    import assay

    try:
        if type(first) is not type(counted):
            raise InputError(f"a {type(counted).__name__} beside a {type(first).__name__}")
        if isinstance(first, assay.Histogram):
            first.check_same_bins(counted)
        elif first.estimator != counted.estimator:
            first + counted  # which says why not
    except InputError as error:
        raise InputError(f"{path} cannot be added to {first_path}: {error}") from error


def _load_counts(path: Path, accuracy: bool) -> tuple[str, Any]:
    """The counts in a file, and the stream they belong to if that is known.

    They are its object, or the histogram in it or, for accuracy, the sums of predictions.
    """
    import assay
    from assay.accuracy import PredictionCounts
    from assay.operation import WatchRecord

    found, stream = assay.load(path), ""
    if isinstance(found, WatchRecord):
        stream = found.stream
        found = watched_counts(found, path) if accuracy else found.histogram
    if not isinstance(found, assay.Histogram | PredictionCounts):
        kind = "no histogram" if found is None else f"a {type(found).__name__}"
        raise InputError(f"expected a Histogram in {path}, got {kind}; save one with assay.save")
    return stream, found


def _naming(broken: dict[str, str]) -> str:
    """What is wrong with the first of the broken files, and the names of others."""
    first, *others = sorted(broken)
    if not others:
        return broken[first]
    more = "" if len(others) < SHOWN else f" and {len(others) - SHOWN + 1:,} more"
    return f"{broken[first]}; also broken: {', '.join(others[: SHOWN - 1])}{more}"
