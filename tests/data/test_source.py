"""One door for every source: the reader that fits, with its options and no others."""

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.data import read
from assay.errors import InputError


@pytest.fixture
def sources(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((1, 2)), y=[0])
    (tmp_path / "numbers.csv").write_text("a,label\n1,0\n")
    (tmp_path / "texts.tsv").write_text("sentence\tlabel\nfine\t0\n")
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / "train-images-idx3-ubyte").write_bytes(
        bytes.fromhex("00000803 00000001 00000001 00000001 ff")
    )
    (tmp_path / "idx" / "train-labels-idx1-ubyte").write_bytes(bytes.fromhex("00000801 00000001 00"))
    (tmp_path / "folder" / "cat").mkdir(parents=True)
    Image.new("L", (2, 2), 255).save(tmp_path / "folder" / "cat" / "1.png")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("a.npz", {}, [[1, 1]]),
        ("numbers.csv", {}, [[1]]),
        ("numbers.csv", {"text": "a"}, ["1"]),
        ("texts.tsv", {}, ["fine"]),
        ("idx", {"split": "train"}, [[[[1]]]]),
        ("idx/train-images-idx3-ubyte", {}, [[[[1]]]]),
        ("folder", {"size": 1}, [[[[1]]]]),
    ],
)
def test_the_door_finds_the_reader(sources, name, options, expected):
    inputs, labels = read(str(sources / name), **options)
    assert (inputs.tolist() if isinstance(inputs, torch.Tensor) else inputs) == expected
    assert labels.tolist() == [0]


def test_unknown_sources_and_options_are_refused(sources):
    with pytest.raises(InputError, match="found none"):
        read(sources / "none.csv")
    (sources / "model.pt").write_bytes(b"x")
    with pytest.raises(InputError, match="got another kind"):
        read(sources / "model.pt")
    with pytest.raises(InputError, match=r"a.npz: expected options of its reader \(inputs, .*got 'size'"):
        read(sources / "a.npz", size=3)
    with pytest.raises(InputError, match="one split of a dataset"):
        read(3)


def test_every_reader_is_public():
    assert set(assay.data.__all__) <= set(dir(assay.data))
