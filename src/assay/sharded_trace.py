"""ShardedTrace: a Trace in a folder of files, read as far as it is used."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from assay.engine import progress
from assay.errors import InputError, StorageError
from assay.extras import expect_installed
from assay.notebook import MOST_ROWS, Shown, page_of
from assay.outputs import LOGITS
from assay.storage import (
    FORMAT_VERSION,
    MANIFEST,
    expect_readable,
    load,
    made_folder,
    mapped,
    save,
    storable,
    stored_digest,
    write_whole,
)
from assay.table import tabled
from assay.trace import Trace

KIND = "ShardedTrace"

Folder = str | os.PathLike[str]


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` of one file."""

    file: Path
    start: int
    stop: int
    digest: str

    def __len__(self) -> int:
        return self.stop - self.start

    def trace(self) -> Trace:
        """The rows as a Trace, in memory that the file is mapped to: numbers are read when they are used."""
        if not self.file.is_file():
            raise StorageError(f"expected a shard at {self.file}, found none; copy the whole folder")
        found = mapped(self.file)
        if not isinstance(found, Trace) or len(found) < self.stop:
            raise StorageError(
                f"{self.file} is not the shard that the manifest lists; write the folder again"
            )
        return found if len(self) == len(found) else found[self.start : self.stop]


@storable(KIND)
class ShardedTrace(Shown):
    """A Trace in a folder of shards: safetensors files, and a manifest with their lengths and digests.

    `for trace in sharded` gives a Trace per shard, so that everything that takes a stream of Traces takes it:
    `monitor.fit(sharded)`, `Histogram.of(sharded, bins)`. A slice and `+` give another one without reading
    anything; a mask or an index tensor gives a Trace in memory of the rows it chooses. `logits`, `labels`,
    `predictions`, `probabilities` and `correct` are read whole; features and inputs only shard by shard, or
    all with `trace()`. `network` is the fingerprint of the network that was observed, where it is known.
    """

    def __init__(self, shards: Sequence[Shard], network: str | None = None) -> None:
        if not shards:
            raise InputError("expected at least one shard, got none; write Traces with rows")
        self.shards = tuple(shards)
        self.network = network

    @classmethod
    def open(cls, folder: Folder) -> "ShardedTrace":
        """The ShardedTrace of a folder; `assay.load(folder)` does the same."""
        manifest = Manifest.read(folder)
        if not manifest.complete:
            raise StorageError(
                f"expected a finished folder of shards at {folder}, got {len(manifest.entries)} shards of a "
                "run that was stopped; run the same again, and it goes on from there"
            )
        return cls(manifest.shards(), manifest.header["network"])

    @classmethod
    def write(cls, traces: Iterable[Trace], folder: Folder, *, network: str | None = None) -> "ShardedTrace":
        """Write every Trace of a stream to a folder, a shard each; memory is that of one of them."""
        manifest = Manifest.begin(folder, {"network": network})
        if manifest.entries:
            raise StorageError(f"expected a new folder for shards, got {folder} with some; choose another")
        for trace in traces:
            manifest.add(trace)
        return manifest.finish()

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __iter__(self) -> Iterator[Trace]:
        return (shard.trace() for shard in self.shards)

    def __add__(self, other: "ShardedTrace") -> "ShardedTrace":
        return ShardedTrace.concatenate([self, other])

    @classmethod
    def concatenate(cls, parts: Iterable["ShardedTrace"]) -> "ShardedTrace":
        """The shards of all, one after another; nothing is copied."""
        found = list(parts)
        networks = {part.network for part in found if part.network is not None}
        if len(networks) > 1:
            raise InputError(
                "expected shards of one network, got those of several; observe all with the same"
            )
        return cls([shard for part in found for shard in part.shards], next(iter(networks), None))

    def __getitem__(self, rows: int | slice | Tensor) -> "Trace | ShardedTrace":
        if isinstance(rows, int):
            start = range(len(self))[rows]
            return self._cut(start, start + 1).trace()
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            return self._cut(start, stop) if step == 1 else self[torch.arange(start, stop, step)]
        return self._masked(rows) if rows.dtype == torch.bool else self._indexed(rows)

    def _cut(self, start: int, stop: int) -> "ShardedTrace":
        ends = list(accumulate(map(len, self.shards)))
        shards = [
            replace(
                shard,
                start=shard.start + max(0, start - (end - len(shard))),
                stop=shard.stop - max(0, end - stop),
            )
            for shard, end in zip(self.shards, ends, strict=True)
            if start < end and stop > end - len(shard)
        ]
        # A Trace of no rows still has its columns.
        return ShardedTrace(shards or [replace(self.shards[0], stop=self.shards[0].start)], self.network)

    def _masked(self, mask: Tensor) -> Trace:
        if mask.shape != (len(self),):
            raise InputError(f"expected a mask of {len(self)} rows, got shape {tuple(mask.shape)}")
        parts = torch.split(mask, list(map(len, self.shards)))
        chosen = [shard.trace()[part] for shard, part in zip(self.shards, parts, strict=True) if part.any()]
        return Trace.concatenate(chosen or [self.shards[0].trace()[:0]])

    def _indexed(self, rows: Tensor) -> Trace:
        numbers = torch.where(rows < 0, rows + len(self), rows)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(self):
            raise InputError(f"expected row numbers below {len(self)}, got {int(rows.max())}; choose others")
        wanted, places = torch.unique(numbers, return_inverse=True)
        mask = torch.zeros(len(self), dtype=torch.bool)
        mask[wanted] = True
        return self._masked(mask)[places]

    def trace(self) -> Trace:
        """All of it in memory."""
        return Trace.concatenate(self)

    def outputs(self) -> Trace:
        """Logits and labels in memory, without features and inputs."""
        parts = (replace(trace, features={}, inputs=None, outputs=LOGITS) for trace in self)
        return Trace.concatenate(parts)

    @property
    def logits(self) -> Tensor:
        return torch.cat([trace.logits for trace in self])

    @property
    def labels(self) -> Tensor | None:
        parts = [trace.labels for trace in self]
        return None if parts[0] is None else torch.cat([part for part in parts if part is not None])

    @property
    def probabilities(self) -> Tensor:
        return torch.cat([trace.probabilities for trace in self])

    @property
    def predictions(self) -> Tensor:
        return torch.cat([trace.predictions for trace in self])

    @property
    def correct(self) -> Tensor:
        return torch.cat([trace.correct for trace in self])

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """As of a Trace: a row per prediction."""
        return pd.concat([trace.to_frame() for trace in self], ignore_index=True)

    def verify(self) -> None:
        """Read every shard whole, and raise an error if one is not what the manifest lists."""
        for shard in progress(self.shards, "verifying", len(self.shards)):
            load(shard.file)  # compares the contents with the digest of the file
            if stored_digest(shard.file) != shard.digest:
                raise StorageError(
                    f"{shard.file} is not the shard that the manifest lists; write the folder again"
                )

    def to_parquet(self, path: Folder) -> None:
        """Write a table to one Parquet file: the columns of `to_frame`, the logits, and the features of every
        layer, each a list of numbers per row; one row group per shard."""
        expect_installed("pyarrow")
        import pyarrow.parquet as parquet

        def write(temporary: str) -> None:
            first = _table(self.shards[0].trace())
            with parquet.ParquetWriter(temporary, first.schema) as writer:
                for shard in self.shards:
                    writer.write_table(_table(shard.trace()))

        write_whole(path, write)

    def state(self) -> dict[str, Any]:
        raise StorageError(
            "expected something to save, got a ShardedTrace, which is in a folder already; copy the folder, "
            "or save sharded.trace()"
        )

    def __repr__(self) -> str:
        return f"ShardedTrace({len(self):,} rows in {len(self.shards)} shards)"

    def _repr_html_(self) -> str:
        """Only the first shard is read."""
        if not self.shards:
            return page_of("ShardedTrace", repr(self), None, None)
        first = self.shards[0].trace()
        words = f"{self!r}; of the first shard: {first.summary()}"
        return page_of("ShardedTrace", words, first.plot(), first[:MOST_ROWS].to_frame())


class Manifest:
    """The list of shards of a folder: a line that says what it is, a line per shard, and one at the end.

    A line is appended when its shard is on disk. A run that is killed leaves whole lines and perhaps half of
    one, which counts as none: the same run goes on from there.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder = folder
        self.header = header
        self.entries: list[dict[str, Any]] = []
        self.complete = False

    @classmethod
    def begin(cls, folder: Folder, settings: Mapping[str, Any]) -> "Manifest":
        """A new manifest, or that of a run with the same settings that was stopped."""
        header = {"format": "assay", "format_version": FORMAT_VERSION, "kind": KIND, **settings}
        place = made_folder(folder)
        if not (place / MANIFEST).is_file():
            if any(place.iterdir()):
                raise StorageError(
                    f"expected an empty folder for shards, got {place} with files; choose another"
                )
            manifest = cls(place, header)
            manifest._append(header)
            return manifest
        manifest = cls.read(place)
        different = [name for name in header if manifest.header.get(name) != header[name]]
        if different:
            raise StorageError(
                f"expected to go on with the run in {place}, got another ({', '.join(different)} differ); "
                "choose a new folder"
            )
        return manifest

    @classmethod
    def read(cls, folder: Folder) -> "Manifest":
        file = Path(folder) / MANIFEST
        if not file.is_file():
            raise StorageError(
                f"expected a folder of shards at {folder}, found no {MANIFEST}; check the path"
            )
        expect_readable(file)
        content = file.read_text(encoding="utf-8")
        whole = content[: content.rfind("\n") + 1]  # half a line is of a shard that is written again
        try:
            header, *entries = map(json.loads, whole.splitlines())
            if header["kind"] != KIND or header["format_version"] > FORMAT_VERSION:
                raise StorageError(f"{file} is of another kind or a newer assay; upgrade assay")
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"{file} is damaged ({error}); write the folder again") from error
        manifest = cls(Path(folder), header)
        manifest.complete = bool(entries) and entries[-1] == {"complete": True}
        manifest.entries = entries[:-1] if manifest.complete else entries
        if len(whole) < len(content):
            with file.open("r+", encoding="utf-8") as stream:
                stream.truncate(len(whole.encode()))
        return manifest

    def file(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"

    def add(self, trace: Trace, data: str | None = None) -> None:
        """Write the next shard; `data` identifies what the network was given."""
        file = self.file(len(self.entries))
        save(trace, file)
        self.list(len(trace), data)

    def list(self, rows: int, data: str | None) -> None:
        """List the next shard, which is on disk."""
        file = self.file(len(self.entries))
        entry = {"file": file.name, "rows": rows, "digest": stored_digest(file), "data": data}
        self._append(entry)
        self.entries.append(entry)

    def finish(self) -> ShardedTrace:
        if not self.entries:
            raise InputError("expected at least one Trace to write, got none; pass Traces with rows")
        if not self.complete:
            self._append({"complete": True})
            self.complete = True
        return ShardedTrace(self.shards(), self.header["network"])

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(self.folder / entry["file"], 0, entry["rows"], entry["digest"]) for entry in self.entries
        ]

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            with (self.folder / MANIFEST).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self.folder / MANIFEST}: {error.strerror}") from error


def _table(trace: Trace) -> Any:
    """The rows as a table of Arrow."""
    import pyarrow

    table = pyarrow.Table.from_pandas(trace.to_frame(), preserve_index=False)
    for name, values in (("logits", trace.logits), *trace.features.items()):
        numbers = pyarrow.array(values.contiguous().flatten().numpy())
        table = table.append_column(name, pyarrow.FixedSizeListArray.from_arrays(numbers, values.shape[1]))
    return table
