"""idx, the format of MNIST and its relatives: a magic number, the shape, then the values."""

import gzip
import math
import re
import zlib
from os import PathLike
from pathlib import Path

import numpy as np
from torch import Tensor

from assay.data.arrays import Array, as_inputs
from assay.data.labelled import Labelled, numbered
from assay.data.place import existing_file
from assay.errors import InputError, MissingLabelsError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_SPLITS = {"train": ("train",), "test": ("t10k", "test")}


def read_idx(
    path: str | PathLike[str],
    labels: str | PathLike[str] | None = None,
    *,
    split: str | None = None,
    scale: float | None = None,
) -> Labelled[Tensor]:
    """(inputs, labels) from a file of images and a file of labels, plain or gzipped.

    `path` is the file of images, or a folder that holds it, with `split` "train" or "test". The file of
    labels lies beside it under the usual name (train-images-idx3-ubyte, train-labels-idx1-ubyte) unless
    `labels` names another. Images come out float32 in [0, 1], channels first: (N, 1, H, W); `scale` is what
    values of another type than bytes are divided by. Memory: the file and the result.
    """
    images = _images(path, split)
    inputs = _inputs(images, scale)
    beside = _beside(images) if labels is None else existing_file(labels)
    return Labelled(inputs, numbered(_array(beside), len(inputs), beside))


def idx_inputs(path: str | PathLike[str], *, split: str | None = None, scale: float | None = None) -> Tensor:
    """The images of `read_idx` alone."""
    return _inputs(_images(path, split), scale)


def _images(path: str | PathLike[str], split: str | None) -> Path:
    return _of_split(Path(path), split) if Path(path).is_dir() else existing_file(path)


def _inputs(images: Path, scale: float | None) -> Tensor:
    values = _array(images)
    if values.ndim < 2:
        raise InputError(
            f"{images}: expected inputs of two axes or more, got labels; pass the file of images"
        )
    return as_inputs(values, images, scale)


def _array(path: Path) -> Array:
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES or not content[3]:
        raise InputError(
            f"{path}: expected an idx file, got one that starts with {content[:4].hex(' ') or 'nothing'}; "
            "pass a file such as train-images-idx3-ubyte"
        )
    dtype, start = np.dtype(_TYPES[content[2]]), 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    expected = start + dtype.itemsize * math.prod(shape)
    if not shape or len(content) != expected:
        raise InputError(
            f"{path}: expected {expected} bytes for an array of shape {shape}, got {len(content)}; "
            "the file is truncated or damaged, fetch it again"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch the file again") from error


def _of_split(folder: Path, split: str | None) -> Path:
    files = {
        file.name.removesuffix(".gz"): file
        for file in sorted(folder.iterdir(), reverse=True)  # the plain file wins over its gzipped twin
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


def _beside(images: Path) -> Path:
    name = re.sub(r"idx\d", "idx1", images.name.removesuffix(".gz").replace("images", "labels"))
    for candidate in (images.with_name(name), images.with_name(name + ".gz")):
        if candidate.is_file() and candidate != images:
            return candidate
    raise MissingLabelsError(
        f"{images}: expected the labels beside it in {name}, found no such file; pass labels= with their file"
    )
