"""The report is one file that shows what the results say and fetches nothing."""

import re

import pandas as pd
import pytest
from matplotlib.figure import Figure

import assay
from assay.errors import InputError, StorageError
from assay.report import Section


class Measured:
    title = "Measured <thing>"

    def summary(self):
        return "It is 3.\n\nDo <b>nothing</b>."

    def to_frame(self):
        return pd.DataFrame(
            {
                "name_of": ["a&b", "c"],
                "value": [1.23456789, float("nan")],
                "count": [10000, 2],
                "ok": [True, False],
            }
        )

    def plot(self):
        figure = Figure()
        figure.subplots().set_title("a curve")
        return figure


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "report.html"
    assay.write_report([Measured(), Section("Words", "only", parts=[Section("Inner")])], path, title="T & T")
    return path.read_text()


def test_words_and_numbers_are_shown_and_escaped(page):
    assert "T &amp; T" in page
    assert "Measured &lt;thing&gt;" in page
    assert "<p>It is 3.</p>\n<p>Do &lt;b&gt;nothing&lt;/b&gt;.</p>" in page
    assert ">a&amp;b<" in page
    assert ">1.235<" in page
    assert ">10,000<" in page
    assert ">–<" in page
    assert ">yes<" in page
    assert "name of" in page
    assert "<h3>Inner</h3>" in page


def test_nothing_is_fetched(page):
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "@import" not in page
    assert "url(" not in page


def test_pictures_are_embedded_with_words_for_those_who_do_not_see_them(page):
    assert 'src="data:image/svg+xml;base64,' in page
    assert 'alt="a curve"' in page


def test_the_same_results_give_the_same_pictures(tmp_path):
    pictures = []
    for name in ("a", "b"):
        assay.write_report([Measured()], tmp_path / name)
        pictures.append(re.findall(r"base64,[^\"]+", (tmp_path / name).read_text()))
    assert pictures[0] == pictures[1]


def test_bad_input_gets_one_clear_sentence(tmp_path):
    with pytest.raises(InputError, match="got none"):
        assay.write_report([], tmp_path / "x.html")
    with pytest.raises(InputError, match="got int"):
        assay.write_report([3], tmp_path / "x.html")
    with pytest.raises(StorageError, match="folder that exists"):
        assay.write_report([Measured()], tmp_path / "none" / "x.html")
