"""Files: safetensors tensors plus a JSON header with kind and format version; no pickle anywhere.

A file is the tree of an object's state (`state_tree.py`); only this module knows how the tree is written. A
network is not written: the caller passes it to `load` again. A folder with a manifest is opened by the class
that the manifest names.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file

from assay.errors import AssayError, StorageError
from assay.identity import digest
from assay.state_tree import MergeablePacker, NetworklessUnpacker, Packer, Unpacker, class_of, kind_of
from assay.state_tree import fingerprint_of as fingerprint_of
from assay.state_tree import storable as storable

FORMAT_VERSION = 1

MANIFEST = "manifest.jsonl"
"""In a folder that is read like one file: a line that says what it is, and a line per part."""


def save(obj: object, path: str | os.PathLike[str], *, mergeable: bool = False) -> None:
    """Write `obj` to `path`, whole or not at all.

    With `mergeable`, monitors are written with what their fit gathered (sums, samples of rows), so that fits
    from several files can be merged.
    """
    kind = kind_of(obj)
    if kind is None:
        raise StorageError(
            f"expected an object that assay can save, got {type(obj).__name__}; "
            "save a Trace, a monitor, a Guard or a result"
        )
    packer = MergeablePacker() if mergeable else Packer()
    tree = json.dumps(packer.pack(obj))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in packer.tensors.items()}
    metadata = {
        "format": "assay",
        "format_version": str(FORMAT_VERSION),
        "kind": kind,
        "state": tree,
        "digest": digest(tree, tensors),
    }
    # `save_file` of safetensors keeps a ctypes type for every length it has seen: a leak in a service that
    # writes its counts every second.
    specs = {name: _spec(tensor) for name, tensor in tensors.items()}
    write_whole(path, lambda temporary: serialize_file(specs, temporary, metadata=metadata))


def load(path: str | os.PathLike[str], *, network: object | None = None, kind: str | None = None) -> Any:
    """Read what `save` wrote.

    Objects that refer to a network need it as `network` (several as a list, in the order they appear in the
    object). With `kind`, a file of another kind is refused.
    """
    if (Path(path) / MANIFEST).is_file():
        return _opened(Path(path), kind)
    metadata, tensors = _read(path)
    if kind is not None and metadata["kind"] != kind:
        raise StorageError(
            f"expected {path} to contain a {kind}, got a {metadata['kind']}; pass the right file"
        )
    networks = list(network) if isinstance(network, list | tuple) else [] if network is None else [network]
    return _unpacked(path, metadata, Unpacker(tensors, networks))


def load_without_networks(path: str | os.PathLike[str]) -> Any:
    """A result as far as it can be read without its networks: None stands for what needs one, such as the
    guard of a check. Its numbers, words and figures are all there."""
    metadata, tensors = _read(path)
    return _unpacked(path, metadata, NetworklessUnpacker(tensors, []))


def _unpacked(path: str | os.PathLike[str], metadata: dict[str, str], unpacker: Unpacker) -> Any:
    try:
        return unpacker.unpack(json.loads(metadata["state"]))
    except AssayError as error:  # already one sentence that says what to do
        raise StorageError(f"{path}: {error}") from error
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise StorageError(
            f"{path} does not describe a valid {metadata['kind']} ({error}); save it again"
        ) from error


def mapped(path: str | os.PathLike[str]) -> Any:
    """What `save` wrote, with tensors that are read from the file when they are used; the digest is not
    checked, which would read all of them."""
    metadata, tensors = _read(path, whole=False)
    return Unpacker(tensors, []).unpack(json.loads(metadata["state"]))


def stored_digest(path: str | os.PathLike[str]) -> str:
    """The digest that the file says it has."""
    with _open_file(path) as (_, metadata):
        return metadata.get("digest", "")


def _opened(folder: Path, kind: str | None) -> Any:
    """What the manifest of a folder describes."""
    try:
        with (folder / MANIFEST).open(encoding="utf-8") as lines:
            found = json.loads(next(lines))["kind"]
    except (OSError, StopIteration, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{folder / MANIFEST} is damaged ({error}); write the folder again") from error
    if kind not in (None, found, "Trace"):
        raise StorageError(f"expected {folder} to contain a {kind}, got a {found}; pass the right one")
    return class_of(found).open(folder)  # type: ignore[attr-defined]


def expect_readable(path: str | os.PathLike[str]) -> None:
    """Raise if this user may not read the file, or list the folder, at `path`."""
    needed = os.R_OK | os.X_OK if Path(path).is_dir() else os.R_OK
    if not os.access(path, needed):
        raise StorageError(f"cannot read {path}: this user may not; change its permissions")


def expect_writable(path: str | os.PathLike[str], *, folder: bool = False) -> None:
    """Raise unless a file, or a folder, can be written at `path`; nothing is created."""
    target = Path(path)
    try:
        place = _nearest_existing(target) if folder else target.absolute().parent
        if target.is_dir() and not folder:
            problem = "it is a folder; choose the name of a file"
        elif target.exists() and not folder and not target.is_file():
            problem = "it is not an ordinary file; choose another"  # a device would be replaced by a file
        elif not place.is_dir():
            problem = (
                f"{place} is a file; choose another folder"
                if folder
                else "no such folder; choose a folder that exists and is writable"
            )
        elif not os.access(place, os.W_OK | os.X_OK):
            problem = f"{place} is not writable; choose a folder that is"
        else:
            return
    except OSError as error:
        problem = f"{error.strerror}; choose another name"
    raise StorageError(f"cannot write {target}: {problem}")


def _nearest_existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    whole = path.absolute()
    return next(place for place in (whole, *whole.parents) if place.exists())


def write_whole(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Call `write` on a temporary file beside `path`, then rename it: `path` is complete or untouched."""
    expect_writable(path)
    target = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}; choose a folder that exists and is writable"
        ) from error
    os.close(handle)
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except (OSError, SafetensorError) as error:
        raise StorageError(f"cannot write {target}: {error}; the file was left as it was") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_text_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text to `path`, whole or not at all."""
    write_whole(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


@contextmanager
def folder_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder whose files move to `path` at the end; after an error, none does."""
    target = Path(path)
    expect_writable(target, folder=True)
    with tempfile.TemporaryDirectory(dir=_nearest_existing(target), prefix=f".{target.name}.") as temporary:
        yield Path(temporary)
        made_folder(target)
        try:
            for file in sorted(Path(temporary).iterdir()):
                os.replace(file, target / file.name)
        except OSError as error:
            raise StorageError(f"cannot write {target}: {error.strerror}; choose another folder") from error


def made_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, created if it did not exist; an error if it cannot be."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror}; choose another") from error
    return folder


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _spec(tensor: torch.Tensor) -> TensorSpec:
    """The address of a contiguous tensor for safetensors; the tensor must exist until it is written."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(
        dtype=dtype, shape=tuple(tensor.shape), data_ptr=tensor.data_ptr(), data_len=tensor.nbytes
    )


def _read(
    path: str | os.PathLike[str], *, whole: bool = True
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Metadata and tensors; without `whole`, these stay where they are on disk, and nothing is checked."""
    with _open_file(path) as (file, metadata):
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if not whole:
            return metadata, tensors
        # A clone lies where torch aligns its memory, as it did before saving: matrix products round by
        # alignment, and a loaded monitor is to give the very same scores.
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    if digest(metadata.get("state", ""), tensors) != metadata.get("digest"):
        raise StorageError(f"{path} is damaged: its contents do not match its digest; save it again")
    return metadata, tensors


@contextmanager
def _open_file(path: str | os.PathLike[str]) -> Iterator[tuple[Any, dict[str, str]]]:
    """An open file that assay wrote, and its metadata."""
    if not Path(path).is_file():
        found = "a folder" if Path(path).is_dir() else "none"
        raise StorageError(f"expected a file at {path}, found {found}; check the path")
    expect_readable(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != "assay":
                other = "read other formats with assay.data"
                raise StorageError(f"expected a file written by assay.save, got {path}; {other}")
            if int(version := metadata["format_version"]) > FORMAT_VERSION:
                known = f"this assay reads up to {FORMAT_VERSION}; upgrade assay"
                raise StorageError(f"{path} has format version {version}, {known}")
            yield file, metadata
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise StorageError(f"{path} is truncated or damaged ({error}); save it again") from error
