"""Needs combine, and the tables in the docs are those the metadata give."""

import re
import runpy
from pathlib import Path

import pytest

from assay.monitors.metadata import Labels, Needs

SCRIPT = Path(__file__).parents[2] / "docs" / "monitor_tables.py"

STEP = Needs(inputs=True, forward="2", backward="1")


def test_the_tables_in_the_docs_are_the_monitors_own():
    script = runpy.run_path(str(SCRIPT))
    found = script["TABLES"].search(script["PAGE"].read_text(encoding="utf-8"))
    assert found is not None
    assert found.group() == script["tables"](), "run: python docs/monitor_tables.py"


def test_two_monitors_need_what_either_needs():
    both = Needs(labels=Labels.OPTIONAL, forward="passes") | STEP
    assert both == Needs(labels=Labels.OPTIONAL, inputs=True, forward="passes + 2", backward="1")
    assert Needs() | Needs() == Needs()
    assert (Needs(labels=Labels.REQUIRED) | Needs(labels=Labels.OPTIONAL)).labels is Labels.REQUIRED


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (Needs(inputs=True, labels=Labels.REQUIRED), "^$"),
        (STEP, "gradient"),
        (Needs(forward="2"), "runs a network again"),
        (Needs(user_code=True), "user code"),
    ],
)
def test_only_code_gradients_and_passes_stand_in_the_way_of_a_graph(needs, reason):
    assert re.search(reason, needs.obstacle)
