"""AnnotationStore: items and labels in one SQLite file; a label is on disk when `label` returns."""

import contextlib
import datetime
import json
import math
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from assay.errors import InputError, StorageError
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.annotation.order import Turn
from assay.storage import expect_readable, write_whole

FORMAT_VERSION = 1

SCHEMA = """
create table facts (name text primary key, value text not null) without rowid;
create table items (
  item integer primary key, bin integer not null, weight integer not null, shared integer not null,
  input blob not null, text text
);
create table labels (
  place integer primary key,
  item integer not null references items, annotator text not null, repeat integer not null,
  score real check (score between 0 and 1), seconds real, time text not null, comment text,
  unique (item, annotator, repeat)
);
"""

REVIEWS = """
create table reviews (
  item integer primary key references items, score real check (score between 0 and 1), comment text,
  time text not null
)
"""

LONGEST_COMMENT = 1000


@dataclass(frozen=True)
class Label:
    """An annotator's answer in a turn; no score means skipped."""

    turn: Turn
    annotator: str
    score: float | None
    seconds: float | None = None
    comment: str | None = None


@dataclass(frozen=True)
class Review:
    """The answer that counts for an item, instead of its labels; no score leaves the item out."""

    item: int
    score: float | None
    comment: str | None = None


class AnnotationStore:
    """A file with the items to annotate and every label given.

    SQLite with a sync at every commit: a label is completely in this one file, or not at all. It is
    identified by item, annotator and showing, so that a second label replaces the first. With `writing`, no
    other process can write to the store until this one closes it or ends; others may still read it.
    """

    def __init__(self, path: str | os.PathLike[str], *, writing: bool = False) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise StorageError(f"expected a store of annotations at {self.path}, found none; check the path")
        expect_readable(self.path)
        self._writer = _sole_writer(self.path) if writing else None
        self._lock = threading.Lock()
        with _clear_errors(self.path):
            self._connection = _connect(self.path)
            facts = dict(self._connection.execute("select name, value from facts"))
        if facts.get("format") != "assay annotations" or int(facts["version"]) > FORMAT_VERSION:
            raise StorageError(
                f"expected {self.path} to be a store of annotations that this assay can read, got format "
                f"{facts.get('format')!r} version {facts.get('version')!r}; choose another file or upgrade"
            )
        with _clear_errors(self.path):
            if writing:
                facts["overview_token"] = _bring_up_to_date(self._connection)
            self._has_reviews = _has_reviews(self._connection)
        self.run, self.token = facts["run"], facts["token"]
        self.overview_token = facts.get("overview_token", "")
        self.seed, self.repeats = int(facts["seed"]), float(facts["repeats"])
        self.overlap = float(facts["overlap"])
        self._shape, self._values = tuple(json.loads(facts["shape"])), int(facts["values"])

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        items: AnnotationItems,
        *,
        overlap: float = 0.2,
        repeats: float = 0.05,
        seed: int = 0,
    ) -> None:
        """A new store for these items.

        overlap: the share of items that every annotator judges (each other item goes to the first annotator
        who reaches it); repeats: the share that an annotator sees twice.
        """
        for name, share in (("overlap", overlap), ("repeats", repeats)):
            if not 0 <= share <= 1:
                raise InputError(f"expected {name} as a share from 0 to 1, got {share:g}")
        if not len(items):
            raise InputError("expected at least one item to annotate, got none; choose more")
        facts = {
            "format": "assay annotations",
            "version": str(FORMAT_VERSION),
            "run": items.run,
            "token": secrets.token_urlsafe(16),
            "overview_token": secrets.token_urlsafe(16),
            "seed": str(seed),
            "repeats": str(repeats),
            "overlap": str(overlap),
            "shape": json.dumps(list(items.inputs.shape[1:])),
            "values": str(items.values),
        }
        target = Path(path)
        # Locked, because two servers that start at once must not both create it.
        with contextlib.closing(_sole_writer(target)):
            if target.exists():
                raise StorageError(f"{target} exists already; open it, or choose another name")
            write_whole(target, lambda temporary: _write_new(temporary, facts, items, overlap, seed))
            target.chmod(0o600)  # it contains the token

    def close(self) -> None:
        self._connection.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_run(self, run: str) -> None:
        """Refuse another distribution's store."""
        if run != self.run:
            raise InputError(
                f"expected a store of this distribution's inputs, but {self.path} belongs to another run; "
                "pass the distribution it was made with, or another store (its labels are untouched)"
            )

    def add(self, items: AnnotationItems) -> None:
        """Add items of the same run; for those already there, counts are added and labels stay."""
        self.check_run(items.run)
        with self._lock, _clear_errors(self.path), _transaction(self._connection) as connection:
            _insert(connection, items, self.overlap, self.seed)

    def label(self, label: Label) -> None:
        """Write one label; returns when it is on disk."""
        self.add_labels([label])

    def add_labels(self, labels: list[Label]) -> None:
        """Write labels, all of them or none."""
        for label in labels:
            _check_answer(label)
            if label.seconds is not None and not 0 <= label.seconds < math.inf:
                raise InputError(
                    f"expected seconds of at least 0, got {label.seconds:g}; leave them empty if unknown"
                )
        now = _now()
        rows = [
            (*one.turn, one.annotator, one.score, one.seconds, now, one.comment or None) for one in labels
        ]
        with self._lock, _clear_errors(self.path), _transaction(self._connection) as connection:
            connection.executemany(
                "insert into labels (item, repeat, annotator, score, seconds, time, comment) "
                "values (?, ?, ?, ?, ?, ?, ?) on conflict do update "
                "set score = excluded.score, seconds = excluded.seconds, comment = excluded.comment",
                rows,
            )

    def add_reviews(self, reviews: list[Review]) -> None:
        """Write reviews, all of them or none; a second one for an item replaces the first."""
        for review in reviews:
            _check_answer(review)
        rows = [(one.item, one.score, one.comment or None, _now()) for one in reviews]
        with self._lock, _clear_errors(self.path), _transaction(self._connection) as connection:
            connection.executemany("insert or replace into reviews values (?, ?, ?, ?)", rows)

    def remove_review(self, item: int) -> None:
        """The labels of an item count again."""
        with self._lock, _clear_errors(self.path), _transaction(self._connection) as connection:
            connection.execute("delete from reviews where item = ?", [item])

    def rename(self, annotator: str, name: str) -> None:
        """Give all labels of an annotator to a new name; the order of the items stays theirs."""
        with self._lock, _clear_errors(self.path), _transaction(self._connection) as connection:
            connection.execute("update labels set annotator = ? where annotator = ?", [name, annotator])
            connection.execute(
                "insert or replace into facts values (?, ?)", [_order_fact(name), self._ordered_as(annotator)]
            )

    def ordered_as(self, annotator: str) -> str:
        """The name that decides the order of an annotator's items: the one they came with."""
        with self._lock, _clear_errors(self.path):
            return self._ordered_as(annotator)

    def _ordered_as(self, annotator: str) -> str:
        found = self._connection.execute(
            "select value from facts where name = ?", [_order_fact(annotator)]
        ).fetchone()
        return str(found[0]) if found else annotator

    def label_list(self) -> list[Label]:
        """Every label, in the order first given."""
        comment = "comment" if self._has_reviews else "null"
        query = f"select item, repeat, annotator, score, seconds, {comment} from labels order by place"
        with self._lock, _clear_errors(self.path):
            rows = self._connection.execute(query).fetchall()
        return [Label(Turn(item, repeat), *rest) for item, repeat, *rest in rows]

    def labels(self) -> pd.DataFrame:
        """Every label with the bin, the weight and the run of its item, in the order given, and then every
        review (`reviewed`), as `precision_recall` takes them."""
        given = (
            "select item, item as row, bin, weight, score, annotator, repeat, seconds, time, {comment} "
            "as comment, 0 as reviewed, place from labels join items using (item)"
        )
        reviewed = (
            "select item, item, bin, weight, score, 'review', 0, null, time, comment, 1, null "
            "from reviews join items using (item)"
        )
        query = f"{given.format(comment='comment')} union all {reviewed}"
        if not self._has_reviews:
            query = given.format(comment="null")
        with self._lock, _clear_errors(self.path):
            found = pd.read_sql_query(f"{query} order by reviewed, place, item", self._connection)
        kinds = {"score": np.float64, "seconds": np.float64, "comment": object, "reviewed": bool}
        return found.drop(columns="place").astype(kinds).assign(run=self.run)

    def items(self) -> AnnotationItems:
        """The items to annotate."""
        with self._lock, _clear_errors(self.path):
            rows = self._connection.execute("select item, bin, weight, input, text from items order by item")
            columns: list[tuple[Any, ...]] = list(zip(*rows.fetchall(), strict=True))
        inputs = np.stack([np.frombuffer(blob, dtype="<i8") for blob in columns[3]]).astype(np.int64)
        texts = None if columns[4][0] is None else list(columns[4])
        item, bins, weights = (np.array(column, dtype=np.int64) for column in columns[:3])
        tensor = torch.from_numpy(inputs).reshape(-1, *self._shape)
        return AnnotationItems(item, bins, weights, tensor, texts, self._values, self.run)

    def shared(self) -> frozenset[int]:
        """The items that every annotator judges."""
        with self._lock, _clear_errors(self.path):
            return frozenset(
                row[0] for row in self._connection.execute("select item from items where shared")
            )


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins like an SQLite file."""
    try:
        with open(path, "rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _order_fact(annotator: str) -> str:
    return f"ordered as: {annotator}"


def _check_answer(answer: Label | Review) -> None:
    if answer.score is not None and not 0 <= answer.score <= 1:
        raise InputError(f"expected a score from 0 to 1, got {answer.score:g}; choose one on the scale")
    if answer.comment and len(answer.comment) > LONGEST_COMMENT:
        raise InputError(
            f"expected a comment of at most {LONGEST_COMMENT} letters, got {len(answer.comment)}; shorten it"
        )


def _has_reviews(connection: sqlite3.Connection) -> bool:
    names = connection.execute("select name from sqlite_master where type = 'table'")
    return ("reviews",) in names.fetchall()


def _bring_up_to_date(connection: sqlite3.Connection) -> str:
    """Give a store of an earlier assay comments, reviews and a token for the overview, which is returned."""
    with _transaction(connection):
        if not _has_reviews(connection):
            connection.execute("alter table labels add column comment text")
            connection.execute(REVIEWS)
        fresh = [secrets.token_urlsafe(16)]
        connection.execute("insert or ignore into facts values ('overview_token', ?)", fresh)
    found = connection.execute("select value from facts where name = 'overview_token'").fetchone()
    return str(found[0])


def _write_new(path: str, facts: dict[str, str], items: AnnotationItems, overlap: float, seed: int) -> None:
    with _clear_errors(Path(path)), contextlib.closing(_connect(Path(path))) as connection:
        connection.executescript(f"{SCHEMA};{REVIEWS}")
        with _transaction(connection):
            connection.executemany("insert into facts values (?, ?)", facts.items())
            _insert(connection, items, overlap, seed)


def _insert(connection: sqlite3.Connection, items: AnnotationItems, overlap: float, seed: int) -> None:
    generator = np.random.default_rng([seed, len(items)])
    shared = generator.random(len(items)) < overlap
    rows = [
        (
            int(items.rows[place]),
            int(items.bins[place]),
            int(items.counts[place]),
            int(shared[place]),
            items.inputs[place].numpy().astype("<i8").tobytes(),
            None if items.texts is None else items.texts[place],
        )
        for place in range(len(items))
    ]
    connection.executemany(
        "insert into items values (?, ?, ?, ?, ?, ?) "
        "on conflict (item) do update set weight = weight + excluded.weight",
        rows,
    )


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
    # No write-ahead log: confirmed labels are in this one file, so that a copy of it is complete. `extra`
    # syncs the folder too; otherwise a journal could reappear after a power cut and undo the last label.
    connection.execute("pragma journal_mode = delete")
    connection.execute("pragma synchronous = extra")
    connection.execute("pragma foreign_keys = on")
    return connection


def _sole_writer(path: Path) -> sqlite3.Connection:
    """A lock that the system releases when the process ends, however it ends."""
    beside = path.with_name(path.name + ".lock")
    with _clear_errors(path):
        holder = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        holder.execute("begin exclusive")
    except sqlite3.OperationalError as error:
        holder.close()
        raise StorageError(
            f"another server has {path} open; use the address it printed, or stop it first"
        ) from error
    return holder


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("begin immediate")
    try:
        yield connection
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextlib.contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise InputError(
            f"expected labels of items in {path}, got another ({error}); reload the page, or import labels "
            "of these items"
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise StorageError(
            f"cannot use {path}: {error}; free space or check the disk (labels already given are safe)"
        ) from error
