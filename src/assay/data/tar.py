"""WebDataset archives: tar files in which the parts of one sample lie beside each other."""

import io
import tarfile
from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from assay.data.arrays import as_inputs
from assay.data.images import stacked
from assay.data.labelled import Labelled, numbered
from assay.data.place import existing_file
from assay.errors import InputError, MissingLabelsError

LABELS = ("cls", "label")


def read_tar(path: str | PathLike[str]) -> Labelled[Tensor]:
    """(inputs, labels) of a tar file in the form of WebDataset: for each sample an image (png, jpg, ...) or
    an npy array, and its class as a number in a .cls file. Images become float32 in [0, 1]."""
    inputs, labels = _samples(path)
    if not labels:
        raise MissingLabelsError(f"{path}: expected a .cls file per sample, got none; use read_inputs")
    if len(labels) != len(inputs):
        raise InputError(f"{path}: expected a .cls file per sample, got {len(labels)} of {len(inputs)}")
    return Labelled(_tensor(inputs, path), numbered(np.array(labels), len(inputs), path))


def tar_inputs(path: str | PathLike[str]) -> Tensor:
    """The inputs of `read_tar` alone."""
    return _tensor(_samples(path)[0], path)


def _samples(path: str | PathLike[str]) -> tuple[list[Any], list[int]]:
    file = existing_file(path)
    inputs, labels = [], []
    try:
        for ending, content in _members(str(file)):
            if ending in LABELS:
                labels.append(int(content))
            elif ending == "npy":
                inputs.append(np.load(io.BytesIO(content), allow_pickle=False))
            elif ending != "json":
                inputs.append(Image.open(io.BytesIO(content)))
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: cannot be read as a tar of samples ({error}); write it again") from error
    if not inputs:
        raise InputError(f"{file}: expected samples, got none; put images or npy arrays into it")
    return inputs, labels


def _members(file: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(file) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name.rpartition(".")[2].lower(), stream.read()


def _tensor(inputs: list[Any], path: str | PathLike[str]) -> Tensor:
    if all(isinstance(one, Image.Image) for one in inputs):
        return stacked(inputs, path)
    shapes = {getattr(one, "shape", None) for one in inputs}
    if len(shapes) > 1:
        raise InputError(f"{path}: expected samples of one shape, got {list(shapes)[:3]}; resize them first")
    return as_inputs(np.stack(inputs), path)
