"""`assay score`: the verdicts of a saved guard on new data, as a table."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, within
from assay.cli.places import Written
from assay.cli.saved_guard import NetworkOfGuard, SavedGuard, guard_at
from assay.cli.status import ALARM, UNDECIDED
from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Verdict
    from assay.guard import AnyGuard

NewData = Annotated[
    str, typer.Option(help="Data to score, with or without labels: a file, a folder, or `digits`.")
]
Table = Annotated[
    Path, typer.Option(help="Where the verdicts go: .csv or .parquet, a row per prediction."), Written()
]
BatchSize = Annotated[int, typer.Option(help="Inputs judged, and written, at a time.", min=1)]
MostAlarms = Annotated[
    float | None,
    typer.Option(help="Gate on the interval of the share of alarms.", callback=within(0, 1)),
]


@dataclass
class Count:
    """How many rows were written, and how many are under alarm."""

    rows: int = 0
    alarms: int = 0


def score(
    guard: SavedGuard,
    network: NetworkOfGuard = None,
    *,
    data: NewData,
    output: Table = Path("verdicts.csv"),
    batch_size: BatchSize = 256,
    most_alarms: MostAlarms = None,
    as_json: ForMachines = False,
) -> None:
    """Score data with a saved guard: prediction, score, alarm and reasons of every row, as a table.

    Rows are written as they are judged, so that the table may be larger than the memory; a folder of files
    is read file by file. The table is there whole, or not at all.

    Exit status: 0 scored, 1 the gate of --most-alarms failed, 2 wrong use, 3 it could not be decided.

    Example: `assay score guard.safetensors my.models:trained --data new.npz --output verdicts.csv`
    """
    from assay.cli.verdict_file import ENDINGS
    from assay.statistics import wilson_interval
    from assay.storage import write_whole

    if output.suffix not in ENDINGS:
        raise InputError(f"expected --output to end in {' or '.join(ENDINGS)}, got {output}; rename it")
    loaded, count = guard_at(guard, network), Count()
    loaded.decided_threshold()  # an error before any work
    write_whole(output, lambda path: _write(loaded, data, path, output.suffix, batch_size, count))
    interval = wilson_interval(count.alarms, count.rows)
    _print(count, interval, output, as_json)
    if most_alarms is not None:
        _leave_by_gate(interval, most_alarms)


def _write(guard: "AnyGuard", data: str, path: str, ending: str, size: int, count: Count) -> None:
    from assay.cli.verdict_file import verdict_file

    with verdict_file(path, ending) as file:
        start = 0
        for inputs in _batches(data, size):
            verdict = guard(inputs)
            file.add(_frame(verdict, start))
            count.rows += len(verdict)
            count.alarms += int(verdict.alarm.sum())
            start += len(inputs)
    if not count.rows:
        raise InputError(f"expected at least one row in {data}, got none; check the file")


def _batches(data: str, size: int) -> Iterator[Any]:
    """The inputs, some at a time; those of a folder of files, file by file."""
    from assay.cli.network_reference import data_or_inputs_at
    from assay.data.pieces import files_of, holds_pieces
    from assay.data.raw_batches import is_pair
    from assay.network import rows

    sources = map(str, files_of(Path(data))) if holds_pieces(Path(data)) else iter([data])
    for source in sources:
        found = data_or_inputs_at(source)
        inputs = found[0] if is_pair(found) else found
        for start in range(0, len(inputs), size):
            yield rows(inputs, slice(start, start + size))


def _frame(verdict: "Verdict", start: int) -> Any:
    """The verdict with the number of the input that each row came from, counted over all of them."""
    frame = verdict.to_frame()
    if "source" in frame:
        return frame.rename(columns={"source": "input"}).assign(input=frame["source"] + start)
    frame.insert(0, "input", range(start, start + len(frame)))
    return frame


def _print(count: Count, interval: tuple[float, float], output: Path, as_json: bool) -> None:
    share = count.alarms / count.rows
    if as_json:
        facts = {"rows": count.rows, "alarms": count.alarms, "share": share}
        print_json(facts | {"lower": interval[0], "upper": interval[1], "output": str(output)})
        return
    print(
        f"{count.rows:,} rows, {count.alarms:,} under alarm: {share:.1%} "
        f"(95 % interval {interval[0]:.1%} to {interval[1]:.1%})\nsaved to {output}"
    )


def _leave_by_gate(interval: tuple[float, float], most: float) -> None:
    """Return if the whole interval lies at or below what is allowed; otherwise say why not and exit."""
    lower, upper = interval
    if upper <= most:
        return
    found = f"the share of alarms lies between {lower:.4g} and {upper:.4g}"
    failed = lower > most
    words = (
        f"gate failed: {found}, above the {most:g} allowed"
        if failed
        else f"cannot decide: {found}, on both sides of the {most:g} allowed; pass more data"
    )
    print(words, file=sys.stderr)
    raise typer.Exit(ALARM if failed else UNDECIDED)
