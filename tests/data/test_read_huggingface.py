"""Datasets of Hugging Face are taken by what they can do; the package itself is not needed."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from assay.data import read_huggingface
from assay.errors import InputError


class Dataset:
    """What `datasets.Dataset` offers of itself: column_names, features, len, and columns by name."""

    def __init__(self, columns, class_names=None):
        self.columns = columns
        self.column_names = list(columns)
        self.features = {"label": SimpleNamespace(names=class_names)} if class_names else {}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name):
        return self.columns[name]


def test_texts_come_out_as_a_list_with_their_class_names():
    data = read_huggingface(Dataset({"text": ["a", "b"], "label": [1, 0]}, ["neg", "pos"]))
    assert data.inputs == ["a", "b"]
    assert data.labels.tolist() == [1, 0]
    assert data.classes == ("neg", "pos")


def test_images_come_out_channels_first_in_the_unit_interval():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 5, 3), dtype=np.uint8)
    images = [Image.fromarray(array) for array in pixels]
    data = read_huggingface(Dataset({"img": images, "label": [1, 0]}))
    assert np.array_equal(data.inputs.numpy(), pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    assert read_huggingface(Dataset({"img": images, "label": [1, 0]}), size=2, channels=1).inputs.shape == (
        2,
        1,
        2,
        2,
    )
    mixed = [images[0], images[1].resize((3, 3))]
    with pytest.raises(InputError, match=r"column 'img': .*one size"):
        read_huggingface(Dataset({"img": mixed, "label": [1, 0]}))


def test_numbers_and_named_labels():
    data = read_huggingface(Dataset({"f": [[1.0, 2.0], [3.0, 4.0]], "kind": ["b", "a"]}), "f", "kind")
    assert data.inputs.dtype == torch.float32
    assert data.inputs.tolist() == [[1, 2], [3, 4]]
    assert (data.labels.tolist(), data.classes) == ([1, 0], ("a", "b"))
    named = Dataset({"x": [[1.0], [2.0]], "label": ["b", "a"]})
    assert read_huggingface(named, classes=("b", "c", "a")).labels.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ({"train": 1}, r'dataset\["train"\]'),
        ([1, 2], "got list"),
        (Dataset({"text": [], "label": []}), "empty"),
        (Dataset({"words": ["a"], "label": [0]}), r"\['words', 'label'\]; pass inputs="),
        (Dataset({"text": ["a"], "kind": [0]}), "pass label="),
        (Dataset({"text": ["a"], "label": [-1]}), "got -1"),
        (Dataset({"x": [[1], [1, 2]], "label": [0, 1]}), "rows of one shape"),
    ],
)
def test_what_is_no_labelled_split_is_refused(dataset, reason):
    with pytest.raises(InputError, match=reason):
        read_huggingface(dataset)
