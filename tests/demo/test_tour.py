"""The demo runs whole: every chapter answers, says what to do, and stands in the report."""

from functools import partial
from html.parser import HTMLParser

import pytest
import torch

from assay.demo import doubts, everything, setting, tour
from assay.demo.networks import trained
from assay.demo.tour import CHAPTERS, run_demo
from assay.report import Section


class Headings(HTMLParser):
    """The texts of all headings of a page, and how many pictures it has."""

    def __init__(self):
        super().__init__()
        self.found, self.inside, self.pictures = [], False, 0

    def handle_starttag(self, tag, attributes):
        self.inside = tag in ("h1", "h2", "h3")
        self.pictures += tag in ("img", "svg")
        if self.inside:
            self.found.append("")

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.found[-1] += data


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Smaller than `assay demo`, which `.ci/wheel` runs as it is: networks trained for a third of the time,
    every fourth monitor, a twelfth of the samples."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    chosen = doubts.chosen_monitors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setting, "trained", partial(trained, epochs=20))
        patch.setattr(doubts, "chosen_monitors", lambda *arguments: chosen(*arguments)[::4])
        patch.setattr(everything, "BUDGET", 20_000)
        return run_demo(path, quiet=True), path


def test_every_chapter_asks_answers_and_advises(demo):
    sections, _ = demo
    assert len(sections) == len(CHAPTERS)
    for section in sections:
        assert section.question.endswith("?")
        assert section.words
        assert section.advice
        assert section.figures


def test_the_report_holds_every_chapter_and_its_pictures(demo):
    sections, path = demo
    page = Headings()
    page.feed(path.read_text())
    for section in sections:
        assert any(section.title in heading for heading in page.found)
    assert page.pictures >= sum(len(section.figures) for section in sections)


def test_the_verdict_stands_on_top(demo):
    sections, path = demo
    (banner,) = (section.banner for section in sections if section.banner)
    page = path.read_text()
    assert page.index(banner.sentence) < page.index("Contents")


def test_small_tensors_are_not_handed_from_thread_to_thread(monkeypatch, tmp_path):
    """With two threads the demo took more than three times as much of the processors."""
    seen = []

    def chapter(setting):
        seen.append(torch.get_num_threads())
        return Section("Title", "Words.", question="Why?", advice="Do.")

    monkeypatch.setattr(tour, "prepared", lambda seed: None)
    monkeypatch.setattr(tour, "CHAPTERS", (chapter,))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_demo(tmp_path / "report.html", quiet=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1]
