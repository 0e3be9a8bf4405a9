"""Image folders: what was drawn comes back, and what cannot be read is named."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from assay.data import read_images
from assay.errors import InputError

RANDOM = np.random.default_rng(0)
RED = RANDOM.integers(0, 256, (4, 6, 3), dtype=np.uint8)
GREY = RANDOM.integers(0, 256, (4, 6), dtype=np.uint8)


def draw(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


@pytest.fixture
def folder(tmp_path):
    draw(tmp_path / "dog" / "b.png", RED)
    draw(tmp_path / "dog" / "deeper" / "c.bmp", RED[::-1])
    draw(tmp_path / "cat" / "a.PNG", RED[:, ::-1])
    return tmp_path


def test_images_come_out_channels_first_in_the_unit_interval_sorted_by_class(folder):
    data = read_images(folder)
    expected = np.stack([RED[:, ::-1], RED, RED[::-1]]).transpose(0, 3, 1, 2)
    assert np.array_equal(data.inputs.numpy(), expected.astype(np.float32) / 255)
    assert data.labels.tolist() == [0, 1, 1]
    assert data.classes == ("cat", "dog")


def test_hidden_and_foreign_files_are_passed_over(folder):
    (folder / "dog" / "notes.txt").write_text("x")
    (folder / "dog" / ".b.png").write_text("x")
    (folder / ".cache").mkdir()
    assert len(read_images(folder).inputs) == 3


def test_classes_keep_their_numbers_where_one_is_missing(folder):
    data = read_images(folder, classes=("dog", "bird", "cat"))
    assert data.labels.tolist() == [2, 0, 0]
    assert data.classes == ("dog", "bird", "cat")
    with pytest.raises(InputError, match=r"classes \['dog'\], got 'cat'"):
        read_images(folder, classes=("dog",))
    with pytest.raises(InputError, match="without repetition"):
        read_images(folder, classes=("dog", "cat", "dog"))


def test_grey_images_have_one_channel_unless_said_or_mixed(tmp_path):
    draw(tmp_path / "a" / "1.png", GREY)
    assert np.array_equal(read_images(tmp_path).inputs[0, 0].numpy(), GREY.astype(np.float32) / 255)
    assert read_images(tmp_path, channels=3).inputs.shape == (1, 3, 4, 6)
    draw(tmp_path / "a" / "2.png", RED)
    mixed = read_images(tmp_path).inputs
    assert mixed.shape == (2, 3, 4, 6)
    assert torch.equal(mixed[0, 0], mixed[0, 2])
    assert read_images(tmp_path, channels=1).inputs.shape == (2, 1, 4, 6)
    with pytest.raises(InputError, match="channels=1"):
        read_images(tmp_path, channels=4)


def test_sixteen_bits_keep_their_depth(tmp_path):
    deep = RANDOM.integers(0, 65536, (4, 6), dtype=np.uint16)
    draw(tmp_path / "a" / "1.png", deep)
    assert np.array_equal(read_images(tmp_path).inputs[0, 0].numpy(), deep.astype(np.float32) / 65535)


def test_eight_bits_stay_as_they_are_if_asked(folder):
    data = read_images(folder, uint8=True)
    assert data.inputs.dtype == torch.uint8
    assert torch.equal(data.inputs.float() / 255, read_images(folder).inputs)
    assert read_images(folder, uint8=True, size=2, channels=1).inputs.shape == (3, 1, 2, 2)
    draw(folder / "dog" / "deep.png", GREY.astype(np.uint16) * 257)
    with pytest.raises(InputError, match=r"deep.png: expected 8 bits per pixel.*leave out uint8="):
        read_images(folder, uint8=True)


def test_transparency_is_dropped(tmp_path):
    draw(tmp_path / "a" / "1.png", np.dstack([RED, GREY]))
    assert np.array_equal(read_images(tmp_path).inputs[0, 2].numpy(), RED[..., 2].astype(np.float32) / 255)


def test_images_of_several_sizes_need_a_size(folder):
    draw(folder / "dog" / "z.png", np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(InputError, match=r"z\.png: .*got 8 x 8 where the first is 4 x 6"):
        read_images(folder)
    assert read_images(folder, size=5).inputs.shape == (4, 3, 5, 5)
    assert read_images(folder, size=(2, 3)).inputs.shape == (4, 3, 2, 3)
    with pytest.raises(InputError, match="at least one pixel"):
        read_images(folder, size=0)


def test_halving_averages(tmp_path):
    draw(tmp_path / "a" / "1.png", np.kron(np.array([[0, 255]], np.uint8), np.ones((4, 4), np.uint8)))
    small = read_images(tmp_path, size=(1, 1)).inputs
    # Half black, half white: grey, up to the rounding of Pillow's 8-bit result.
    assert small.item() == pytest.approx(0.5, abs=1 / 255)


def test_unreadable_images_are_named(folder):
    (folder / "cat" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"broken\.png: cannot be read"):
        read_images(folder)


def test_truncated_images_are_named(folder):
    content = (folder / "dog" / "b.png").read_bytes()
    (folder / "dog" / "b.png").write_bytes(content[:-30])
    with pytest.raises(InputError, match=r"b\.png: cannot be read"):
        read_images(folder)


def test_folders_without_images_are_said(tmp_path):
    with pytest.raises(InputError, match="found none"):
        read_images(tmp_path / "none")
    with pytest.raises(InputError, match="got 0 without any"):
        read_images(tmp_path)
    draw(tmp_path / "loose.png", RED)
    with pytest.raises(InputError, match="above the classes"):
        read_images(tmp_path)


@pytest.mark.parametrize("suffix", ["png", "bmp", "gif", "tif", "jpg", "webp", "ppm"])
@settings(max_examples=60)
@given(place=st.integers(0), value=st.integers(0, 255), cut=st.booleans())
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_image_is_read_or_refused_but_never_crashes(tmp_path_factory, suffix, place, value, cut):
    folder = tmp_path_factory.mktemp("images")
    path = folder / "a" / f"1.{suffix}"
    draw(path, RED)
    content = path.read_bytes()
    place %= len(content)
    path.write_bytes(content[:place] if cut else content[:place] + bytes([value]) + content[place + 1 :])
    try:
        inputs, _ = read_images(folder, size=4)
    except InputError:
        return
    assert inputs.shape in ((1, 3, 4, 4), (1, 1, 4, 4))
