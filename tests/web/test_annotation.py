"""The annotation page over HTTP: blind, escaped, idempotent, clear about what went wrong."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
from exact_precision import enumerated, weighted_sum, without
from starlette.testclient import TestClient

import assay
from assay.errors import InputError, StorageError
from assay.omniinput.annotation.answer_scale import AnswerScale
from assay.omniinput.annotation.order import Turn
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.scores import scores_of
from assay.omniinput.annotation.store import AnnotationStore, Label
from assay.omniinput.sampling.distribution import Samples
from assay.web.annotation import AnnotationPage
from assay.web.annotation_server import serve_annotations

EDGES = np.arange(-0.5, 48.0, 6.0)
PATIENCE = 300.0
"""Seconds after which a server has hung, however busy the machine is."""
NASTY = "<script>alert(1)</script> & \"quotes\" 'single' \u202egnp.exe \x00 </blockquote>"


def store_of(path, inputs=None, texts=None):
    dist = enumerated(weighted_sum, 5, 4, EDGES)
    if inputs is not None:
        zeros = np.zeros(len(inputs))
        kept = Samples(inputs, zeros, zeros.astype(np.int64), zeros, texts)
        dist = without(dist, kept=kept, space=assay.InputSpace(tuple(inputs.shape[1:]), 4))
    AnnotationStore.create(path, assay.choose_items(dist, 4), overlap=0.5)
    return AnnotationStore(path, writing=True)


@pytest.fixture
def store(tmp_path):
    with store_of(tmp_path / "labels.db") as store:
        yield store


def client_of(store, **options):
    client = TestClient(AnnotationPage(AnnotationQueue(store), **options).application())
    client.get(f"/?token={store.token}")
    return client


@pytest.fixture
def client(store):
    return client_of(store)


def field(page, name):
    return re.search(rf'name="{name}" value="([^"]*)"', page).group(1)


def answered(client, score="1", name="ann", **changes):
    page = client.get(f"/by/{name}").text
    fields = {"item": field(page, "item"), "repeat": field(page, "repeat"), "score": score, "seconds": "1.25"}
    return client.post(f"/by/{name}", data=fields | changes)


def test_nothing_without_the_token(store):
    client = TestClient(AnnotationPage(AnnotationQueue(store)).application())
    for path in ("/", "/by/ann", "/annotation.js"):
        assert client.get(path).status_code == 401
    assert client.post("/by/ann", data={"item": 0, "repeat": 0, "score": 1}).status_code == 401
    assert store.labels().empty


def test_a_name_then_items_then_the_end(client, store):
    page = client.post("/", data={"name": " Ann  Lee "})
    assert str(page.url).endswith("/by/Ann%20Lee")
    seen = 0
    while "Nothing left" not in page.text:
        assert f"{seen} done" in page.text
        page = answered(client, "0.75", "Ann Lee")
        seen += 1
    labels = store.labels()
    assert len(labels) == seen > len(store.items())  # a few were shown twice
    assert set(labels["score"]) == {0.75}
    assert set(labels["seconds"]) == {1.25}


def test_the_page_is_blind(client, store):
    """Neither bin nor output nor weight nor others' scores nor that it is shown again can be told."""
    for _ in range(5):
        answered(client, "0.25", "bob")
    page = client.get("/by/ann").text
    assert not re.findall(r"\b(bin|output|weight|bob|you said|again)\b", page)


def test_nobody_is_offered_the_labels_of_others(client):
    answered(client, "0.25", "bob")
    assert client.get("/labels.csv").status_code == 404
    for path in ("/", "/by/ann"):
        assert not re.findall(r"csv|bob|0\.25\)", client.get(path).text)


def test_a_browser_that_leaves_in_the_middle_of_an_answer_costs_nothing(store):
    """Neither an exception, which uvicorn would print in forty lines, nor a label."""
    parts = [
        {"type": "http.request", "body": b"item=0&repeat=0&sc", "more_body": True},
        {"type": "http.disconnect"},
    ]
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {store.token}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/by/ann", "query_string": b"", "headers": headers}

    async def receive():
        return parts.pop(0)

    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(AnnotationPage(AnnotationQueue(store)).application()(scope, receive, send))
    assert sent[0]["status"] == 400
    assert store.labels().empty


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://testserver"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.example"}, 421),
    ],
)
def test_pages_of_other_sites_cannot_answer(client, store, headers, status):
    page = client.get("/by/ann").text
    fields = {"item": field(page, "item"), "repeat": "0", "score": "1"}
    assert client.post("/by/ann", data=fields, headers=headers).status_code == status
    assert len(store.labels()) == (status == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_exits_with_0_and_leaves_one_whole_file(tmp_path, number):
    assay.save(enumerated(weighted_sum, 5, 4, EDGES), tmp_path / "outputs.safetensors")
    command = "from assay.cli import main; main()"
    options = ["annotate", "outputs.safetensors", "--store", "labels.db", "--per-bin", "2", "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *options],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(assay.__file__).parents[1])},
    )  # fmt: skip
    try:
        line = next(line for line in process.stdout if "token=" in line)
        address, token = re.search(r"(http://\S+)/\?token=(\S+)", line).groups()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx2.Client(base_url=address, headers=headers, timeout=PATIENCE) as client:
            for _ in range(3):
                page = client.get("/by/ann").text
                fields = {"item": field(page, "item"), "repeat": field(page, "repeat"), "score": "1"}
                assert client.post("/by/ann", data=fields).status_code == 303
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "labels.db", tmp_path / "elsewhere")
    with AnnotationStore(tmp_path / "elsewhere" / "labels.db") as store:
        assert len(store.labels()) == 3
    assert {file.name for file in tmp_path.glob("labels.db*")} == {"labels.db", "labels.db.lock"}


def test_a_double_click_is_one_label(client, store):
    page = client.get("/by/ann").text
    fields = {"item": field(page, "item"), "repeat": "0", "score": "1", "seconds": ""}
    assert {client.post("/by/ann", data=fields).status_code for _ in range(3)} == {200}
    assert len(store.labels()) == 1


def test_back_shows_the_last_answer_and_lets_it_be_changed(client, store):
    first = client.get("/by/ann").text
    page = answered(client, "0.25").text
    back = re.search(r'href="(/by/ann\?turn=[^"]+)"', page).group(1)
    again = client.get(back).text
    assert field(again, "item") == field(first, "item")
    assert "you said 2" in again  # as it is drawn on the button
    client.post("/by/ann", data={"item": field(again, "item"), "repeat": "0", "score": "1"})
    assert store.labels()["score"].tolist() == [1.0]


def test_only_turns_already_taken_can_be_asked_for(client, store):
    current = field(client.get("/by/ann").text, "item")
    other = next(row for row in store.items().rows.tolist() if str(row) != current)
    for turn in (f"{other}.0", "99999.0", "x", f"{other}.7", "².", "9" * 5000 + ".0"):
        assert field(client.get(f"/by/ann?turn={turn}").text, "item") == current


def test_a_skipped_item_has_no_score(client, store):
    answered(client, "")
    assert store.labels()["score"].isna().tolist() == [True]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"score": "1.5"}, "from 0 to 1"),
        ({"score": "nan"}, "from 0 to 1"),
        ({"score": "high"}, "expected item, repeat and score"),
        ({"item": "123456"}, "an item of this store"),
        ({"item": "x"}, "expected item, repeat and score"),
        ({"repeat": "5"}, "an item of this store"),
        ({"seconds": "9" * 40_000}, "at most"),
        ({"comment": "9" * 1_001}, "a comment of at most 1000 letters"),
        ({"seconds": "inf"}, "seconds of at least 0"),
        ({"seconds": "1e999"}, "seconds of at least 0"),
        ({"seconds": "nan"}, "seconds of at least 0"),
        ({"seconds": "-1"}, "seconds of at least 0"),
    ],
)
def test_answers_that_make_no_sense_are_said_to_be_so(client, store, changes, words):
    response = answered(client, **changes)
    assert response.status_code == 422
    assert words in response.text
    assert store.labels().empty


def test_a_name_that_is_none_is_asked_again(client):
    response = client.post("/", data={"name": " "})
    assert response.status_code == 422
    assert "expected a name" in response.text
    assert client.get("/by/" + "x" * 50).status_code == 422


def test_a_full_disk_keeps_the_item_and_says_so(client, store, monkeypatch):
    def full(label):
        raise StorageError("cannot use labels.db: database or disk is full")

    monkeypatch.setattr(store, "label", full)
    page = client.get("/by/ann").text
    response = answered(client, "1")
    assert response.status_code == 507
    assert "full" in response.text
    assert field(client.get("/by/ann").text, "item") == field(page, "item")


def test_sampled_text_cannot_act(tmp_path):
    inputs = torch.arange(10).reshape(2, 5) % 4
    with store_of(tmp_path / "t.db", inputs, [NASTY, NASTY]) as store:
        response = client_of(store, question="<i>Q</i>", guideline="<b>G</b>").get("/by/<u>ann")
    page = response.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in page
    for raw in ("<script>alert", "<u>", "<i>", "<b>G", "\u202e", "\x00"):
        assert raw not in page
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_images_are_pictures(tmp_path):
    inputs = torch.randint(4, (3, 6, 5), generator=torch.Generator().manual_seed(0))
    with store_of(tmp_path / "i.db", inputs) as store:
        page = client_of(store).get("/by/ann").text
    assert 'src="data:image/png;base64,' in page
    assert "6 by 5 pixels" in page
    assert 'class="shown pixels"' in page
    assert 'width="265" height="318"' in page  # 53 times as large: the largest whole number that fits
    colour = torch.zeros(2, 3, 6, 5, dtype=torch.int64)
    colour[1, 0, 0, 0] = 1
    with store_of(tmp_path / "c.db", colour) as store:
        assert "data:image/png" in client_of(store).get("/by/ann").text


def test_a_row_is_shown_with_the_names_of_its_columns(store, tmp_path):
    page = client_of(store, columns=("a", "<b>", "c", "d", "e")).get("/by/ann").text
    assert "<dt>&lt;b&gt;</dt>" in page
    with pytest.raises(InputError, match="a name for each of 5 columns, got 2"):
        AnnotationPage(AnnotationQueue(store), columns=("a", "b")).application()
    with (
        store_of(tmp_path / "i.db", torch.zeros(2, 6, 5, dtype=torch.int64)) as images,
        pytest.raises(InputError, match="for rows only, got them for images"),
    ):
        AnnotationPage(AnnotationQueue(images), columns=("a",)).application()


@pytest.mark.parametrize("steps", range(2, 10))
def test_what_is_drawn_on_a_button_is_its_key(store, steps):
    page = client_of(store, scale=AnswerScale(steps, ("no", "yes"))).get("/by/ann").text
    buttons = re.findall(r'value="([\d.]+)" data-key="(\d)"[^>]*><b>(\d)</b> <span>(\w*)<', page)
    assert (
        [key for _, key, _, _ in buttons]
        == [drawn for _, _, drawn, _ in buttons]
        == [str(number) for number in range(1, steps + 1)]
    )
    assert [float(score) for score, *_ in buttons] == pytest.approx(np.linspace(0, 1, steps).tolist())
    assert [word for *_, word in buttons] == ["no", *[""] * (steps - 2), "yes"]


@pytest.mark.parametrize(
    ("steps", "ends", "words"),
    [(1, ("a", "b"), "2 to 9 steps, got 1"), (10, ("a", "b"), "got 10"), (5, ("", "b"), "a word of 1 to 40")],
)
def test_scales_without_keys_or_words_are_refused(steps, ends, words):
    with pytest.raises(InputError, match=words):
        AnswerScale(steps, ends)


def test_a_comment_is_kept_and_shown_again(client, store):
    page = answered(client, "0.25", comment=" It has <i>two</i> heads ").text
    again = client.get(re.search(r'href="(/by/ann\?turn=[^"]+)"', page).group(1)).text
    assert ">It has &lt;i&gt;two&lt;/i&gt; heads</textarea>" in again
    assert store.labels()["comment"].tolist() == ["It has <i>two</i> heads"]


def test_leaving_gives_the_item_to_others_and_loses_nothing(client):
    answered(client)
    taken = field(client.get("/by/ann").text, "item")
    page = client.post("/leave/ann").text
    assert "Until later, ann" in page
    assert "Your answer is on disk" in page
    assert field(client.get("/by/ann").text, "item") == taken


def test_a_new_name_takes_its_labels_along_and_nobody_elses(client, store):
    answered(client, name="ann")
    answered(client, name="Bob")
    upcoming = field(client.get("/by/ann").text, "item")
    page = client.post("/rename/ann", data={"name": "Ann/e Lee"})
    assert str(page.url).endswith("/by/Ann%2Fe%20Lee")
    assert "1 done" in page.text
    assert field(page.text, "item") == upcoming, "the order is still the same"
    assert set(store.labels()["annotator"]) == {"Ann/e Lee", "Bob"}
    for name, words in (("bob", "nobody here has"), (" ", "expected a name")):
        refused = client.post("/rename/Ann%2Fe%20Lee", data={"name": name})
        assert (refused.status_code, words in refused.text) == (422, True)
    assert AnnotationQueue(store).next("Ann/e Lee").item == int(upcoming), "even after a restart"


def overview_of(store):
    client = TestClient(AnnotationPage(AnnotationQueue(store)).application())
    client.get(f"/overview/?token={store.overview_token}")
    return client


def disputed(store):
    """An item to which ann gave 0 and bob 1."""
    item = min(store.shared())
    store.add_labels([Label(Turn(item), "ann", 0.0, comment="<u>no</u>"), Label(Turn(item), "bob", 1.0)])
    return item


def test_only_the_overview_shows_everybody(client, store):
    disputed(store)
    for path in ("/overview/", "/overview/review"):
        assert client.get(path).status_code == 401, "annotators have another token"
    assert client.post("/overview/review", data={"item": 0, "score": 1}).status_code == 401
    overview = overview_of(store)
    assert overview.get("/by/ann").status_code == 401, "and the overview's opens nothing else"
    page = overview.get("/overview/").text
    assert re.findall(r'<th scope="row">(\w+)</th><td>(\d+)</td>', page) == [("ann", "1"), ("bob", "1")]
    assert "Review 1 input on which" in page
    assert f"1 of {len(store.items())} inputs are judged" in page


def test_a_review_counts_instead_of_the_labels(store):
    item, overview = disputed(store), overview_of(store)
    page = overview.get("/overview/review").text
    assert "<b>ann</b>: 1 <q>&lt;u&gt;no&lt;/u&gt;</q>" in page
    assert "<b>bob</b>: 5<" in page
    dist = enumerated(weighted_sum, 5, 4, EDGES)
    bin = store.labels()["bin"][0]

    def precision():
        return scores_of(dist, store.labels()).bin_precision(len(dist.log_density))[bin]

    assert precision() == 0.5
    agreement = assay.annotator_agreement(store.labels()).krippendorff_alpha
    page = overview.post("/overview/review", data={"item": item, "score": "0.25", "comment": "agreed"}).text
    assert "Nothing to settle" in page
    assert precision() == 0.25
    assert assay.annotator_agreement(store.labels()).krippendorff_alpha == agreement
    overview.post("/overview/review", data={"item": item, "score": "reopen"})
    assert precision() == 0.5
    overview.post("/overview/review", data={"item": item, "score": ""})
    with pytest.raises(InputError, match="at least one annotation"):
        precision()  # the only item is left out


@pytest.mark.parametrize("fields", [{}, {"item": "x", "score": "1"}, {"item": "987654", "score": "1"},
                                    {"item": "0", "score": "7"}])  # fmt: skip
def test_reviews_that_make_no_sense_are_refused(store, fields):
    answer = overview_of(store).post("/overview/review", data=fields)
    assert (answer.status_code, answer.text[:8]) == (422, "expected")
    assert store.labels().empty


def test_a_port_that_is_taken_is_said_to_be_so(store):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match=r"expected a free address, got .*in use\)"):
            serve_annotations(store, taken.getsockname()[1])
