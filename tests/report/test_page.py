"""The report is one file that shows what the results say and fetches nothing."""

import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

import assay
from assay.check.gate import UNKNOWN, Gate
from assay.errors import InputError, StorageError
from assay.figure_image import figure_svg
from assay.report import Section, changes
from assay.statistics import Measured as Measure


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


class Judged(Measured):
    title = "Is it fit?"
    missing = "Left out: nothing."
    gates = (
        Gate("accuracy", 0.9, (0.87, 0.93), 0.5, "at least 0.5", True, "It is <right>."),
        Gate("monitorability", 0.55, (0.5, 0.59), 0.6, "above 0.6", False, "Little shows."),
        Gate("false alarms", 0.2, (0.1, 0.3), 0.1, "at most 0.1", False, "Too many.", at_most=True),
        Gate("MIRA score", float("nan"), UNKNOWN, 0.0, "above 0", None, "Not measured."),
    )

    def banner(self):
        return False, "A gate failed & more."

    def advice(self):
        return "Train it <again>."


def test_a_verdict_stands_on_top_with_its_gates_as_cards(tmp_path):
    origin = {"command": "assay check <x>", "seed": 3}
    assay.write_report([Judged()], tmp_path / "x.html", origin=origin)
    page = (tmp_path / "x.html").read_text()
    assert page.index('class="banner bad"') < page.index("<nav") < page.index('class="gate passed"')
    assert "A gate failed &amp; more." in page
    assert "90.0 % (87.0 % to 93.0 %)" in page
    assert "It is &lt;right&gt;." in page
    assert page.count("What to do:") == 1 + 3  # of all, and of every gate that did not pass
    assert "<dt>command</dt><dd>assay check &lt;x&gt;</dd>" in page
    assert f"assay {assay.__version__}" in page
    assert "not measured" in page
    assert "<summary>How this was made</summary>" in page


def points(page, name):
    """(start and end of what is wanted, the point) of a gate's figure."""
    drawn = re.search(rf'<svg[^>]*aria-label="{name}:.*?</svg>', page, re.DOTALL).group()
    start, wide = (
        float(re.search(rf'class="wanted"[^>]* {part}="([\d.]+)"', drawn)[1]) for part in ("x", "width")
    )
    return start, start + wide, float(re.search(r'<circle[^>]*cx="([\d.]+)"', drawn)[1])


@pytest.mark.parametrize(
    "gate", [gate for gate in Judged.gates if gate.passed is not None], ids=lambda gate: gate.name
)
def test_the_point_of_a_gate_lies_in_what_is_wanted_only_if_it_passed(tmp_path, gate):
    assay.write_report([Judged()], tmp_path / "x.html")
    start, end, point = points((tmp_path / "x.html").read_text(), gate.name)
    assert (start <= point <= end) == gate.passed


def test_shares_are_per_cent_and_figures_have_four_digits(tmp_path):
    table = pd.DataFrame(
        {"accuracy": [0.78125, 0.5], "accuracy_lower": [0.7, 0.4], "kilobytes": [12345.678, 0.00123456]}
    )
    assay.write_report([Section("One", table=table)], tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    for text in ("78.1 %", "70.0 %", "12,350", "0.001235"):
        assert f">{text}<" in page


def test_figures_follow_the_mode_of_the_reader():
    figure = Figure()
    figure.subplots().plot([1, 2])
    svg = figure_svg(figure)
    assert "prefers-color-scheme:dark" in svg
    assert "fill: #ffffff" not in svg
    assert "stroke: #000000" not in svg
    assert "var(--paper)" in svg


class Scored(Measured):
    def __init__(self, **values):
        self.values = values

    def measures(self):
        return [
            Measure(name, value, (value - 0.02, value + 0.02), name == "costs")
            for name, value in self.values.items()
        ]


def test_two_runs_side_by_side():
    found = changes(
        Scored(gain=0.9, costs=0.5, same=0.5, fresh=1.0), Scored(gain=0.8, costs=0.3, same=0.51, gone=1.0)
    )
    verdicts = dict(zip(found.table["measure"], found.table["verdict"], strict=True))
    assert verdicts == {"gain": "better", "costs": "worse", "same": "cannot tell"}
    assert found.only == ("fresh", "gone")
    assert found.banner() == (False, "Worse: costs; Better: gain.")
    # Independently: 0.02 is 1.96 standard errors of each, so that of a difference is sqrt(2) as large; three
    # measures share 5 %.
    reach = norm.ppf(1 - 0.05 / 6) * np.sqrt(2) * 0.02 / norm.ppf(0.975)
    np.testing.assert_allclose(found.table["upper"] - found.table["difference"], reach)
    assert found.plot() is not None
    assert changes(Scored(gain=0.9), Scored(gain=0.9)).banner()[0] is None


def test_what_cannot_be_compared_is_one_sentence():
    with pytest.raises(InputError, match="two results of one kind"):
        changes(Measured(), Scored(gain=1.0))
    with pytest.raises(InputError, match="two results of one kind"):
        changes(Measured(), Measured())
    with pytest.raises(InputError, match="a measure in common"):
        changes(Scored(gain=1.0), Scored(gone=1.0))
    with pytest.raises(InputError, match="a measure in common"):
        changes(Scored(gain=float("nan")), Scored(gain=1.0))
