"""What notebooks show: everything escaped, and nothing that breaks a cell."""

import importlib
import inspect
import pkgutil
import sys

import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

import assay
from assay.engine import notebook_bar, progress
from assay.errors import UndecidedError
from assay.guard import AnyGuard
from assay.notebook import MOST_ROWS, Shown


class Nasty(Shown):
    title = "<b>title</b>"

    def summary(self):
        return "one & <i>two</i>\n\nthree"

    def plot(self):
        figure = Figure()
        figure.subplots().set_title('a "quoted" <u>title</u>')
        return figure

    def to_frame(self):
        return pd.DataFrame({"<s>": ["<script>alert(1)</script>"] * 25})


def test_everything_is_escaped_and_only_the_first_rows_are_shown():
    page = Nasty()._repr_html_()
    for raw in ("<b>", "<i>", "<u>", "<s>", "<script>", '"quoted"'):
        assert raw not in page
    assert page.count("&lt;script&gt;") == MOST_ROWS
    assert "25 rows, the first 10 shown" in page
    assert "<p>one &amp; &lt;i&gt;two&lt;/i&gt;</p><p>three</p>" in page


def test_what_cannot_say_anything_yet_leaves_the_rest():
    class Undecided(Nasty):
        def plot(self):
            raise UndecidedError("expected more rows")

    page = Undecided()._repr_html_()
    assert "<img" not in page
    assert "<table" in page


def result_classes():
    """Every class of assay with a title, a summary and a table."""
    for module in pkgutil.walk_packages(assay.__path__, "assay."):
        if ".cli" in module.name or "__main__" in module.name or ".demo" in module.name:
            continue
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and {"summary", "to_frame"} <= set(vars(found)):
                yield found


def test_every_result_shows_itself():
    found = [one for one in result_classes() if one.__name__ != "Result"]
    assert len(found) > 30
    assert not [one for one in found if not issubclass(one, Shown)]


@pytest.fixture(scope="module")
def guard():
    torch.manual_seed(0)
    network = assay.Network(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    )
    trace = network.observe((torch.randn(40, 4), torch.arange(40) % 3))
    return assay.Guard(network, assay.monitors.Mahalanobis().fit(trace)).calibrate(trace, 0.1)


def test_traces_guards_and_verdicts_show_themselves(guard, tmp_path):
    inputs = torch.randn(30, 4)
    trace = guard.network.observe((inputs, torch.zeros(30, dtype=torch.long)))
    accuracy = float(trace.correct.double().mean())
    assert f"accuracy {accuracy:.1%}" in trace._repr_html_()
    assert "30 predictions of 3 classes; layers: penultimate (8 values)" in trace._repr_html_()
    assert "Mean confidence" in guard.network.observe(inputs)._repr_html_()
    assert "<img" in trace._repr_html_()
    verdict = guard(inputs)
    assert f"30 predictions, {int(verdict.alarm.sum())} under alarm" in verdict._repr_html_()
    assert "set on 40 clean rows for at most 10.0% false alarms" in guard._repr_html_()
    assert "never: it has no threshold" in assay.Guard(guard.network, guard.monitor)._repr_html_()
    assert isinstance(guard, AnyGuard)
    sharded = guard.network.observe_to(tmp_path / "shards", inputs)._repr_html_()
    assert "30 rows in 1 shards); of the first shard: 30 predictions" in sharded
    assert "<h4>" in trace[:0]._repr_html_()


def test_in_a_notebook_a_loop_has_one_bar_that_disappears(monkeypatch):
    shown = []

    class Handle:
        def update(self, page):
            shown.append(page.data)

    def display(page, display_id):
        shown.append(page.data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(sys.modules["assay.engine.progress"], "in_notebook", lambda: True)
    monkeypatch.setattr(notebook_bar, "SECONDS", 0.0)
    found = [(a, b) for a in progress(range(3), "outer") for b in progress([1, 2], "inner")]
    assert found == [(a, b) for a in range(3) for b in (1, 2)]
    assert [page.partition("</progress>")[2].split(",")[0] for page in shown[:-1]] == [
        " 0 of 3</label>", " 1 of 3", " 2 of 3", " 3 of 3",
    ]  # fmt: skip
    assert shown[-1] == ""
    assert not [page for page in shown if "inner" in page]
    with pytest.raises(ZeroDivisionError):
        [1 / item for item in progress([1, 0, 2], "breaks")]
    assert shown[-1] == ""
