"""The annotation page in a real Chromium: keys alone, reload, a killed server, a resumed session."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
import uvicorn
from exact_precision import enumerated, weighted_sum, without
from PIL import Image

import assay
from assay.omniinput.annotation.answer_scale import AnswerScale
from assay.omniinput.annotation.queue import AnnotationQueue
from assay.omniinput.annotation.store import AnnotationStore
from assay.omniinput.sampling.distribution import Samples
from assay.web.annotation import AnnotationPage


def free_port():
    """Below those that outgoing connections are given, so that it is still free after a restart."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as free:
            if free.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError("no free port")


class Server:
    """`assay annotate` as its own process, so that it can be killed."""

    def __init__(self, folder):
        self.port = free_port()
        self.folder, self.process = folder, None

    def start(self):
        command = "from assay.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, "annotate", "outputs.safetensors", "--store", "labels.db",
             "--per-bin", "4", "--port", str(self.port)],
            cwd=self.folder, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": str(Path(assay.__file__).parents[1])},
        )  # fmt: skip
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                return found.group()
        raise AssertionError("the server did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("annotation")


@pytest.fixture(scope="module")
def server(folder):
    base = enumerated(weighted_sum, 5, 4, np.arange(-0.5, 48.0, 6.0))
    kept = base.kept
    texts = [f"<b>row</b> {row.tolist()}" for row in kept.inputs]
    marked = Samples(kept.inputs, kept.outputs, kept.bins, kept.log_weights, texts)
    assay.save(without(base, kept=marked), folder / "outputs.safetensors")
    server = Server(folder)
    server.address = server.start()
    yield server
    if server.process.poll() is None:
        server.kill()


def shown(page):
    return page.locator("blockquote").inner_text()


def wait_until_ready(page):
    """Until the page hears keys: its script runs, and its pause after an answer is over."""
    page.wait_for_selector("body[data-state=ready]")


def press(page, key):
    """A key, and then wait until the page has moved on and hears the next."""
    before = page.locator("label[for=progress]").inner_text()
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('label[for=progress]')?.innerText !== before", arg=before
    )
    wait_until_ready(page)


def labels_in(folder, annotator):
    with AnnotationStore(folder / "labels.db") as store:
        return store.labels().query("annotator == @annotator")


def test_twenty_items_by_keyboard_a_reload_a_kill_and_a_resume(new_page, server, folder):
    page = new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "console", lambda message: faults.append(message.text) if "Content Security" in message.text else None
    )
    page.goto(server.address)
    assert "token" not in page.url
    page.wait_for_selector("input:focus")  # the name field, without a click
    page.keyboard.type("Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("blockquote")
    wait_until_ready(page)
    assert shown(page).startswith("<b>row</b> [")  # shown as it is, not as HTML
    keys = "12345" * 4
    given = []
    for place, key in enumerate(keys):
        if place == 7:
            page.reload()
            wait_until_ready(page)
        if place == 12:
            server.kill()
            here = shown(page)
            page.keyboard.press(key)
            page.wait_for_selector("#trouble:not(:empty)")
            assert "does not answer" in page.locator("#trouble").inner_text()
            assert shown(page) == here
            assert server.start() == server.address  # same store, same token, same port
            page.wait_for_function(
                "here => document.querySelector('blockquote').innerText !== here", arg=here
            )
            wait_until_ready(page)
            given.append((here, (int(key) - 1) / 4))
            continue
        given.append((shown(page), (int(key) - 1) / 4))
        press(page, key)
    assert re.fullmatch(r"Saved\. Ann: 20 done, \d+ to go", page.locator("#said").inner_text())
    assert page.evaluate("document.activeElement.id") == "item"
    labels = labels_in(folder, "Ann")
    assert len(labels) == 20
    assert labels["score"].tolist() == [score for _, score in given]
    with AnnotationStore(folder / "labels.db") as store:
        items = store.items()
    text_of = dict(zip(items.rows.tolist(), items.texts, strict=True))
    assert [text_of[item] for item in labels["item"]] == [text for text, _ in given]
    assert (labels["seconds"] > 0).all()
    assert faults == []


# In the page itself, where nothing comes between: a click, and another one before the answer is there; then
# one on the next item, in the very moment in which it appears.
CLICKS = """() => new Promise(resolve => {
  const click = () => document.querySelectorAll("fieldset button")[4].click();
  new MutationObserver((_, observer) => { observer.disconnect(); click(); resolve(); })
    .observe(document.body, { childList: true });
  click();
  click();
})"""

TWO_KEYS = """key => {
  for (let time = 0; time < 2; time++) document.dispatchEvent(new KeyboardEvent("keydown", { key }));
}"""


def test_skip_back_help_and_double_presses(new_page, server, folder):
    page = new_page(viewport={"width": 360, "height": 640})
    page.goto(server.address)
    page.fill("#name", "Bob")
    page.click("text=Start")
    page.wait_for_selector("blockquote")
    wait_until_ready(page)
    first = shown(page)
    page.keyboard.press("?")
    assert page.locator(".guideline").is_visible()
    page.keyboard.press("c")
    page.keyboard.type("3 heads, 2 tails?")  # keys write here, and press nothing
    page.keyboard.press("Escape")
    assert shown(page) == first
    page.evaluate(CLICKS)
    assert shown(page) != first
    wait_until_ready(page)
    assert labels_in(folder, "Bob")["score"].tolist() == [1.0]  # the other clicks judged nothing
    assert labels_in(folder, "Bob")["comment"].tolist() == ["3 heads, 2 tails?"]
    assert page.locator("#comment").input_value() == ""
    assert page.locator(".guideline").is_visible()  # as it was left
    page.keyboard.press("?")
    assert not page.locator(".guideline").is_visible()
    press(page, "s")
    assert labels_in(folder, "Bob")["score"].isna().sum() == 1
    page.evaluate(TWO_KEYS, "u")
    page.wait_for_url("**turn=**")
    wait_until_ready(page)
    page.keyboard.press("u")
    page.wait_for_function("first => document.querySelector('blockquote').innerText === first", arg=first)
    assert "you said 5" in page.locator("legend").inner_text()
    wait_until_ready(page)
    page.keyboard.press("2")
    page.wait_for_url("**/by/Bob")
    assert sorted(labels_in(folder, "Bob")["score"].dropna()) == [0.25]
    # On a phone nothing is cut off, and what is touched is large enough for a thumb.
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = [box.bounding_box() for box in page.locator("fieldset button").all()]
    assert min(size["height"] for size in sizes) >= 44
    assert min(size["width"] for size in sizes) >= 44


def accessible(page):
    """The accessibility tree as a screen reader gets it: (role, name, description) of what is not hidden."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    told = [tuple(node.get(part, {}).get("value", "") for part in ("role", "name", "description"))
            for node in nodes if not node["ignored"]]  # fmt: skip
    return [node for node in told if node[0] not in ("InlineTextBox", "StaticText", "generic", "none")]


def test_a_screen_reader_is_told_what_is_asked_what_can_be_done_and_what_happened(new_page, server):
    page = new_page()
    page.goto(server.address)
    assert ("textbox", "Your name", "") in accessible(page)
    page.fill("#name", "Eve")
    page.keyboard.press("Enter")
    page.wait_for_selector("blockquote")
    wait_until_ready(page)
    press(page, "4")
    tree = accessible(page)
    # Focus goes to the question, which is read out together with the text to judge.
    assert page.evaluate("document.activeElement.id") == "item"
    assert ("heading", "How right is the model to be confident about this?", shown(page)) in tree
    buttons = [name for role, name, _ in tree if role == "button"]
    assert sorted(buttons) == sorted(["1 wrong", "2", "3", "4", "5 right", "skip"])
    assert ("group", "Score: 1 is wrong, 5 is right", "") in tree
    folded = [name for role, name, _ in tree if role == "DisclosureTriangle"]
    assert sorted(folded) == ["guideline and keys", "leave or rename"]
    assert any(role == "progressbar" and name.startswith("Eve: 1 done") for role, name, _ in tree)
    # Progress is announced anew each time; trouble interrupts.
    first = page.locator("[role=status]").inner_text()
    press(page, "5")
    assert first.startswith("Saved. Eve: 1 done")
    assert page.locator("[role=status]").inner_text().startswith("Saved. Eve: 2 done")
    assert page.locator("[role=alert]").count() == 1
    # Tab walks through every control once, in the order of the page.
    walked = []
    for _ in range(len(buttons) + 3):
        page.keyboard.press("Tab")
        walked.append(page.evaluate("document.activeElement.dataset.key"))
    assert walked == ["1", "2", "3", "4", "5", "s", "u", "c", "?"]
    page.keyboard.press("Enter")
    assert page.locator(".guideline").is_visible()


def test_it_works_without_javascript(new_page, server, folder):
    page = new_page(java_script_enabled=False)
    page.goto(server.address)
    page.fill("#name", "Cy")
    page.keyboard.press("Enter")
    first = shown(page)
    with page.expect_navigation():
        page.locator("fieldset button").nth(2).click()
    assert shown(page) != first
    assert labels_in(folder, "Cy")["score"].tolist() == [0.5]
    assert not page.locator(".guideline").is_visible()
    page.click("text=guideline and keys")
    assert page.locator(".guideline").is_visible()
    page.click("text=leave or rename")
    page.fill("#name", "Cyril")
    page.click("button:text-is('Rename')")
    page.wait_for_url("**/by/Cyril")
    assert labels_in(folder, "Cyril")["score"].tolist() == [0.5]
    page.click("text=leave or rename")
    page.click("text=Leave;")
    assert "Until later, Cyril" in page.locator("h1").inner_text()


def test_the_overview_settles_what_annotators_dispute(new_page, server, folder):
    with AnnotationStore(folder / "labels.db") as store:
        item = max(store.shared())
        scores = store.labels().query("item == @item")["score"]
        token, overview_token = store.token, store.overview_token
    base = server.address.partition("/?")[0]
    bearer = {"Authorization": f"Bearer {token}"}
    for name, score in (("Max", "0"), ("Mia", "1")):
        fields = {"item": str(item), "repeat": "0", "score": score, "comment": "why"}
        httpx2.post(f"{base}/by/{name}", data=fields, headers=bearer, timeout=300)
    page = new_page(viewport={"width": 390, "height": 800})
    assert page.request.get(f"{base}/overview/", headers=bearer).status == 401
    page.goto(f"{base}/overview/?token={overview_token}")
    assert "token" not in page.url
    assert {"Max", "Mia"} <= set(page.locator("tbody th").all_inner_texts())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("text=on which annotators disagree")
    mine = page.locator("section", has_text="Max")
    mine.locator("fieldset button").nth(3).click()
    page.wait_for_selector("h2:has-text('Settled')")
    reviewed = labels_in(folder, "review")
    assert (reviewed["item"].tolist(), reviewed["score"].tolist()) == ([item], [0.75])
    assert len(scores) + 3 == len(labels_of_item(folder, item))


def labels_of_item(folder, item):
    with AnnotationStore(folder / "labels.db") as store:
        return store.labels().query("item == @item")


@pytest.fixture
def served(tmp_path):
    """The page for other inputs, in a thread of this process; the address of the annotators."""
    stores = []

    def start(inputs, **options):
        zeros = np.zeros(len(inputs))
        kept = Samples(inputs, zeros, zeros.astype(np.int64), zeros, None)
        base = enumerated(weighted_sum, 5, 4, np.arange(-0.5, 48.0, 6.0))
        dist = without(base, kept=kept, space=assay.InputSpace(tuple(inputs.shape[1:]), 4))
        path = tmp_path / f"{len(stores)}.db"
        AnnotationStore.create(path, assay.choose_items(dist, 4))
        store = AnnotationStore(path, writing=True)
        app = AnnotationPage(AnnotationQueue(store), **options).application()
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        place = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        stores.append((store, server, thread, place))
        return f"http://127.0.0.1:{place.getsockname()[1]}/?token={store.token}", store

    yield start
    for store, server, thread, place in stores:
        server.should_exit = True
        thread.join()
        place.close()
        store.close()


def started(new_page, address, **options):
    page = new_page(**options)
    page.goto(address)
    page.fill("#name", "Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#shown .shown")
    wait_until_ready(page)
    return page


def wait_for_one_answer(page):
    page.wait_for_function("() => document.querySelector('label[for=progress]').innerText.includes('1 done')")


def test_an_image_is_enlarged_by_a_whole_number(new_page, served):
    board = (torch.arange(28)[:, None] + torch.arange(28)) % 2 * 3  # black and white, pixel by pixel
    address, store = served(torch.stack([board, 3 - board]))
    for width in (1280, 390):
        page = started(new_page, address, viewport={"width": width, "height": 800})
        image = page.locator("#shown img")
        assert image.evaluate("one => [one.clientWidth, one.clientHeight]") == [308, 308]  # 11 times 28
        inside = Image.open(io.BytesIO(image.screenshot())).convert("L")
        pixels = np.asarray(inside)
        sharp = np.isin(pixels, (0, 255))  # the border, and whatever would be blurred, is grey
        inner = np.ix_(np.flatnonzero(sharp.sum(axis=1) == 308), np.flatnonzero(sharp.sum(axis=0) >= 308))
        blocks = pixels[inner].reshape(28, 11, 28, 11)
        assert (blocks.min(axis=(1, 3)) == blocks.max(axis=(1, 3))).all(), "every pixel is as large"
    page.keyboard.press("5")
    wait_for_one_answer(page)
    assert store.labels()["score"].tolist() == [1.0]


def test_a_row_of_a_table_has_the_names_of_its_columns(new_page, served):
    names = ("age", "income", "a long name with words", "<b>", "z")
    address, store = served(
        torch.arange(10).reshape(2, 5) % 4, columns=names, scale=AnswerScale(2, ("no", "yes"))
    )
    page = started(new_page, address, viewport={"width": 390, "height": 800})
    cells = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
    assert tuple(cells) == names
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("3")  # not on this scale: nothing happens
    page.keyboard.press("1")
    wait_for_one_answer(page)
    assert store.labels()["score"].tolist() == [0.0]
    assert store.items().inputs[store.labels()["item"][0]].tolist() == [
        int(value) for value in cells.values()
    ]
