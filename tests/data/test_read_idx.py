"""idx files: every type and shape comes back; whatever is damaged is refused by name."""

import gzip
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data import read_idx
from assay.errors import InputError

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array, dtype="u1"):
    """An idx file, written from its description: zero, zero, type, axes; sizes; values; big-endian."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[dtype], array.ndim, *array.shape)
    return head + array.astype(dtype).tobytes()


@pytest.fixture
def pixels():
    return np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5) * 4


@pytest.fixture
def folder(tmp_path, pixels):
    (tmp_path / IMAGES).write_bytes(idx_bytes(pixels))
    (tmp_path / LABELS).write_bytes(idx_bytes(np.array([2, 0, 1])))
    return tmp_path


def test_images_come_out_between_zero_and_one_with_a_channel(folder, pixels):
    inputs, labels = read_idx(folder / IMAGES)
    assert inputs.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert np.array_equal(inputs.numpy(), pixels[:, None].astype(np.float32) / 255)
    assert labels.tolist() == [2, 0, 1]


def test_bytes_stay_as_they_are_if_asked(folder, pixels):
    inputs = read_idx(folder / IMAGES, uint8=True).inputs
    assert inputs.dtype == torch.uint8
    assert np.array_equal(inputs.numpy(), pixels[:, None])


def test_gzipped_files_are_the_same_under_any_name(folder):
    plain = read_idx(folder / IMAGES)
    for name in (IMAGES, LABELS):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    packed = read_idx(folder / f"{IMAGES}.gz")
    assert torch.equal(plain.inputs, packed.inputs)
    assert torch.equal(plain.labels, packed.labels)
    (folder / "pictures").write_bytes((folder / f"{IMAGES}.gz").read_bytes())
    assert torch.equal(read_idx(folder / "pictures", folder / f"{LABELS}.gz").inputs, plain.inputs)


def test_a_folder_is_read_by_split(folder, pixels):
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(pixels[:1]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.array([1])))
    assert len(read_idx(folder, split="train").inputs) == 3
    assert len(read_idx(folder, split="test").inputs) == 1
    with pytest.raises(InputError, match=r"one idx file of images.*t10k"):
        read_idx(folder)
    with pytest.raises(InputError, match="got none"):
        read_idx(folder, split="validation")


@pytest.mark.parametrize("dtype", CODES)
def test_tables_of_every_type_come_back(tmp_path, dtype):
    table = np.array([[1, 2, 3], [4, 5, 6]])
    (tmp_path / "x").write_bytes(idx_bytes(table, dtype))
    (tmp_path / "y").write_bytes(idx_bytes(np.array([0, 1]), ">i4"))
    assert read_idx(tmp_path / "x", tmp_path / "y").inputs.tolist() == table.tolist()


@pytest.mark.parametrize("keep", [3, 7, 15, 16, 40])
def test_truncated_files_are_refused(folder, keep):
    (folder / IMAGES).write_bytes((folder / IMAGES).read_bytes()[:keep])
    with pytest.raises(InputError, match=f"{IMAGES}.*expected"):
        read_idx(folder / IMAGES)


def test_a_truncated_gzip_is_refused(folder):
    (folder / f"{IMAGES}.gz").write_bytes(gzip.compress((folder / IMAGES).read_bytes())[:-9])
    with pytest.raises(InputError, match=r"ubyte\.gz: cannot be read"):
        read_idx(folder / f"{IMAGES}.gz", folder / LABELS)


def test_bytes_left_over_are_refused(folder):
    (folder / IMAGES).write_bytes((folder / IMAGES).read_bytes() + b"x")
    with pytest.raises(InputError, match="expected 76 bytes"):
        read_idx(folder / IMAGES)


def test_a_wrong_magic_number_is_refused(folder):
    (folder / IMAGES).write_bytes(b"\x89PNG" + bytes(100))
    with pytest.raises(InputError, match="starts with 89 50 4e 47"):
        read_idx(folder / IMAGES)


def test_what_does_not_fit_together_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="pass the file of images"):
        read_idx(folder / LABELS)
    (folder / LABELS).write_bytes(idx_bytes(np.array([2, 0])))
    with pytest.raises(InputError, match=r"one label per input \(3\), got 2"):
        read_idx(folder / IMAGES)
    with pytest.raises(InputError, match="one class number per input"):
        read_idx(folder / IMAGES, folder / IMAGES)
    (folder / LABELS).unlink()
    with pytest.raises(InputError, match=f"beside it in {LABELS}"):
        read_idx(folder / IMAGES)


def test_missing_and_empty_files_are_refused(folder):
    with pytest.raises(InputError, match=r"none: expected a file, found none"):
        read_idx(folder / "none")
    (folder / IMAGES).write_bytes(b"")
    with pytest.raises(InputError, match="empty file"):
        read_idx(folder / IMAGES)


@settings(max_examples=200)
@given(place=st.integers(0, 75), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_but_never_crashes(tmp_path_factory, place, value):
    folder = tmp_path_factory.mktemp("idx")
    content = bytearray(idx_bytes(np.arange(60, dtype=np.uint8).reshape(3, 4, 5)))
    content[place] = value
    (folder / IMAGES).write_bytes(content)
    (folder / LABELS).write_bytes(idx_bytes(np.array([0, 1, 2])))
    try:
        inputs, _ = read_idx(folder / IMAGES)
    except InputError:
        return
    assert len(inputs) == 3
