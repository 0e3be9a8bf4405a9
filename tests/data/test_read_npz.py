"""npz files: arrays by name, layouts by a stated rule, nothing pickled."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data import read, read_inputs, read_npz
from assay.errors import InputError, MissingLabelsError

Y = np.array([1, 0])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.npz"


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("x", "y"), {}),
        (("X", "Y"), {}),
        (("images", "labels"), {}),
        (("x_test", "y_test"), {"split": "test"}),
        (("test_images", "test_labels"), {"split": "test"}),
        (("a", "b"), {"inputs": "a", "labels": "b"}),
    ],
)
def test_arrays_are_found_under_their_names(path, names, options):
    other = {"x_train": np.ones((1, 3)), "y_train": np.zeros(1, int)}
    np.savez(path, **other, **{names[0]: np.array([[1.0, 2.0], [3.0, 4.0]]), names[1]: Y})
    inputs, labels = read_npz(path, **options)
    assert inputs.tolist() == [[1, 2], [3, 4]]
    assert labels.tolist() == [1, 0]
    assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_names_that_are_not_there_are_listed(path):
    np.savez(path, x_train=np.zeros((2, 2)), y_train=Y)
    with pytest.raises(InputError, match=r"data\.npz.*\['x_train', 'y_train'\].*split"):
        read_npz(path)
    with pytest.raises(InputError, match="an array 'z'"):
        read_npz(path, inputs="z", split="train")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 5, 6), None),
        ((2, 3, 5, 6), (0, 1, 2, 3)),
        ((2, 5, 6, 3), (0, 3, 1, 2)),
        ((2, 5, 6, 1), (0, 3, 1, 2)),
        ((2, 3, 6, 3), (0, 1, 2, 3)),
        ((2, 12, 5, 6), (0, 1, 2, 3)),
    ],
    ids=["grey", "channels first", "channels last", "one channel", "both could be: first", "many channels"],
)
def test_images_come_out_channels_first_in_the_unit_interval(path, shape, axes):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(path, x=array, y=Y)
    inputs, _ = read_npz(path)
    expected = array[:, None] if axes is None else array.transpose(axes)
    assert np.array_equal(inputs.numpy(), expected.astype(np.float32) / 255)
    assert inputs.is_contiguous()


def test_whole_pixels_stay_as_they_are_if_asked(path):
    array = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3), dtype=np.uint8)
    np.savez(path, x=array, y=Y)
    inputs, _ = read_npz(path, uint8=True)
    assert inputs.dtype == torch.uint8
    assert np.array_equal(inputs.numpy(), array.transpose(0, 3, 1, 2))
    assert inputs.is_contiguous()
    for wrong, options in ((array / 255, {}), (array[:, :, 0, 0], {}), (array, {"scale": 255})):
        np.savez(path, x=wrong, y=Y)
        with pytest.raises(InputError, match=r"images of type uint8 and no scale=.*leave out"):
            read_npz(path, uint8=True, **options)


@pytest.mark.parametrize(("dtype", "white"), [("uint16", 65535), ("bool", 1), ("float64", 1), (">f4", 1)])
def test_other_types_of_pixels_are_brought_to_the_unit_interval(path, dtype, white):
    np.savez(path, x=np.array([[[0, white]], [[white, 0]]]).astype(dtype), y=Y)
    assert read_npz(path).inputs.tolist() == [[[[0, 1]]], [[[1, 0]]]]


def test_pixels_of_unknown_range_are_refused_unless_scale_is_said(path):
    np.savez(path, x=np.full((2, 4, 4), 51.0), y=Y)
    with pytest.raises(InputError, match=r"got 51 to 51; pass scale=255"):
        read_npz(path)
    assert torch.allclose(read_npz(path, scale=255).inputs, torch.tensor(0.2))
    assert torch.equal(read_npz(path, scale=1).inputs, torch.full((2, 1, 4, 4), 51.0))
    np.savez(path, x=np.full((2, 4, 4), 51), y=Y)
    with pytest.raises(InputError, match="int64; pass scale="):
        read_npz(path)
    with pytest.raises(InputError, match="scale above 0"):
        read_npz(path, scale=0)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.array([[1.0], [np.nan]]), Y, "NaN or infinity"),
        (np.zeros((2, 3)), np.array([0, 1, 2]), r"one label per input \(2\), got 3"),
        (np.zeros((2, 3)), np.array([0, -1]), "got -1"),
        (np.zeros((2, 3)), np.array([0.5, 1]), "whole class numbers, got 0.5"),
        (np.zeros((2, 3)), np.eye(2), "one class number per input"),
        (np.zeros((0, 3)), np.zeros(0, int), "not empty"),
        (np.zeros(2), Y, r"got shape \(2,\)"),
        (np.array([["a"], ["b"]]), Y, "expected numbers"),
    ],
)
def test_arrays_that_are_no_data_are_refused(path, x, y, reason):
    np.savez(path, x=x, y=y)
    with pytest.raises(InputError, match=rf"data\.npz: .*{reason}"):
        read_npz(path)


def test_labels_in_a_column_of_whole_floats_are_taken(path):
    np.savez(path, x=np.zeros((2, 3)), y=np.array([[1.0], [0.0]]))
    assert read_npz(path).labels.tolist() == [1, 0]


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("the file ran code",)


def test_pickles_are_refused_and_not_run(path):
    np.savez(path, x=np.array([Bomb(), Bomb()], dtype=object), y=Y)
    with pytest.raises(InputError, match=r"pickle.*save plain arrays"):
        read_npz(path)
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"pickle.*save plain arrays"):
        read_npz(path)


def test_files_that_are_no_npz_are_refused(path, tmp_path):
    with pytest.raises(InputError, match="found none"):
        read_npz(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="empty file"):
        read_npz(path)
    np.save(tmp_path / "one.npy", Y)
    with pytest.raises(InputError, match="single array"):
        read_npz(tmp_path / "one.npy")


@settings(max_examples=300)
@given(place=st.integers(0), value=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_file_is_read_or_refused_but_never_crashes(tmp_path_factory, place, value, cut):
    path = tmp_path_factory.mktemp("npz") / "data.npz"
    np.savez_compressed(path, x=np.arange(6.0).reshape(2, 3), y=Y)
    content = bytearray(path.read_bytes())
    place %= len(content)
    path.write_bytes(content[:place] if cut else content[:place] + bytes([value]) + content[place + 1 :])
    try:
        inputs, _ = read_npz(path)
    except InputError:
        return
    assert inputs.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("uint8", torch.uint8), (">i4", torch.int32), ("uint16", torch.int32), ("int64", torch.int64)],
)
def test_whole_numbers_stay_as_they_are_if_asked(tmp_path, dtype, expected):
    rows = np.arange(12).reshape(3, 4).astype(dtype)
    np.savez(tmp_path / "files.npz", inputs=rows, labels=[0, 1, 1])
    inputs, labels = read(tmp_path / "files.npz", integers=True)
    assert inputs.dtype == expected
    assert torch.equal(inputs.long(), torch.arange(12).reshape(3, 4))
    assert labels.tolist() == [0, 1, 1]
    assert torch.equal(read_inputs(tmp_path / "files.npz", integers=True), inputs)
    np.savez(tmp_path / "floats.npz", inputs=rows / 2, labels=[0, 1, 1])
    with pytest.raises(InputError, match="expected rows of whole numbers, got float64"):
        read(tmp_path / "floats.npz", integers=True)
    with pytest.raises(InputError, match=r"expected one of integers= .* and uint8= .*, got both"):
        read(tmp_path / "files.npz", integers=True, uint8=True)


def test_a_file_with_inputs_alone_is_told_so_where_labels_are_needed(tmp_path):
    np.savez(tmp_path / "today.npz", x=np.zeros((3, 2)))
    with pytest.raises(MissingLabelsError, match="expected inputs and labels, got 'x' alone; add labels"):
        read(tmp_path / "today.npz")
