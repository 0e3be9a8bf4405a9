"""observe piece by piece: into a folder of shards, on an engine, or both, with the rows of one run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from assay.data.pieces import Place, check_reachable, files_of, is_place, rows_at
from assay.engine import checked_engine, mapped
from assay.errors import InputError, StorageError
from assay.identity import digest, file_hash
from assay.network.gathered_rows import GatheredRows
from assay.network.inputs import KeepInputs, each, length
from assay.sharded_trace import Manifest, ShardedTrace
from assay.storage import save
from assay.trace import Inputs, Trace

if TYPE_CHECKING:
    from assay.network.network import Network

ROWS = 65_536
"""Inputs of a shard, where data comes in memory or in batches."""

SENT = 1024
"""Inputs of a piece that is sent to a worker and comes back as rows: few enough that every worker has one."""

Batch = tuple[Inputs, Any]


@dataclass(frozen=True)
class Piece:
    """A part of the data that one worker observes: batches that it is sent, or a place that it reads."""

    number: int
    batches: tuple[Batch, ...] = ()
    place: Place | None = None
    ignored: int = 0
    """Rows left out before, since their label is to be ignored."""

    def identity(self) -> str:
        """A hash of what the network is given."""
        if isinstance(self.place, Path):
            return file_hash(self.place)
        if self.place is not None:
            return digest(rows_at(self.place))
        return digest([[inputs, labels] for inputs, labels in self.batches])


@dataclass(frozen=True)
class _Observer:
    """Observes one piece, in whichever process it is called; with a folder, into a file of it."""

    network: "Network"
    keep_inputs: KeepInputs
    folder: Path | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, piece: Piece) -> tuple[Trace | int, str | None]:
        trace = (
            self.observed(piece.batches, piece.ignored)
            if piece.place is None
            else self.observed(self.read(piece.place))
        )
        if self.folder is None:
            return trace, None
        save(trace, Manifest(self.folder, {}).file(piece.number))
        return len(trace), piece.identity()

    def observed(self, batches: Any, ignored: int = 0) -> Trace:
        gathered = GatheredRows()
        for inputs, rows in self.network._observed(batches, self.keep_inputs):
            gathered.add(rows, inputs if self.keep_inputs else None)
        return gathered.trace(ignored=getattr(batches, "ignored", ignored))

    def read(self, place: Place) -> Any:
        return self.network.batches(rows_at(place), **self.options)


def observed_in_pieces(
    network: "Network",
    data: Any,
    keep_inputs: KeepInputs,
    options: Mapping[str, Any],
    *,
    engine: str = "here",
    workers: int | None = None,
) -> Trace:
    """The Trace of all pieces, in their order."""
    check_reachable(data, checked_engine(engine, workers))
    observer = _Observer(network, keep_inputs, None, options)
    pieces = _settled(observer, _pieces(network, data, SENT, copied=engine != "here", **options))
    results = mapped(observer, pieces, engine, workers=workers, description="observing")
    return Trace.concatenate(trace for trace, _ in results if isinstance(trace, Trace))


def observed_to_folder(
    network: "Network",
    folder: str | PathLike[str],
    data: Any,
    keep_inputs: KeepInputs,
    *,
    engine: str = "here",
    workers: int | None = None,
    shard_rows: int = ROWS,
    **options: Any,
) -> ShardedTrace:
    """The shards of all pieces, each listed when it is on disk."""
    check_reachable(data, checked_engine(engine, workers))
    if shard_rows < 1:
        raise InputError(f"expected shards of at least 1 row, got {shard_rows}")
    watched = {"network": network.fingerprint, "layers": list(network.layers)}
    manifest = Manifest.begin(folder, watched | {"keep_inputs": keep_inputs, "shard_rows": shard_rows})
    observer = _Observer(network, keep_inputs, Path(folder), options)
    pieces = _settled(observer, _pieces(network, data, shard_rows, copied=engine != "here", **options))
    left = _left_to_do(pieces, manifest)
    for rows, identity in mapped(observer, left, engine, workers=workers, description="observing"):
        assert isinstance(rows, int)
        manifest.list(rows, identity)
    return manifest.finish()


def _pieces(network: "Network", data: Any, shard_rows: int, copied: bool, **options: Any) -> Iterator[Piece]:
    """The data cut into pieces; those in memory as copies where they travel, since a view of a tensor would
    take the whole of it along."""
    if is_place(data):
        for number, place in enumerate(files_of(data)):
            yield Piece(number, place=place)
        return
    held: list[Batch] = []
    number = counted = 0
    batches = network.batches(data, **options)
    for inputs, labels in batches:
        held.append((each(inputs, torch.clone) if copied else inputs, labels))
        if sum(length(part) for part, _ in held) >= shard_rows:
            yield Piece(number, tuple(held), ignored=batches.ignored - counted)
            held, number, counted = [], number + 1, batches.ignored
    if held:
        yield Piece(number, tuple(held), ignored=batches.ignored - counted)


def _settled(observer: _Observer, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same pieces; the first batch shows what the outputs of the network are, before copies of it
    travel."""
    first = next(pieces, None)
    if first is None:
        raise InputError("expected at least one input, got none; pass data that is not empty")
    if observer.network.outputs is None:
        batches = first.batches if first.place is None else observer.read(first.place)
        observer.observed(islice(iter(batches), 1))
    return chain([first], pieces)


def _left_to_do(pieces: Iterator[Piece], manifest: Manifest) -> Iterator[Piece]:
    """The pieces that no shard has yet; those that have one must be the same as then."""
    known, number = list(manifest.entries), -1
    for piece in pieces:
        number = piece.number
        if number >= len(known) and not manifest.complete:
            yield piece
        elif number >= len(known) or piece.identity() != known[number]["data"]:
            raise _other_data(manifest)
    if number + 1 < len(known):
        raise _other_data(manifest)


def _other_data(manifest: Manifest) -> StorageError:
    return StorageError(
        f"expected to go on with the run in {manifest.folder}, got other data than it began with; choose "
        "another folder"
    )
