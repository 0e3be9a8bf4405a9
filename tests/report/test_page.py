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


def test_advice_and_the_meaning_of_columns_are_shown(tmp_path):
    table = pd.DataFrame(
        {"lower": [0.1, 0.2], "log_density": [-1.0, -2.0], "specific_mcc": [0.0, 1.0], "own": 1}
    )
    assay.write_report([Section("One", advice="Stay <calm>.", table=table)], tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "<strong>What to do:</strong> Stay &lt;calm&gt;." in page
    assert "<dt>lower</dt><dd>lower edge of the bin (output of the model)</dd>" in page
    assert "<dt>specific mcc</dt><dd>agreement of alarms" in page
    assert "<dt>own</dt>" not in page


def test_every_column_of_the_widest_tables_has_a_meaning():
    from assay.benchmark.result import COLUMNS
    from assay.report.columns import meanings

    assert list(meanings(COLUMNS)) == list(COLUMNS)


def test_one_row_is_shown_upright(tmp_path):
    assay.write_report([Section("One", table=pd.DataFrame({"a": [1], "b": [0.5]}))], tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "Table: 1 row<" in page
    assert '<tr><th scope="row">a</th><td class="number" data-value="1">1</td></tr>' in page


def test_a_result_is_followed_by_those_it_stands_on(tmp_path):
    class Whole(Measured):
        title = "Whole"

        def parts(self):
            return [Measured()]

    assay.write_report([Whole()], tmp_path / "x.html")
    titles = re.findall(r"<h2>(.*?)</h2>", (tmp_path / "x.html").read_text())
    assert titles == ["Whole", "Measured &lt;thing&gt;"]


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
