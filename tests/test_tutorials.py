"""The notebooks of docs/tutorials run from top to bottom, and their results show themselves."""

import asyncio
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PATIENCE = 600
"""Seconds after which a kernel has hung, however busy the machine is."""

FORGET = """
for name in [name for name in globals() if not name.startswith("_") and name not in dir(__builtins__)]:
    if name not in ("In", "Out", "get_ipython", "exit", "quit", "name"):
        del globals()[name]
"""
"""Deletes what a notebook defined. IPython's own `%reset` also collects garbage, which takes a second."""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """All notebooks in one kernel, one after another, each with its own names: torch is loaded once."""
    if sys.platform == "win32":
        asyncio.set_event_loop_policy(asyncio.WindowsSelectorEventLoopPolicy())
    books = {path.stem: nbformat.read(path, as_version=4) for path in NOTEBOOKS}
    whole = nbformat.v4.new_notebook()
    for book in books.values():
        whole.cells += [nbformat.v4.new_code_cell(FORGET), *book.cells]
    folder = tmp_path_factory.mktemp("tutorials")
    client = NotebookClient(whole, timeout=PATIENCE, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return books


def shown(book):
    """The HTML of the outputs."""
    return [
        output["data"]["text/html"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_shows_words_a_figure_and_a_table(executed, path):
    pages = "".join(shown(executed[path.stem]))
    for part in ("<h4>", "<p>", "data:image/svg+xml;base64,", "<table"):
        assert part in pages


def test_bars_appear_and_are_taken_away_again(executed):
    updates = [page for book in executed.values() for page in shown(book) if "<progress" in page]
    assert updates == []  # a bar that is done leaves nothing behind


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_kept_without_outputs(path):
    book = nbformat.read(path, as_version=4)
    assert not [cell for cell in book.cells if cell.cell_type == "code" and cell.outputs]
