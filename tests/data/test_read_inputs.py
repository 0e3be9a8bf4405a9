"""Data without labels: the same inputs as with them, from every kind of source."""

import gzip
import struct

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.data import read, read_inputs
from assay.errors import InputError, MissingLabelsError

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 6, 6), dtype=np.uint8)
LABELS = np.array([0, 1, 1, 0])


class Dataset:
    """What a split of a Hugging Face dataset looks like from outside."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]


def idx(path, array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def pictures(folder):
    folder.mkdir(parents=True)
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


def npz_source(folder, labelled):
    np.savez(folder / "data.npz", x=IMAGES, **({"y": LABELS} if labelled else {}))
    return folder / "data.npz"


def csv_source(folder, labelled):
    rows = ["a,b" + ",label" * labelled, *(f"{n},{n / 2}" + f",{n % 2}" * labelled for n in range(4))]
    (folder / "data.csv").write_text("\n".join(rows))
    return folder / "data.csv"


def text_source(folder, labelled):
    rows = ["text" + ",label" * labelled, *(f"word {n}" + f",{n % 2}" * labelled for n in range(4))]
    (folder / "data.csv").write_text("\n".join(rows))
    return folder / "data.csv"


def idx_source(folder, labelled):
    idx(folder / "t10k-images-idx3-ubyte.gz", IMAGES)
    if labelled:
        idx(folder / "t10k-labels-idx1-ubyte.gz", LABELS.astype(np.uint8))
    return folder


def image_source(folder, labelled):
    pictures(folder / "photos" / "cat" if labelled else folder / "photos")
    return folder / "photos"


def huggingface_source(folder, labelled):
    return Dataset(
        image=[Image.fromarray(image) for image in IMAGES], **({"label": [0, 1, 1, 0]} if labelled else {})
    )


SOURCES = [npz_source, csv_source, text_source, idx_source, image_source, huggingface_source]


@pytest.mark.parametrize("source", SOURCES)
def test_inputs_are_those_of_the_labelled_reader(source, tmp_path):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    labelled, bare = source(tmp_path / "with", True), source(tmp_path / "without", False)
    expected = read(labelled).inputs
    for inputs in (read_inputs(labelled), read_inputs(bare)):
        assert inputs == expected if isinstance(expected, list) else torch.equal(inputs, expected)


@pytest.mark.parametrize("source", SOURCES)
def test_missing_labels_are_told_from_other_trouble(source, tmp_path):
    with pytest.raises(MissingLabelsError, match="expected"):
        read(source(tmp_path, False))


def test_a_single_array_is_inputs(tmp_path):
    np.save(tmp_path / "data.npy", IMAGES)
    assert torch.equal(read_inputs(tmp_path / "data.npy"), torch.from_numpy(IMAGES)[:, None] / 255)


def test_what_is_wrong_with_inputs_is_said(tmp_path):
    np.savez(tmp_path / "data.npz", other=IMAGES)
    with pytest.raises(InputError, match="array of inputs under a usual name"):
        read_inputs(tmp_path / "data.npz")
    with pytest.raises(InputError, match="options of its reader"):
        read_inputs(tmp_path / "data.npz", labels="y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="a folder with images"):
        read_inputs(tmp_path / "empty")


def test_inputs_without_labels_are_observed(tmp_path):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    trace = assay.Network(module).observe(read_inputs(npz_source(tmp_path, False)))
    assert len(trace) == 4
    assert trace.labels is None
