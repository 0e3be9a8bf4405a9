"""A table of verdicts that is written part by part: csv, or parquet by the ending of its name."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pandas as pd

ENDINGS = (".csv", ".parquet")


class VerdictFile(Protocol):
    """Takes one part of the table after another."""

    def add(self, part: pd.DataFrame) -> None: ...


@contextmanager
def verdict_file(path: str, ending: str) -> Iterator[VerdictFile]:
    """Opens a file that ends when the block does."""
    if ending == ".parquet":
        parquet = _Parquet(path)
        try:
            yield parquet
        finally:
            parquet.close()
        return
    with open(path, "w", encoding="utf-8", newline="") as file:
        yield _Csv(file)


class _Csv:
    def __init__(self, file: object) -> None:
        self.file, self.begun = file, False

    def add(self, part: pd.DataFrame) -> None:
        part.to_csv(self.file, index=False, header=not self.begun, lineterminator="\n")  # type: ignore[call-overload]
        self.begun = True


class _Parquet:
    def __init__(self, path: str) -> None:
        self.path = path
        self.writer: Any = None

    def add(self, part: pd.DataFrame) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        table = pyarrow.Table.from_pandas(part, preserve_index=False)
        if self.writer is None:
            self.writer = ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
