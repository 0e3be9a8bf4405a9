"""csv tables: numbers and labels come back; a cell that is no number is named by row and column."""

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.data import read_csv
from assay.errors import InputError


@pytest.fixture
def write(tmp_path):
    def write(text, name="data.csv"):
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        return tmp_path / name

    return write


@pytest.mark.parametrize("label", [None, "label", 1, -2])
def test_the_label_column_goes_by_name_position_or_habit(write, label):
    inputs, labels = read_csv(write("a,label,b\n1.5,1,2\n-3,0,4e1\n"), label)
    assert inputs.tolist() == [[1.5, 2], [-3, 40]]
    assert labels.tolist() == [1, 0]
    assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_files_without_header_go_by_position(write):
    inputs, labels = read_csv(write("1,2,0\n3,4,1\n"), -1, header=False)
    assert inputs.tolist() == [[1, 2], [3, 4]]
    assert labels.tolist() == [0, 1]


def test_other_separators_marks_and_packings(write):
    for path, options in [
        (write("x\tlabel\n1\t2\n", "a.tsv"), {}),
        (write("x;label\n1;2\n", "b.csv"), {"separator": ";"}),
        (write("\ufeffx,label\r\n1,2\r\n"), {}),
        (write(gzip.compress(b"x,label\n1,2\n"), "a.csv.gz"), {}),
    ]:
        data = read_csv(path, **options)
        assert (data.inputs.tolist(), data.labels.tolist()) == ([[1]], [2])


def test_names_become_numbers_in_sorted_or_given_order(write):
    path = write("x,class\n1,dog\n2,NA\n3,dog\n")
    data = read_csv(path)
    assert (data.labels.tolist(), data.classes) == ([1, 0, 1], ("NA", "dog"))
    assert read_csv(path, classes=("dog", "bird", "NA")).labels.tolist() == [0, 2, 0]
    with pytest.raises(InputError, match=r"data\.csv.*got 'NA'"):
        read_csv(path, classes=("dog",))


def test_numbers_can_be_names(write):
    path = write("x,y\n1,-1\n2,1\n3,01\n")
    with pytest.raises(InputError, match=r"got -1; .*classes="):
        read_csv(path)
    assert read_csv(path, classes=("-1", "1", "01")).labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,label\n1,0\nx,1\n", r"row 2 of column 'a', got 'x'"),
        ("a,label\n1,0\n,1\n", r"row 2 of column 'a', got ''"),
        ("a,label\nNA,0\n1,1\n", r"row 1 of column 'a', got 'NA'"),
        ("a,b,label\n1,2,0\n1,inf,1\n", r"row 2 of column 'b', got 'inf'"),
        ("a,b,label\n1,1e300,1\n", r"row 1 of column 'b'"),
        ("a,label\n1,0\n2,\n", "a label in every row, got none in row 2"),
        ("a,label\n1,0\n2\n", "a label in every row, got none in row 2"),
        ("a,label\n1,0\n2,1,3\n", "Expected 2 fields in line 3, saw 3"),
        ("a,label\n1,0,5\n2,1,3\n", "cannot be read as a table"),
        ('a,label\n1,"0\n', "cannot be read as a table"),
        ("a,label\n1,0.5\n", "whole class numbers, got 0.5"),
        ("a,b\n1,2\n", r"label column under a usual name, got the columns \['a', 'b'\]"),
        ("label\n1\n", "besides the labels"),
        ("a,label\n", "rows of data, got none"),
        ("", "empty file"),
        ("\n\n", "cannot be read as a table"),
        (b"a,label\n\xff,\xfe\n", "cannot be read as a table"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(write, text, reason):
    with pytest.raises(InputError, match=rf"data\.csv: .*{reason}"):
        read_csv(write(text))


def test_columns_and_files_that_are_not_there_are_refused(write, tmp_path):
    path = write("a,label\n1,0\n")
    for label in ("none", 2, -3):
        with pytest.raises(InputError, match=f"a column {label!r}"):
            read_csv(path, label)
    with pytest.raises(InputError, match="found none"):
        read_csv(tmp_path / "none.csv")
    with pytest.raises(InputError, match=r"a\.csv\.gz: cannot be read"):
        read_csv(write(gzip.compress(path.read_bytes())[:-10], "a.csv.gz"))


@given(
    st.lists(
        st.tuples(st.floats(-(2.0**100), 2.0**100, width=32), st.floats(-1, 1, width=32), st.integers(0, 9)),
        min_size=1,
    )
)
def test_any_table_comes_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    path.write_text("a,b,label\n" + "".join(f"{a!r},{b!r},{label}\n" for a, b, label in rows))
    inputs, labels = read_csv(path)
    expected = np.array([[a, b] for a, b, _ in rows])
    # pandas reads a double to the last bit or the one beside it; single precision is far coarser.
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=1e-7, atol=1e-45)
    assert labels.tolist() == [label for *_, label in rows]


def test_names_that_were_numbered_here_come_with_a_note_of_their_numbers(write):
    path = write("x,label\n1,malignant\n2,benign\n")
    guessed = read_csv(path)
    assert guessed.labels.tolist() == [1, 0]
    assert "benign = 0, malignant = 1" in guessed.note
    told = read_csv(path, classes=("malignant", "benign"))
    assert (told.labels.tolist(), told.note) == ([0, 1], "")
    assert read_csv(write("x,label\n1,1\n2,0\n")).note == ""
    many = read_csv(write("x,label\n" + "\n".join(f"{row},c{row:02}" for row in range(30))))
    assert "c07 = 7, ..., c29 = 29" in many.note
