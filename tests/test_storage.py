"""Files are whole and honest, or refused with one clear sentence."""

import ctypes
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

import assay
from assay import storage
from assay.errors import StorageError
from assay.identity import digest
from assay.storage import folder_whole


@storage.storable("test.Box")
@dataclass
class Box:
    value: object


@storage.storable("test.Strict")
@dataclass
class Strict:
    value: int

    def __post_init__(self):
        if self.value < 0:
            raise assay.AssayError("negative")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "object.safetensors"


def through_file(value, path):
    assay.save(Box(value), path)
    return assay.load(path).value


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=20,
)


@given(plain)
def test_any_tree_of_plain_values_comes_back_equal(tmp_path_factory, value):
    assert through_file(value, tmp_path_factory.mktemp("tree") / "tree.safetensors") == value


def test_numbers_that_json_lacks_come_back(path):
    back = through_file([math.nan, math.inf, -math.inf], path)
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
def test_tensors_come_back_equal_also_views_and_shared_ones(path, dtype):
    whole = torch.arange(12).reshape(3, 4).to(dtype)
    back = through_file({"whole": whole, "view": whole[:, 1:3], "twice": whole, "empty": whole[:0]}, path)
    for name, expected in {"whole": whole, "view": whole[:, 1:3], "twice": whole, "empty": whole[:0]}.items():
        assert back[name].dtype == dtype
        assert torch.equal(back[name], expected)


def test_tensors_come_back_aligned_as_torch_aligns_them(path):
    """Matrix products round by alignment: scores after loading would differ in the last digits."""
    assay.save(Box([torch.zeros(size) for size in range(1, 9)]), path)
    assert all(tensor.data_ptr() % 64 == 0 for tensor in assay.load(path).value)


def test_arrays_scalars_and_frames_come_back_equal(path):
    frame = pd.DataFrame({"name": ["a", "b"], "x": [1.5, np.nan], "n": [1, 2], "ok": [True, False]})
    back = through_file([np.arange(3.0), np.float64(2.5), np.int32(7), frame], path)
    assert np.array_equal(back[0], np.arange(3.0))
    assert back[1:3] == [2.5, 7]
    pd.testing.assert_frame_equal(back[3], frame)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_empty_arrays_come_back_empty(path, shape):
    assert through_file(np.empty(shape), path).shape == shape


def test_a_nested_storable_object_comes_back(path):
    assert through_file([Box(1), {"inner": Box("x")}], path) == [Box(1), {"inner": Box("x")}]


def test_a_failed_write_leaves_the_old_file_and_no_litter(path):
    assay.save(Box(1), path)
    with pytest.raises(StorageError, match="cannot be saved"):
        assay.save(Box(object()), path)
    with pytest.raises(StorageError, match="the file was left as it was"):
        storage.write_whole(path, lambda temporary: (_ for _ in ()).throw(OSError("disk full")))
    assert assay.load(path) == Box(1)
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_said(tmp_path):
    with pytest.raises(StorageError, match="folder that exists"):
        assay.save(Box(1), tmp_path / "none" / "x.safetensors")


def test_an_object_that_cannot_be_saved_is_said(path):
    with pytest.raises(StorageError, match="got dict"):
        assay.save({}, path)


def test_a_missing_file_is_said(path):
    with pytest.raises(StorageError, match="found none"):
        assay.load(path)


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_truncated_file_is_refused(path, keep):
    assay.save(Box(torch.arange(100.0)), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StorageError, match="truncated or damaged"):
        assay.load(path)


def test_a_flipped_bit_is_refused(path):
    assay.save(Box(torch.arange(100.0)), path)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match="digest"):
        assay.load(path)


def rewritten(path, **changes):
    """The file of a Box with other header entries, as someone else's tool might leave it."""
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata() | changes
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata["digest"] = digest(metadata["state"], tensors)
    save_file(tensors, str(path), metadata=metadata)


def test_a_shape_that_lies_is_refused(path):
    assay.save(Box(torch.arange(12.0).reshape(3, 4)), path)
    data = path.read_bytes()
    assert data.count(b'"shape":[3,4]') == 1
    path.write_bytes(data.replace(b'"shape":[3,4]', b'"shape":[4,3]'))
    with pytest.raises(StorageError, match="digest"):
        assay.load(path)
    path.write_bytes(data.replace(b'"shape":[3,4]', b'"shape":[9,9]'))
    with pytest.raises(StorageError, match="truncated or damaged"):
        assay.load(path)


def test_newer_versions_are_refused(path):
    assay.save(Box(1), path)
    rewritten(path, format_version="99")
    with pytest.raises(StorageError, match="upgrade assay"):
        assay.load(path)
    assay.save(Box(1), path)
    rewritten(path, state=json.dumps({"$kind": "test.Box", "version": 9, "state": {"$items": []}}))
    with pytest.raises(StorageError, match="version 9"):
        assay.load(path)


def test_wrong_kinds_are_refused(path):
    assay.save(Box(1), path)
    with pytest.raises(StorageError, match=r"expected .* to contain a Trace, got a test.Box"):
        assay.load(path, kind="Trace")
    rewritten(path, state=json.dumps({"$kind": "no.Such", "version": 1, "state": {"$items": []}}))
    with pytest.raises(StorageError, match=r"no\.Such"):
        assay.load(path)
    save_file({"x": torch.zeros(1)}, str(path))
    with pytest.raises(StorageError, match=r"written by assay\.save"):
        assay.load(path)


@pytest.mark.parametrize(
    "state",
    [
        {"$items": [["value", -1]]},  # refused by the class itself
        {"$items": [["other", 1]]},  # not a field
        {"$items": [["value", {"$tensor": "7"}]]},  # a tensor that is not there
        {"$nonsense": 1},
        {},
    ],
)
def test_a_header_that_describes_no_valid_object_is_refused(path, state):
    assay.save(Strict(1), path)
    rewritten(path, state=json.dumps({"$kind": "test.Strict", "version": 1, "state": state}))
    with pytest.raises(StorageError):
        assay.load(path)


def test_files_of_ever_new_sizes_leave_nothing_behind(path):
    assay.save(Box(torch.arange(3)), path)
    known = len(ctypes._pointer_type_cache)
    for size in range(1000, 1100):
        assay.save(Box(torch.arange(size)), path)
    assert len(ctypes._pointer_type_cache) == known


def test_a_folder_is_filled_whole_or_not_at_all(tmp_path):
    target = tmp_path / "made" / "for" / "it"
    with folder_whole(target) as fresh:
        (fresh / "a").write_text("one")
        assert not target.exists()
    assert (target / "a").read_text() == "one"
    (target / "other").write_text("of the user")

    def fail():
        with folder_whole(target) as fresh:
            (fresh / "a").write_text("two")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "one", "other": "of the user"}
    with folder_whole(target) as fresh:
        (fresh / "a").write_text("two")
    assert {path.name: path.read_text() for path in target.iterdir()} == {"a": "two", "other": "of the user"}


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not an ordinary file"):
        assay.save(assay.Trace(torch.zeros(1, 2)), tmp_path / "pipe")
    assert not (tmp_path / "pipe").is_file()
