"""Every benchmark and paper script starts (`--help`), and has a small run in benchmarks/small_runs.py."""

import runpy
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = [path for path in sorted(HERE.rglob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


def test_every_script_has_a_small_run():
    listed = runpy.run_path(str(HERE / "small_runs.py"))["RUNS"]
    assert {HERE / f"{name}.py" for name in listed} | {HERE / "small_runs.py"} == set(SCRIPTS)
    assert all(listed.values())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(HERE)))
def test_help(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.syspath_prepend(str(HERE))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert not ended.value.code
    assert "usage" in capsys.readouterr().out.lower()
