"""What is public is documented, the documented examples run, and the help in the docs is the real one.

Run as a script, this file writes the help texts into docs/command-line.md.
"""

import os
import re
import subprocess
import sys
from inspect import ismodule
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
from assay.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
COMMAND_PAGE = ROOT / "docs" / "command-line.md"
COMMANDS = sorted(command.callback.__name__ for command in app.registered_commands)
HELP = re.compile(r"(?<=<!-- help -->\n).*(?=<!-- /help -->)", re.DOTALL)


def help_texts():
    texts = []
    for command in COMMANDS:
        result = CliRunner().invoke(
            app,
            [command, "--help"],
            env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
            prog_name="assay",
        )
        assert result.exit_code == 0, result.output
        text = "\n".join(line.rstrip() for line in result.output.strip().splitlines())
        texts.append(f"## assay {command}\n\n```text\n{text}\n```\n")
    return "\n" + "\n".join(texts)


def described(name):
    pages = "\n".join(page.read_text() for page in PAGES)
    return f"`{name}`" in pages or f"`{name}(" in pages or f".{name}(" in pages


@pytest.mark.parametrize("name", [name for name in assay.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name):
    assert (getattr(assay, name).__doc__ or "").strip()
    assert described(name), f"{name} stands in no page of docs/"


@pytest.mark.parametrize("package", [name for name in assay.__all__ if ismodule(getattr(assay, name))])
def test_every_public_name_has_its_place_in_the_list_of_names(package):
    listed = (ROOT / "docs" / "names.md").read_text()
    assert f"| `{package}` |" in listed or f"| `{package}`, " in listed
    if package != "monitors":  # every monitor stands in the tables of monitors.md
        value = getattr(assay, package)
        names = getattr(value, "__all__", None) or [name for name in vars(value) if name.endswith("Error")]
        assert not [name for name in names if f"`{name}`" not in listed]


def test_every_name_at_the_top_has_its_place_in_the_list_of_names():
    listed = (ROOT / "docs" / "names.md").read_text()
    assert not [name for name in assay.__all__ if name != "__version__" and f"`{name}`" not in listed]


@pytest.mark.parametrize("name", sorted(assay.monitors.__all__))
def test_every_monitor_is_documented(name):
    assert (getattr(assay.monitors, name).__doc__ or "").strip()
    assert described(name), f"{name} stands in no page of docs/"


def test_the_table_for_contributors_shows_every_package():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    parts = [f"{path.name}/" if path.is_dir() else path.name for path in (ROOT / "src" / "assay").iterdir()]
    shown = {
        part
        for row in re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
        for part in re.findall(r"`(.*?)`", row)
    }
    hidden = {"__init__.py", "__init__.pyi", "__main__.py", "__pycache__/", "py.typed", "version.py"}
    assert set(parts) - hidden == shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert f"assay {command}" in result.output
    assert "Example" in result.output


def test_the_help_in_the_docs_is_the_real_one():
    found = HELP.search(COMMAND_PAGE.read_text())
    assert found is not None
    assert found.group() == help_texts(), "run: python tests/test_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_lines_wrap_at_the_width_of_the_code(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    long = [line for line in text.splitlines() if len(line) > 110 and not line.startswith(("|", "!["))]
    assert not long


def anchors(page):
    """What a link to a heading of the page may end in, as mkdocs and GitHub write it."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_lead_to_one(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_every_page_stands_in_the_site_and_it_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert built.stderr == ""
    listed = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f" {page.relative_to(ROOT / 'docs')}\n" in listed, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if blocks:
        exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "example"})
    assert all("..." not in line.split("#")[0].split() for block in blocks for line in block.splitlines())


if __name__ == "__main__":
    COMMAND_PAGE.write_text(HELP.sub(lambda _: help_texts(), COMMAND_PAGE.read_text()))
