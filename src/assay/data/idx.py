"""idx, the format of MNIST and its relatives: a magic number, the shape, then the values."""

import gzip
import io
import math
import re
import zlib
from os import PathLike
from pathlib import Path

import numpy as np
from torch import Tensor

from assay.data.arrays import Array, as_inputs
from assay.data.labelled import Labelled, numbered
from assay.data.memory import MOST_UNPACKED, expect_room
from assay.data.place import existing_file
from assay.errors import InputError, MissingLabelsError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"
_SPLITS = {"train": ("train",), "test": ("t10k", "test")}


def read_idx(
    path: str | PathLike[str],
    labels: str | PathLike[str] | None = None,
    *,
    split: str | None = None,
    scale: float | None = None,
    uint8: bool = False,
) -> Labelled[Tensor]:
    """(inputs, labels) from a file of images and a file of labels, plain or gzipped.

    `path` is the file of images, or the folder with this file and `split` "train" or "test". The file of
    labels is expected beside it under the usual name (train-images-idx3-ubyte, train-labels-idx1-ubyte)
    unless `labels` names another. Images become float32 in [0, 1], channels first: (N, 1, H, W); values that
    are not bytes are divided by `scale`. With `uint8`, bytes stay as they are, for `Network(scale=255)`.
    Memory needed: the file and the result.
    """
    images = _image_file(path, split)
    inputs = _inputs(images, scale, uint8)
    beside = _labels_beside(images) if labels is None else existing_file(labels)
    return Labelled(inputs, numbered(_array_in(beside), len(inputs), beside))


def idx_inputs(
    path: str | PathLike[str],
    *,
    split: str | None = None,
    scale: float | None = None,
    uint8: bool = False,
) -> Tensor:
    """The images of `read_idx` alone."""
    return _inputs(_image_file(path, split), scale, uint8)


def _image_file(path: str | PathLike[str], split: str | None) -> Path:
    return _images_of_split(Path(path), split) if Path(path).is_dir() else existing_file(path)


def _inputs(images: Path, scale: float | None, uint8: bool) -> Tensor:
    values = _array_in(images)
    if values.ndim < 2:
        raise InputError(
            f"{images}: expected inputs of two axes or more, got labels; pass the file of images"
        )
    return as_inputs(values, images, scale, uint8=uint8)


def _array_in(path: Path) -> Array:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            return _read_array(stream, path, path.stat().st_size * (MOST_UNPACKED if packed else 1))
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch the file again") from error


def _read_array(stream: io.BufferedIOBase, path: Path, most: int) -> Array:
    """The array in a stream of at most `most` bytes; no more are read than the header announces."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _TYPES or not magic[3]:
        raise InputError(
            f"{path}: expected an idx file, got one that starts with {magic.hex(' ') or 'nothing'}; "
            "pass a file such as train-images-idx3-ubyte"
        )
    dtype, axes = np.dtype(_TYPES[magic[2]]), stream.read(4 * magic[3])
    shape = tuple(np.frombuffer(axes, ">u4").tolist()) if len(axes) == 4 * magic[3] else ()
    start, size = 4 + len(axes), math.prod(shape)
    expected = start + dtype.itemsize * size
    content = b""
    if shape and expected <= most:
        expect_room(size * (dtype.itemsize + 4), path)  # the values, and float32 made of them
        content = stream.read(expected - start + 1)
    if not shape or start + len(content) != expected:
        got = "more" if start + len(content) > expected else f"{start + len(content)}"
        raise InputError(
            f"{path}: expected {expected} bytes for an array of shape {shape}, got {got}; "
            "the file is truncated or damaged, fetch it again"
        )
    return np.frombuffer(content, dtype).reshape(shape)


def _images_of_split(folder: Path, split: str | None) -> Path:
    files = {
        file.name.removesuffix(".gz"): file
        for file in sorted(folder.iterdir(), reverse=True)  # the plain file is preferred to a gzipped copy
        if re.search(r"images.*idx", file.name)
    }
    words = ("",) if split is None else _SPLITS.get(split, (split,))
    fitting = [file for name, file in files.items() if any(word in name for word in words)]
    if len(fitting) != 1:
        raise InputError(
            f"{folder}: expected one idx file of images for split={split!r}, got "
            f"{sorted(file.name for file in fitting) or 'none'}; pass the file itself or another split"
        )
    return fitting[0]


def _labels_beside(images: Path) -> Path:
    name = re.sub(r"idx\d", "idx1", images.name.removesuffix(".gz").replace("images", "labels"))
    for candidate in (images.with_name(name), images.with_name(name + ".gz")):
        if candidate.is_file() and candidate != images:
            return candidate
    raise MissingLabelsError(
        f"{images}: expected the labels beside it in {name}, found no such file; pass labels= with their file"
    )
