"""A frame of assay shows its figures when it is printed, and is a DataFrame in everything else."""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay.table import Table

WIDE = Table({f"measure_{number}": [number + 1 / 3, number + 2 / 3] for number in range(30)})


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_figure_is_hidden(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = repr(WIDE)
    assert "..." not in shown
    assert max(map(len, shown.splitlines())) <= columns
    for number in range(30):
        assert f"measure_{number}" in shown
        assert re.search(rf"\b{number + 1 / 3:.4g}\b", shown)
    assert str(WIDE) == shown
    assert "..." not in WIDE._repr_html_()
    assert all(f"measure_{number}" in WIDE._repr_html_() for number in range(30))


def test_long_texts_are_shown_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = " ".join(["a long assumption"] * 8)
    assert words in repr(Table({"method": ["one"], "assumption": [words]}))


def test_many_rows_are_cut_as_the_user_wants():
    tall = Table({"value": np.arange(500)})
    assert len(repr(tall).splitlines()) < 70
    with pd.option_context("display.max_rows", None):
        assert len(repr(tall).splitlines()) > 500
    with pd.option_context("display.float_format", "{:.1f}".format):
        assert "0.3" in repr(WIDE)
        assert "0.3333" not in repr(WIDE)


def test_plain_frames_are_printed_as_before():
    with pd.option_context("display.max_columns", 20):
        assert "..." in repr(pd.DataFrame(WIDE))


def test_what_is_made_of_a_table_is_one_and_the_values_are_the_same():
    assert type(WIDE.head(1)) is Table
    assert type(WIDE[["measure_0"]]) is Table
    pd.testing.assert_frame_equal(pd.DataFrame(WIDE), WIDE, check_frame_type=False)
    assert pd.DataFrame(WIDE).equals(WIDE)


def results():
    """Every class of assay that gives a frame."""
    for module in pkgutil.walk_packages(assay.__path__, "assay."):
        if module.name == "assay.__main__":
            continue
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            own = kind.__module__ == module.name and "to_frame" in vars(kind)
            if own and not getattr(kind, "_is_protocol", False):
                yield kind


@pytest.mark.parametrize("kind", list(results()), ids=lambda kind: kind.__name__)
def test_every_frame_of_a_result_is_a_table(kind):
    assert inspect.unwrap(kind.to_frame) is not kind.to_frame


def test_a_frame_of_a_result_is_a_table(monkeypatch):
    trace = assay.Trace(torch.zeros(3, 2), labels=torch.zeros(3))
    assert type(trace.to_frame()) is Table
    assert isinstance(trace.to_frame(), pd.DataFrame)
