"""Labels are on disk, once, whatever happens; stores of other runs and second servers are refused."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from exact_precision import enumerated, weighted_sum

import assay
from assay.errors import InputError, StorageError
from assay.omniinput.annotation.order import GAP, Turn, order_of
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore, Label, Review

EDGES = np.arange(-0.5, 48.0, 6.0)


@pytest.fixture(scope="module")
def dist():
    return enumerated(weighted_sum, 5, 4, EDGES)


@pytest.fixture
def path(dist, tmp_path):
    AnnotationStore.create(tmp_path / "labels.db", assay.choose_items(dist, 8), overlap=0.25, repeats=0.1)
    return tmp_path / "labels.db"


def test_items_come_back_as_they_went_in(dist, path):
    items = assay.choose_items(dist, 8)
    with AnnotationStore(path) as store:
        back = store.items()
        assert back.to_frame().equals(items.to_frame().sort_values("item", ignore_index=True))
        assert back.run == store.run == items.run
        assert 0 < len(store.shared()) < len(items)


def test_a_label_given_twice_is_one_and_given_anew_is_the_new_one(path):
    with AnnotationStore(path) as store:
        item = int(store.items().rows[0])
        for score in (0.25, 0.25, 1.0):
            store.label(Label(Turn(item), "ann", score, 1.5))
        store.label(Label(Turn(item), "bob", None))
        store.label(Label(Turn(item, 1), "ann", 0.0))
        labels = store.labels()
    assert len(labels) == 3
    assert labels["score"].tolist()[0] == 1.0
    assert np.isnan(labels.set_index(["annotator", "repeat"]).loc[("bob", 0), "score"])


def test_labels_of_strangers_and_scores_off_the_scale_are_refused(path):
    with AnnotationStore(path) as store:
        item = int(store.items().rows[0])
        with pytest.raises(InputError, match=r"from 0 to 1, got 1\.5"):
            store.label(Label(Turn(item), "ann", 1.5))
        with pytest.raises(InputError, match="reload"):
            store.label(Label(Turn(10**6), "ann", 0.5))
        with pytest.raises(InputError, match="got 7"):
            store.add_labels([Label(Turn(item), "ann", 0.5), Label(Turn(item), "bob", 7.0)])
        assert store.labels().empty  # all of them or none


@pytest.mark.parametrize("seconds", [np.inf, np.nan, -1.0])
def test_seconds_that_are_none_are_refused(path, seconds):
    with AnnotationStore(path) as store:
        item = int(store.items().rows[0])
        with pytest.raises(InputError, match="seconds of at least 0"):
            store.label(Label(Turn(item), "ann", 0.5, seconds))
        assert store.labels().empty


def test_a_copy_of_the_file_is_complete_while_the_store_is_open(path, tmp_path):
    with AnnotationStore(path, writing=True) as store:
        rows = store.items().rows.tolist()
        for number, row in enumerate(rows):
            store.label(Label(Turn(row), "ann", 0.5))
            shutil.copy(path, tmp_path / "copy.db")
            with AnnotationStore(tmp_path / "copy.db") as copy:
                assert len(copy.labels()) == number + 1
    assert {file.name for file in tmp_path.iterdir()} == {"labels.db", "labels.db.lock", "copy.db"}


def test_a_store_of_another_run_is_refused_and_stays_as_it_is(dist, path):
    other = enumerated(weighted_sum, 4, 4, EDGES)
    with AnnotationStore(path) as store:
        store.label(Label(Turn(int(store.items().rows[0])), "ann", 0.5))
        with pytest.raises(InputError, match="another run"):
            store.add(assay.choose_items(other, 3))
        assert len(store.labels()) == 1


def test_more_items_keep_the_labels(dist, path):
    more = assay.choose_items(dist, 5, seed=3)
    with AnnotationStore(path) as store:
        before, item = store.items(), int(store.items().rows[0])
        store.label(Label(Turn(item), "ann", 0.5))
        store.add(more)
        assert store.items().counts.sum() == before.counts.sum() + more.counts.sum()
        assert store.labels()["item"].tolist() == [item]


def test_two_servers_on_one_store_get_a_clear_sentence(path):
    with AnnotationStore(path, writing=True):
        with pytest.raises(StorageError, match="another server has"):
            AnnotationStore(path, writing=True)
        with AnnotationStore(path) as reader:
            assert reader.labels().empty  # reading is free
    AnnotationStore(path, writing=True).close()


def test_a_full_disk_is_said_and_labels_already_given_are_safe(path):
    with AnnotationStore(path) as store:
        rows = store.items().rows.tolist()
        store.label(Label(Turn(rows[0]), "ann", 0.5))
        pages = store._connection.execute("pragma page_count").fetchone()[0]
        store._connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(StorageError, match=r"full.*labels already given are safe"):
            store.add_labels([Label(Turn(row), "a" * 2_000 + str(n), 0.5) for n in range(3) for row in rows])
        assert len(store.labels()) == 1
        store._connection.execute("pragma max_page_count = 100000")
        store.label(Label(Turn(rows[1]), "ann", 0.5))
        assert len(store.labels()) == 2


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 200])
def test_a_file_that_is_no_store_is_said_to_be_so(tmp_path, content):
    (tmp_path / "labels.db").write_bytes(content)
    with pytest.raises(StorageError, match=r"labels\.db"):
        AnnotationStore(tmp_path / "labels.db")


def test_stores_are_checked_when_made(dist, path, tmp_path):
    items = assay.choose_items(dist, 2)
    with pytest.raises(StorageError, match="exists already"):
        AnnotationStore.create(path, items)
    with pytest.raises(InputError, match="overlap as a share"):
        AnnotationStore.create(tmp_path / "new.db", items, overlap=20)
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(StorageError, match="cannot"):
        AnnotationStore.create(tmp_path / "nowhere" / "new.db", items)
    with AnnotationStore(path, writing=True), pytest.raises(StorageError, match="another server"):
        AnnotationStore.create(path, items)
    with pytest.raises(StorageError, match="found none"):
        AnnotationStore(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "other.db").execute("create table facts (name text, value text)").close()
    with pytest.raises(StorageError, match="another file"):
        AnnotationStore(tmp_path / "other.db")


def test_what_was_labelled_before_a_kill_is_there_after_it(path):
    script = textwrap.dedent(f"""
        from assay.omniinput.annotation.store import AnnotationStore, Label, Review
        from assay.omniinput.annotation.order import Turn
        store = AnnotationStore({str(path)!r}, writing=True)
        for row in store.items().rows.tolist():
            store.label(Label(Turn(row), "ann", 0.5))
            print(row, flush=True)
    """)
    environment = os.environ | {"PYTHONPATH": str(Path(assay.__file__).parents[1])}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        confirmed = [int(process.stdout.readline()) for _ in range(10)]
        process.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in process.stdout]
    with AnnotationStore(path, writing=True) as store:  # the lock died with its holder
        kept = store.labels()["item"].tolist()
    assert set(confirmed) <= set(kept)
    assert len(kept) == len(set(kept))


def test_orders_are_random_each_their_own_and_fixed():
    items = list(range(100))
    ann, bob = (order_of(items, name, 0, 0.05) for name in ("ann", "bob"))
    assert sorted(turn.item for turn in ann if not turn.repeat) == items
    assert ann == order_of(items, "ann", 0, 0.05)
    assert ann != bob
    assert [turn.item for turn in ann] != items
    repeats = [place for place, turn in enumerate(ann) if turn.repeat]
    assert len(repeats) == 5
    for place in repeats:
        first = ann.index(Turn(ann[place].item))
        assert place - first > GAP or place >= 95


def test_one_annotator_sees_everything_once_and_a_few_items_twice(path):
    with AnnotationStore(path) as store:
        queue, seen = AnnotationQueue(store), []
        while (turn := queue.next("ann")) is not None:
            assert queue.next("ann") == turn  # asking again changes nothing
            done, left = queue.progress("ann")
            assert done == len(seen)
            assert left > 0
            queue.take(Label(turn, "ann", 0.5))
            seen.append(turn)
        items = len(store.items())
        assert len({turn.item for turn in seen}) == items
        assert len(seen) == len(set(seen)) == items + int(np.ceil(0.1 * items))
        assert queue.progress("ann") == (len(seen), 0)


def test_two_annotators_share_what_is_shared_and_divide_the_rest(path):
    with AnnotationStore(path) as store:
        queue, names, idle = AnnotationQueue(store), ["ann", "bob"], set()
        while len(idle) < 2:
            turns = {name: queue.next(name) for name in names}  # both look before either answers
            idle = {name for name, turn in turns.items() if turn is None}
            for name, turn in turns.items():
                if turn is not None:
                    queue.take(Label(turn, name, 0.5))
        labels = store.labels().query("repeat == 0")
        by_item = labels.groupby("item")["annotator"].nunique()
        assert set(by_item[by_item == 2].index) == set(store.shared())
        assert set(by_item.index) == set(store.items().rows.tolist())


def test_a_queue_resumes_from_the_store_alone(path):
    with AnnotationStore(path) as store:
        first = AnnotationQueue(store)
        for _ in range(7):
            first.take(Label(first.next("ann"), "ann", 0.25))
        again = AnnotationQueue(store)
        assert again.next("ann") == first.next("ann")
        assert again.progress("ann") == first.progress("ann")
        assert again.done("ann") == first.done("ann")


def test_skipped_items_go_to_others_and_back_leads_to_the_last(path):
    with AnnotationStore(path) as store:
        queue = AnnotationQueue(store)
        assert queue.before("ann", None) is None
        turn = next(turn for turn in order_of(store.items().rows.tolist(), "ann", 0, 0.1)
                    if turn.item not in store.shared() and not turn.repeat)  # fmt: skip
        queue.take(Label(turn, "ann", 1.0))
        queue.take(Label(turn, "ann", None))  # gone back to, and skipped after all
        offered = set()
        while (other := queue.next("bob")) is not None:
            offered.add(other.item)
            queue.take(Label(other, "bob", 1.0))
        assert turn.item in offered
        assert queue.before("ann", queue.next("ann")) == turn
        assert queue.before("ann", turn) is None
        queue.take(Label(turn, "ann", 0.75))
        assert queue.label_of("ann", turn).score == 0.75
        assert queue.done("ann") == [turn]


def test_names_are_made_fit_and_known_ones_recognised(path):
    with AnnotationStore(path) as store:
        queue = AnnotationQueue(store)
        assert queue.name_of("  Ann   Lee ") == "Ann Lee"
        queue.take(Label(queue.next("Ann Lee"), "Ann Lee", 1.0))
        assert queue.name_of("ann lee") == "Ann Lee"
        for bad in ("", "   ", "x" * 41, "a\x00b"):
            with pytest.raises(InputError, match="expected a name"):
                queue.name_of(bad)


def test_a_store_of_an_earlier_assay_is_read_and_gets_comments_and_reviews_when_written(path):
    with sqlite3.connect(path) as old:  # as it was before there were any
        old.execute("drop table reviews")
        old.execute("alter table labels drop column comment")
        old.execute("delete from facts where name = 'overview_token'")
        item = old.execute("select min(item) from items").fetchone()[0]
        row = (item, "ann", 0, 0.5, "2026-01-01")
        old.execute("insert into labels (item, annotator, repeat, score, time) values (?, ?, ?, ?, ?)", row)
    old.close()
    with AnnotationStore(path) as store:
        assert store.labels()["comment"].isna().all()
        assert store.label_list() == [Label(Turn(item), "ann", 0.5)]
    with AnnotationStore(path, writing=True) as store:
        token = store.overview_token
        assert len(token) > 20
        store.add_reviews([Review(item, 1.0, "why")])
        assert store.labels()["reviewed"].tolist() == [False, True]
    with AnnotationStore(path, writing=True) as store:
        assert store.overview_token == token
        assert store.token != token
