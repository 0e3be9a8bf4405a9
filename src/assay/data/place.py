"""Paths passed to readers."""

from os import PathLike
from pathlib import Path

from assay.errors import InputError
from assay.storage import expect_readable


def existing_file(path: str | PathLike[str]) -> Path:
    """The path; an error unless it is a file with content."""
    place = Path(path)
    if not place.is_file():
        found = "a folder" if place.is_dir() else "none"
        raise InputError(f"{place}: expected a file, found {found}; check the path")
    expect_readable(place)
    if not place.stat().st_size:
        raise InputError(f"{place}: expected data, got an empty file; fetch or write it again")
    return place


def expect_numpy(file: Path) -> None:
    """Raise unless the file is npz or npy: NumPy treats any other as a pickle, and advises unsafe loading."""
    with file.open("rb") as stream:
        start = stream.read(6)
    if not start.startswith((b"PK", b"\x93NUMPY")):
        raise InputError(
            f"{file}: expected an npz or npy file, got one that starts with {start.hex(' ')}; "
            "save plain arrays with numpy.savez"
        )
