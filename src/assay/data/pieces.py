"""Data in many files, each read where it is used."""

from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from assay.data.source import read, read_inputs
from assay.errors import InputError, MissingLabelsError
from assay.storage import expect_readable

ENDINGS = (".npz", ".npy", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".tar")

Place = Any
"""A file, or a block of a dataset of Ray."""


def holds_pieces(path: Path) -> bool:
    """Whether it is a folder of files that are read one by one."""
    return path.is_dir() and any(file.name.endswith(ENDINGS) for file in path.iterdir())


def is_place(data: Any) -> bool:
    """Whether this says where data is: a path (no text), a list of paths, or a dataset of Ray."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(one, PathLike) for one in data)
    return isinstance(data, PathLike) or _is_ray_dataset(data)


def check_reachable(data: Any, engine: str) -> None:
    """Refuse blocks of Ray for workers that are not Ray's."""
    if engine == "processes" and _is_ray_dataset(data):
        raise InputError(
            "expected engine='ray' for a dataset of Ray, whose blocks only its workers can read, got "
            "engine='processes'; pass engine='ray'"
        )


def files_of(data: Any) -> Iterator[Place]:
    """The places, one after another: files in the order of their names, blocks of a dataset in its order."""
    if _is_ray_dataset(data):
        yield from _blocks(data)
        return
    paths = [Path(one) for one in (data if isinstance(data, list | tuple) else [data])]
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: expected a file or a folder, found none; check the path")
        expect_readable(path)
    for path in paths:
        inside = (
            sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS)) if path.is_dir() else []
        )
        yield from inside or [path]


def rows_at(place: Place) -> Any:
    """(inputs, labels), or inputs, of a file; a dict of columns of a block."""
    if not isinstance(place, PathLike):
        return _block(place)
    try:
        return read(place)
    except MissingLabelsError:
        return read_inputs(place)


def _is_ray_dataset(data: Any) -> bool:
    return type(data).__module__.startswith("ray.data")


def _blocks(dataset: Any) -> Iterator[Place]:
    """References to the blocks, made as they are asked for, and in the same order in every run."""
    dataset.context.execution_options.preserve_order = True
    for bundle in dataset.iter_internal_ref_bundles():
        yield from (entry.ref for entry in bundle.blocks)


def _block(reference: Any) -> Mapping[str, Any]:
    import ray
    from ray.data.block import BlockAccessor

    columns: Mapping[str, Any] = BlockAccessor.for_block(ray.get(reference)).to_numpy()
    return columns
