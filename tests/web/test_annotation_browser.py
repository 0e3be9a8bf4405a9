"""The annotation page in a real Chromium: keys alone, reload, a killed server, a resumed session."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from exact_precision import enumerated, weighted_sum, without

import assay
from assay.omniinput.annotation_store import AnnotationStore
from assay.omniinput.distribution import Samples


class Server:
    """`assay annotate` as its own process, so that it can be killed."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
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


def press(page, key):
    """A key, and then wait until the page has moved on."""
    before = page.locator("label[for=progress]").inner_text()
    page.keyboard.press(key)
    page.wait_for_function(
        "before => document.querySelector('label[for=progress]')?.innerText !== before", arg=before
    )
    page.wait_for_timeout(220)  # the page's own pause against double presses


def labels_in(folder, annotator):
    with AnnotationStore(folder / "labels.db") as store:
        return store.labels().query("annotator == @annotator")


def test_twenty_items_by_keyboard_a_reload_a_kill_and_a_resume(browser, server, folder):
    page = browser.new_page()
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
    assert shown(page).startswith("<b>row</b> [")  # shown as it is, not as HTML
    keys = "12345" * 4
    given = []
    for place, key in enumerate(keys):
        if place == 7:
            page.reload()
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
            page.wait_for_timeout(220)
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
    page.close()


def test_skip_back_help_and_double_presses(browser, server, folder):
    page = browser.new_context(viewport={"width": 360, "height": 640}).new_page()
    page.goto(server.address)
    page.fill("#name", "Bob")
    page.click("text=Start")
    page.wait_for_selector("blockquote")
    first = shown(page)
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.keyboard.press("3")  # keys do not reach through the guideline
    page.keyboard.press("Escape")
    assert shown(page) == first
    page.locator("fieldset button").nth(4).dblclick()
    page.wait_for_function("first => document.querySelector('blockquote').innerText !== first", arg=first)
    page.wait_for_timeout(220)
    assert labels_in(folder, "Bob")["score"].tolist() == [1.0]  # the second click judged nothing
    press(page, "s")
    assert labels_in(folder, "Bob")["score"].isna().sum() == 1
    page.keyboard.press("u")
    page.keyboard.press("u")
    page.wait_for_url("**turn=**")
    page.wait_for_timeout(220)
    page.keyboard.press("u")
    page.wait_for_function("first => document.querySelector('blockquote').innerText === first", arg=first)
    assert "you said 1" in page.locator("legend").inner_text()
    page.wait_for_timeout(220)
    page.keyboard.press("2")
    page.wait_for_url("**/by/Bob")
    assert sorted(labels_in(folder, "Bob")["score"].dropna()) == [0.25]
    # On a phone nothing is cut off, and what is touched is large enough for a thumb.
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = [box.bounding_box() for box in page.locator("fieldset button").all()]
    assert min(size["height"] for size in sizes) >= 44
    assert min(size["width"] for size in sizes) >= 44
    page.context.close()


def accessible(page):
    """The accessibility tree as a screen reader gets it: (role, name, description) of what is not hidden."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    told = [tuple(node.get(part, {}).get("value", "") for part in ("role", "name", "description"))
            for node in nodes if not node["ignored"]]  # fmt: skip
    return [node for node in told if node[0] not in ("InlineTextBox", "StaticText", "generic", "none")]


def test_a_screen_reader_is_told_what_is_asked_what_can_be_done_and_what_happened(browser, server):
    page = browser.new_context().new_page()
    page.goto(server.address)
    assert ("textbox", "Your name", "") in accessible(page)
    page.fill("#name", "Eve")
    page.keyboard.press("Enter")
    page.wait_for_selector("blockquote")
    press(page, "4")
    tree = accessible(page)
    # Focus goes to the question, which is read out together with the text to judge.
    assert page.evaluate("document.activeElement.id") == "item"
    assert ("heading", "How right is it to be sure of this?", shown(page)) in tree
    buttons = [name for role, name, _ in tree if role == "button"]
    scores = ["0 wrong", "0.25 mostly wrong", "0.5 half", "0.75 mostly right", "1 right"]
    assert sorted(buttons) == sorted([*scores, "skip", "guideline"])
    assert ("group", "Score", "") in tree
    assert any(role == "progressbar" and name.startswith("Eve: 1 done") for role, name, _ in tree)
    # Progress is announced anew each time; trouble interrupts.
    first = page.locator("[role=status]").inner_text()
    press(page, "5")
    assert first.startswith("Saved. Eve: 1 done")
    assert page.locator("[role=status]").inner_text().startswith("Saved. Eve: 2 done")
    assert page.locator("[role=alert]").count() == 1
    # Tab walks through every control once, in the order of the page.
    walked = []
    for _ in range(len(buttons) + 1):
        page.keyboard.press("Tab")
        walked.append(page.evaluate("document.activeElement.dataset.key"))
    assert walked == ["1", "2", "3", "4", "5", "s", "u", "?"]
    page.keyboard.press("Enter")
    assert any(role == "dialog" and name == "Guideline" for role, name, _ in accessible(page))
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "help"  # back where it was
    page.context.close()


def test_it_works_without_javascript(browser, server, folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(server.address)
    page.fill("#name", "Cy")
    page.keyboard.press("Enter")
    first = shown(page)
    page.locator("fieldset button").nth(2).click()
    assert shown(page) != first
    assert labels_in(folder, "Cy")["score"].tolist() == [0.5]
    context.close()
