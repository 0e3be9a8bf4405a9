"""Texts with labels come back letter for letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data import read_text
from assay.errors import InputError


@pytest.mark.parametrize("name", ["text", "sentence", "content", "Review"])
def test_columns_are_found_under_their_usual_names(tmp_path, name):
    (tmp_path / "data.csv").write_text(f"label,{name}\n1,good film\n0,bad\n")
    texts, labels = read_text(tmp_path / "data.csv")
    assert texts == ["good film", "bad"]
    assert labels.tolist() == [1, 0]


def test_columns_go_by_name_or_position(tmp_path):
    (tmp_path / "data.tsv").write_text("great\tpos\tx\npoor\tneg\ty\n")
    data = read_text(tmp_path / "data.tsv", 0, 1, header=False)
    assert data.inputs == ["great", "poor"]
    assert (data.labels.tolist(), data.classes) == ([1, 0], ("neg", "pos"))


def test_quotes_hold_cells_together_in_csv_and_are_text_in_tsv(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"one, ""two""",0\n')
    (tmp_path / "a.tsv").write_text('text\tlabel\n"one\t0\ntwo" 5\t1\n')
    assert read_text(tmp_path / "a.csv").inputs == ['one, "two"']
    assert read_text(tmp_path / "a.tsv").inputs == ['"one', 'two" 5']
    (tmp_path / "a.tsv").write_text('text\tlabel\n"one\ttwo"\t0\n')
    assert read_text(tmp_path / "a.tsv", quoted=True).inputs == ["one\ttwo"]


def test_texts_that_look_like_numbers_or_gaps_stay_texts(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n007,0\nNA,1\n,0\n")
    assert read_text(tmp_path / "a.csv").inputs == ["007", "NA", ""]


def test_missing_columns_are_said(tmp_path):
    (tmp_path / "a.csv").write_text("words,label\na,0\n")
    with pytest.raises(InputError, match=r"text column .*\['words', 'label'\]"):
        read_text(tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"a column 5.*label="):
        read_text(tmp_path / "a.csv", "words", 5)


# A carriage return or NUL ends a line or a file for some writers; they are no part of a text here.
words = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\t\0", exclude_categories=["Cc", "Cs"]))


@given(st.lists(words.filter(lambda text: not text.startswith("\ufeff")), min_size=1))
def test_any_line_of_a_tsv_comes_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("text") / "a.tsv"
    path.write_text("label\ttext\n" + "".join(f"0\t{text}\n" for text in texts), encoding="utf-8", newline="")
    assert read_text(path).inputs == texts
