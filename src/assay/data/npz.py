"""npz: NumPy arrays under names, in one zip file."""

import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from torch import Tensor

from assay.data.arrays import Array, as_inputs, as_symbols
from assay.data.labelled import Labelled, numbered
from assay.data.memory import expect_room
from assay.data.place import existing_file, expect_numpy
from assay.errors import InputError, MissingLabelsError

_INPUTS = ("inputs", "x", "images", "data")
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
LABELS = ("labels", "y", "targets", "target", "label")

BESIDE = 4
"""Bytes per number of the tensor that is made beside the array."""
# NumPy and zipfile raise each of these on one damaged file or another.
_DAMAGED = (
    ValueError,
    OSError,
    EOFError,
    RuntimeError,
    MemoryError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(
    path: str | PathLike[str],
    inputs: str | None = None,
    labels: str | None = None,
    *,
    split: str | None = None,
    scale: float | None = None,
    integers: bool = False,
    uint8: bool = False,
) -> Labelled[Tensor]:
    """(inputs, labels) from two arrays of an npz file; only these two are read.

    By default the inputs are the array called inputs, x, images or data and the labels the one called labels,
    y, targets, target or label, in upper or lower case; with `split="train"`, x_train or train_x and so on.
    Images become float32 in [0, 1], channels first; `as_inputs` in arrays.py lists the accepted layouts and
    what `scale` and `uint8` do. With `integers`, whole numbers (bytes, tokens) stay as they are. Pickled
    (object) arrays are refused: reading them would run code from the file. Arrays that do not fit into free
    memory are refused, by their headers, before they are unpacked.
    """
    file = existing_file(path)
    with open_arrays(file) as arrays:
        if isinstance(arrays, np.ndarray):
            raise MissingLabelsError(
                f"{file}: expected an npz file, got a single array; save both with numpy.savez"
            )
        names = (
            array_named(inputs, _INPUTS, split, arrays.files, "inputs", file),
            array_named(labels, LABELS, split, arrays.files, "labels", file),
        )
        needed = member_bytes(arrays.zip, names[0], 0 if uint8 else BESIDE)
        expect_room(needed + member_bytes(arrays.zip, names[1]), file)
        x, y = (arrays[name] for name in names)
    return Labelled(_inputs(x, file, scale, integers, uint8), numbered(y, len(x), file))


def npz_inputs(
    path: str | PathLike[str],
    inputs: str | None = None,
    *,
    split: str | None = None,
    scale: float | None = None,
    integers: bool = False,
    uint8: bool = False,
) -> Tensor:
    """The inputs of `read_npz` alone; an npy file works too."""
    file = existing_file(path)
    with open_arrays(file) as arrays:
        if isinstance(arrays, np.ndarray):
            x = arrays
        else:
            name = array_named(inputs, _INPUTS, split, arrays.files, "inputs", file)
            expect_room(member_bytes(arrays.zip, name, 0 if uint8 else BESIDE), file)
            x = arrays[name]
    return _inputs(x, file, scale, integers, uint8)


def _inputs(array: Array, file: Path, scale: float | None, integers: bool, uint8: bool) -> Tensor:
    if integers and uint8:
        raise InputError(
            f"{file}: expected one of integers= (bytes, tokens) and uint8= (images), got both; leave one out"
        )
    return as_symbols(array, file) if integers else as_inputs(array, file, scale, uint8=uint8)


@contextmanager
def open_arrays(file: Path) -> Iterator[Any]:
    """The arrays in the file by name, or a single array."""
    expect_numpy(file)
    try:
        with file.open("rb") as stream:
            if stream.peek(len(npy.MAGIC_PREFIX)).startswith(npy.MAGIC_PREFIX):
                expect_room(_array_bytes(stream, BESIDE), file)
                stream.seek(0)
            yield np.load(stream, allow_pickle=False)
    except InputError:
        raise
    except _DAMAGED as error:
        advice = "save plain arrays" if "pickle" in str(error) else "the file is damaged, save it again"
        raise InputError(f"{file}: cannot be read as npz ({error}); {advice} with numpy.savez") from error


def member_bytes(archive: zipfile.ZipFile, name: str, beside: int = BESIDE) -> int:
    """Bytes of memory needed to turn an array into a tensor, by its own header and the archive's."""
    member = name if name in archive.namelist() else f"{name}.npy"
    with archive.open(member) as stream:
        return max(archive.getinfo(member).file_size, _array_bytes(stream, beside))


def _array_bytes(stream: IO[bytes], beside: int) -> int:
    """Bytes of the array that begins here and of the tensor made from it, by its header."""
    version = npy.read_magic(stream)
    if version not in _HEADERS:
        return 0  # a structure with fields, which is refused
    shape, _, dtype = _HEADERS[version](stream)
    return math.prod(shape) * (dtype.itemsize + (0 if dtype == np.float32 else beside))


def array_named(
    asked: str | None,
    usual: Iterable[str],
    split: str | None,
    there: list[str],
    role: str,
    source: object,
) -> str:
    """The name of the array: the one asked for, or the first usual name found."""
    if asked is None:
        folded = {name.lower(): name for name in reversed(there)}
        for stem in usual:
            for name in (stem,) if split is None else (f"{stem}_{split}", f"{split}_{stem}"):
                if name.lower() in folded:
                    return folded[name.lower()]
    elif asked in there:
        return asked
    if role == "labels" and asked is None and len(there) == 1:
        raise MissingLabelsError(f"{source}: expected inputs and labels, got {there[0]!r} alone; add labels")
    wanted = f"an array {asked!r}" if asked else f"an array of {role} under a usual name"
    raise (MissingLabelsError if role == "labels" and asked is None else InputError)(
        f"{source}: expected {wanted}, got {there}; pass {role}= with one of them, "
        'or split="train" for names such as x_train'
    )
