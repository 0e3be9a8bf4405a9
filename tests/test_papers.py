"""Figures in the docs come from runs: markers and runs match, rewriting is exact, a driver goes on."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import matthews_corrcoef

ROOT = Path(__file__).parents[1]
DOCS, PAPERS = ROOT / "docs", ROOT / "benchmarks" / "papers"
sys.path.insert(0, str(PAPERS))

import all as driver  # noqa: E402
import pages  # noqa: E402
from runs import RUNS, Run  # noqa: E402
from safety_chance import chances, holm, mcc_of  # noqa: E402
from safety_paper import published, their_name  # noqa: E402

sys.path.remove(str(PAPERS))

MARKED = {f"{run.name}/{block}": page for run in RUNS.values() for block, page in run.blocks.items()}


def test_every_marker_has_a_run_and_every_run_its_markers():
    found = [
        (name, str(path.relative_to(DOCS)))
        for path in sorted(DOCS.rglob("*.md"))
        for name in pages.names(path.read_text(encoding="utf-8"))
    ]
    assert sorted(found) == sorted(MARKED.items())
    assert not [path for path in DOCS.rglob("*.md") if pages.stray_markers(path.read_text(encoding="utf-8"))]


def test_runs_stand_on_files_that_exist():
    for run in RUNS.values():
        assert all(path.is_file() for path in [*driver.scripts(run), *driver.rooms(run)])
        assert len(driver.rooms(run)) == len(driver.rooms(replace(run, apart=()))) - len(run.apart)
        assert set(run.needs) <= set(RUNS)
        assert all("{" not in part for part in driver.Cache(DOCS, DOCS, DOCS).arguments(run, run.commands[0]))


def test_rewriting_changes_only_what_stands_between_the_markers():
    page = (
        "Before\n<!-- figures a/x -->\nold\n<!-- end a/x -->\nbetween\n"
        "<!-- figures b/y: code 0, then -->\nkept\n<!-- end b/y -->\nafter"
    )
    table = pages.markdown(pd.DataFrame({"n": [1], "a|b": ["x"]}))
    assert table == "| n | a\\|b |\n| --- | --- |\n| 1 | x |\n"
    block = pages.Block(table, "`python x.py`", "12345678", "1 May 2026")
    new = pages.rewritten(page, {"a/x": block})
    made = f"<!-- figures a/x: code 12345678, 1 May 2026 -->\n\n`python x.py`\n\n{table}\n"
    assert new == page.replace("<!-- figures a/x -->\nold\n", made)
    assert pages.rewritten(new, {"a/x": block}) == new
    assert pages.names(new) == ["a/x", "b/y"]
    assert not pages.stray_markers(new)
    assert pages.stray_markers("x\n<!-- figures c -->\n<!-- end d -->") == [
        "<!-- figures c -->",
        "<!-- end d -->",
    ]


@pytest.fixture
def three(monkeypatch, tmp_path):
    """A run that another needs, and a long one of the highest value."""
    runs = [
        Run("long", ("pages",), minutes=50, value=3),
        Run(
            "table",
            ("pages --x {network}",),
            minutes=20,
            value=2,
            blocks={"t": "page.md"},
            needs=("network",),
        ),
        Run("network", ("pages",), minutes=20, value=1),
    ]
    monkeypatch.setattr(driver, "RUNS", {run.name: run for run in runs})
    return driver.Cache(tmp_path / "runs", tmp_path / "data", tmp_path / "shared")


def stamped(run, caches):
    tables = caches.of(run) / "tables"
    tables.mkdir(parents=True)
    for block in run.blocks:
        (tables / f"{block}.md").write_text("| 1 |\n")
    stamp = driver.Stamp(driver.code(run), "1 May 2026", 1.0, 0.0)
    (caches.of(run) / "stamp.json").write_text(driver.json.dumps(vars(stamp)))
    return True


def test_what_is_fresh_is_not_made_again_and_what_takes_too_long_not_begun(three, monkeypatch):
    order = driver.in_order([])
    assert [run.name for run in order] == ["long", "network", "table"]
    assert driver.drive(order, 0.5, three, stamped, clock=lambda: 0.0) == ["network", "table"]
    assert driver.drive(order, 1.0, three, stamped, clock=lambda: 0.0) == ["long"]
    assert driver.drive(order, 9.0, three, stamped, clock=lambda: 0.0) == []
    # What the network stands on changes, so the table is stale too.
    driver.RUNS["network"] = Run("network", ("pages --more",), minutes=20, value=1)
    assert [three.state(run) for run in driver.in_order([])] == ["fresh", "stale", "stale"]


def test_a_table_that_was_registered_later_makes_the_run_unfinished(three, tmp_path):
    for run in driver.in_order(["table"]):
        stamped(run, three)
    driver.RUNS["table"] = replace(driver.RUNS["table"], blocks={"t": "page.md", "later": "page.md"})
    assert three.state(driver.RUNS["table"]) == "stale"
    (tmp_path / "page.md").write_text("<!-- figures table/later -->\nold\n<!-- end table/later -->\n")
    driver.write_pages(three, tmp_path)
    assert "\nold\n" in (tmp_path / "page.md").read_text()


def test_of_a_runs_images_those_are_copied_that_a_page_shows(three, tmp_path):
    run = driver.RUNS["table"]
    stamped(run, three)
    tables = three.of(run) / "tables"
    (tables / "t.md").write_text("![a plot](images/plot.png)\n")
    for name in ("plot.png", "by-hand.svg", "nobody-shows.png"):
        (tables / name).write_text(name)
    (tmp_path / "page.md").write_text(
        "<!-- figures table/t -->\n<!-- end table/t -->\n![b](images/by-hand.svg)\n"
    )
    (tmp_path / "images").mkdir()
    driver.write_pages(three, tmp_path)
    assert {path.name for path in (tmp_path / "images").iterdir()} == {"plot.png", "by-hand.svg"}


def test_what_stands_in_the_docs_with_this_code_needs_no_cache(three, tmp_path):
    def page(made):
        (tmp_path / "page.md").write_text(f"<!-- figures table/t{made} -->\n| 1 |\n<!-- end table/t -->\n")
        return driver.in_docs(tmp_path)

    assert page("") == set()
    assert page(": code 00000000, 1 May 2026") == set()
    # Nor does the network that only the table needs; the long run has no table and serves nobody.
    settled = page(f": code {driver.code(driver.RUNS['table'])}, 1 May 2026")
    assert settled == {"table", "network"}
    assert [run.name for run in driver.in_order([], settled)] == ["long"]
    assert [run.name for run in driver.in_order(["table"], settled)] == ["network", "table"]


def test_a_failed_need_leaves_out_what_needs_it(three):
    assert driver.drive(driver.in_order(["table"]), 9.0, three, lambda *_: False) == []


def test_pages_are_written_from_the_cache(three, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "page.md").write_text("<!-- figures table/t -->\n<!-- end table/t -->\n")
    driver.write_pages(three, docs)  # nothing was made
    for run in driver.in_order(["table"]):
        stamped(run, three)
    driver.write_pages(three, docs)
    code = driver.code(driver.RUNS["table"])
    assert (docs / "page.md").read_text() == (
        f"<!-- figures table/t: code {code}, 1 May 2026 -->\n\n"
        "`python benchmarks/papers/all.py --only table`\n\n| 1 |\n\n<!-- end table/t -->\n"
    )


def test_sentences_of_a_run_are_wrapped_and_its_tables_are_not():
    table = f"| {'x' * 200} |"
    text = f"{'word ' * 40}\n\n{table}\n- short"
    lines = driver.wrapped(text).splitlines()
    assert max(map(len, lines[:2])) <= 110
    assert lines[2:] == ["", table, "- short"]


def test_comments_and_docstrings_decide_no_figure(tmp_path):
    (tmp_path / "a.py").write_text('"""Text."""\n\n\ndef f(x):\n    """More."""\n    return x + 1  # why\n')
    (tmp_path / "b.py").write_text("def f(x):\n    return x + 1\n")
    (tmp_path / "c.py").write_text("def f(x):\n    return x + 2\n")
    a, b, c = (driver.program(tmp_path / f"{name}.py") for name in "abc")
    assert a == b != c


def readouts_of(folder, truth, alarms):
    """What safety_monitors.py keeps of guards on one scenario."""
    folder.mkdir(parents=True)
    for guard, alarm in alarms.items():
        frame = pd.DataFrame({"guard": guard, "scenario": folder.name, "is_fault": truth, "alarm": alarm})
        frame.to_parquet(folder / f"{guard}.parquet")


def test_chance_is_told_from_skill(tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.arange(60) < 45)
    alarms = {"skilled": truth, "silent": truth & False, "coin": rng.random(60) < 0.5, "reversed": ~truth}
    for name in ("fog (2)", "fog (5)", "novelty"):
        readouts_of(tmp_path / "data" / name, truth, alarms)
    found = chances([tmp_path / "data"], draws=199).set_index("guard")
    expected = [matthews_corrcoef(truth, alarms[guard]) for guard in found.index]
    np.testing.assert_allclose(found["mcc"], expected, atol=1e-12)
    assert found["p"]["skilled"] == 1 / 200  # no other draw of 60 inputs is as good
    assert found["p"]["silent"] == found["p"]["reversed"] == 1
    assert found["p"]["coin"] > 0.05
    assert found["better"].to_dict() == {"skilled": 3, "silent": 0, "coin": 0, "reversed": 0}
    assert found["worse"]["reversed"] == found["scenarios"]["coin"] == 3


def test_mcc_from_counts_and_holm_s_adjustment():
    truth, alarm = np.arange(20) < 13, np.arange(20) % 3 == 0
    counted = mcc_of(np.array([(truth & alarm).sum()]), np.array([float(alarm.sum())]), 13, 20)
    assert counted[0] == pytest.approx(matthews_corrcoef(truth, alarm))
    # Holm 1979: the smallest times 3, the next times 2, and never less than the one before.
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])


def test_the_authors_79_are_all_there_and_turned_round():
    theirs = published()
    assert len(theirs) == 3 * 79
    # Table II prints FPR 0.61 and FNR 0.10 for ODIN on CIFAR10-GTSRB, of the class in distribution.
    row = theirs[(theirs["scenario"] == their_name("cifar10-gtsrb")) & (theirs["guard"] == "ODIN")].iloc[0]
    assert (row["fpr"], row["fnr"]) == (0.10, 0.61)
    names = set(theirs["scenario"])
    assert {
        their_name(name) for name in ("gaussian (2)", "pixel_trap (3)", "rotated (5)", "fgsm (5)")
    } <= names
