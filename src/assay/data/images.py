"""Image files: a folder with one sub-folder per class."""

import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from assay.data.labelled import Labelled, from_names
from assay.data.memory import expect_room
from assay.engine import progress
from assay.errors import InputError, MissingLabelsError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"}
_GREY = {"1", "L", "LA", "I", "I;16", "I;16L", "I;16B", "I;16N"}
# What Pillow raises on damaged files depends on the format.
_UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, KeyError)
_DAMAGED = (*_UNREADABLE, struct.error, zlib.error, Image.DecompressionBombError)

_THREADS = min(32, (os.cpu_count() or 1) + 4)

Size = int | tuple[int, int]


def read_images(
    folder: str | PathLike[str],
    *,
    size: Size | None = None,
    channels: int | None = None,
    classes: Sequence[str] | None = None,
) -> Labelled[Tensor]:
    """(inputs, labels) from a folder with one sub-folder per class; `.classes` names them.

    Images become float32 in [0, 1], channels first: (N, C, H, W). Classes are numbered in the order of their
    names; pass the `classes` of the training data if a test folder may lack one. All images must have the
    same size, unless `size` (a side, or height and width) is given, to which each is resized, bilinear with
    antialiasing. C is 1 if all images are grey, otherwise 3, unless `channels` sets it; transparency is
    dropped. Hidden files and files without an image ending (png, jpg, bmp, gif, webp, tif, ppm) are ignored.
    Before the first image is decoded, the headers are checked: one size, and enough memory for the result.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(
            f"{place}: expected a folder with one sub-folder per class, found none; check the path"
        )
    folders = sorted(entry for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    files = [(file, entry.name) for entry in folders for file in _image_files(entry)]
    if not files:
        raise (MissingLabelsError if _image_files(place) else InputError)(
            f"{place}: expected images in one sub-folder per class, got {len(folders)} without any; "
            "pass the folder above the classes"
        )
    class_names = [entry.name for entry in folders] if classes is None else classes
    labels, names = from_names([name for _, name in files], class_names, place)
    inputs = stacked([file for file, _ in files], place, size, channels)
    return Labelled(inputs, labels, names, in_sorted_order=classes is None)


def image_inputs(
    folder: str | PathLike[str], *, size: Size | None = None, channels: int | None = None
) -> Tensor:
    """The images of `read_images` alone, from anywhere in the folder, in the order of their paths."""
    place = Path(folder)
    files = _image_files(place)
    if not files:
        raise InputError(f"{place}: expected a folder with images, got none in it; check the path")
    return stacked(files, place, size, channels)


def stacked(
    images: Sequence[Path | Image.Image],
    source: object,
    size: Size | None = None,
    channels: int | None = None,
) -> Tensor:
    """Images, or files of them, as one float32 tensor (N, C, H, W) in [0, 1]."""
    if channels not in (None, 1, 3):
        raise InputError(
            f"expected channels=1 (grey) or channels=3 (colour), got {channels}; pass one of them"
        )
    asked = _asked_size(size)
    headers = [_header(image) for image in images]
    shape = asked or _one_size(images, [size for size, _ in headers], source)
    if channels is None:
        channels = 1 if all(mode in _GREY for _, mode in headers) else 3
    largest = max(width * height for (width, height), _ in headers)
    decoding = min(_THREADS, len(images)) * largest * 8  # as stored in the file, and converted
    expect_room(len(images) * channels * math.prod(shape) * 4 + decoding, source)
    pixels = np.empty((len(images), channels, *shape), np.float32)

    def decode(row: int) -> None:
        pixels[row] = _pixels(images[row], "L" if channels == 1 else "RGB", shape)

    # Pillow releases the interpreter lock while it decodes, so threads use all cores.
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in progress(threads.map(decode, range(len(images))), "reading images", len(images)):
            pass
    return torch.from_numpy(pixels)


def image_pixels(image: Image.Image) -> npt.NDArray[np.float32]:
    """One image as it is, channels first, in [0, 1]: grey with one channel, any other with three."""
    return _pixels(image, "L" if image.mode in _GREY else "RGB", (image.height, image.width))


def _image_files(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()
    )


def _asked_size(size: Size | None) -> tuple[int, int] | None:
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if height < 1 or width < 1:
        raise InputError(f"expected a size of at least one pixel, got {size}; pass a side or (height, width)")
    return height, width


def _one_size(
    images: Sequence[Path | Image.Image], sizes: Sequence[tuple[int, int]], source: object
) -> tuple[int, int]:
    first = sizes[0]
    for image, other in zip(images, sizes, strict=True):
        if other != first:
            raise InputError(
                f"{_image_name(image, source)}: expected images of one size, got {other[1]} x {other[0]} "
                f"where the first is {first[1]} x {first[0]} (height x width); pass size= to resize them"
            )
    return first[1], first[0]


def _header(image: Path | Image.Image) -> tuple[tuple[int, int], str]:
    """Size (width, height) and mode, without decoding."""
    with _open(image) as picture:
        return picture.size, picture.mode


def _pixels(image: Path | Image.Image, mode: str, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """One image, channels first, in [0, 1]."""
    width_height = shape[1], shape[0]
    with _open(image) as picture:
        white = 255.0
        if picture.mode.startswith("I"):
            # Pillow clips 16-bit grey at 255 when it converts to 8 bits; floats lose nothing.
            picture, white = picture.convert("F"), 65535.0
        elif picture.mode == "F":
            raise InputError(
                f"{_image_name(image)}: expected 8 or 16 bits per pixel, got floats; convert the image"
            )
        else:
            picture = picture.convert(mode)
        if picture.size != width_height:
            picture = picture.resize(width_height, Image.Resampling.BILINEAR)
        pixels = np.asarray(picture, np.float32) / np.float32(white)
    if pixels.max() > 1 or pixels.min() < 0:
        raise InputError(
            f"{_image_name(image)}: expected at most 16 bits per pixel, got more; convert the image"
        )
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@contextmanager
def _open(image: Path | Image.Image) -> Iterator[Any]:
    try:
        if isinstance(image, Path):
            with Image.open(image) as picture:
                yield picture
        else:
            yield image
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(
            f"{_image_name(image)}: cannot be read as an image ({error}); replace or remove the file"
        ) from error


def _image_name(image: Path | Image.Image, source: object = "an image") -> object:
    return image if isinstance(image, Path) else source
