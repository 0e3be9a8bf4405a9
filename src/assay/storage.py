"""Files: safetensors tensors plus a JSON header with kind and format version; no pickle anywhere.

One decorator makes a class storable. Its state is a tree of plain values whose leaves may be tensors, arrays,
data frames or other storable objects; only this module knows how the tree is written. A network is not
written: the caller passes it to `load` again.
"""

import dataclasses
import importlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, TensorSpec, safe_open, serialize_file

from assay.errors import AssayError, StorageError
from assay.identity import digest

FORMAT_VERSION = 1

_classes: dict[str, type] = {}
_kinds: dict[type, tuple[str, int]] = {}


T = TypeVar("T", bound=type)


def storable(kind: str, version: int = 1) -> Callable[[T], T]:
    """Let `save` and `load` handle instances of the decorated class.

    The kind is the public name below `assay` ("Trace", "monitors.Energy"); classes of other packages may use
    any name. The state is `obj.state()`, or the fields of a dataclass; the object is restored with
    `cls.from_state(state)`, or `cls(**state)`.
    """

    def register(cls: T) -> T:
        _classes[kind] = cls
        _kinds[cls] = kind, version
        return cls

    return register


def save(obj: object, path: str | os.PathLike[str]) -> None:
    """Write `obj` to `path`, whole or not at all."""
    if type(obj) not in _kinds:
        raise StorageError(
            f"expected an object that assay can save, got {type(obj).__name__}; "
            "save a Trace, a monitor, a Guard or a result"
        )
    packer = _Packer()
    tree = json.dumps(packer.pack(obj))
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in packer.tensors.items()}
    metadata = {
        "format": "assay",
        "format_version": str(FORMAT_VERSION),
        "kind": _kinds[type(obj)][0],
        "state": tree,
        "digest": digest(tree, tensors),
    }
    # `save_file` of safetensors keeps a ctypes type for every length it has seen: a leak in a service that
    # writes its counts every second.
    specs = {name: _spec(tensor) for name, tensor in tensors.items()}
    write_whole(path, lambda temporary: serialize_file(specs, temporary, metadata=metadata))


def fingerprint_of(obj: object) -> str:
    """A hash of everything a file of `obj` would contain: the same before saving and after loading."""
    packer = _Identifier()
    return digest(packer.pack(obj), packer.tensors)


def load(path: str | os.PathLike[str], *, network: object | None = None, kind: str | None = None) -> Any:
    """Read what `save` wrote.

    Objects that refer to a network need it as `network` (several as a list, in the order they appear in the
    object). With `kind`, a file of another kind is refused.
    """
    metadata, tensors = _read(path)
    if kind is not None and metadata["kind"] != kind:
        raise StorageError(
            f"expected {path} to contain a {kind}, got a {metadata['kind']}; pass the right file"
        )
    networks = list(network) if isinstance(network, list | tuple) else [] if network is None else [network]
    try:
        return _Unpacker(tensors, networks).unpack(json.loads(metadata["state"]))
    except AssayError as error:  # already one sentence that says what to do
        raise StorageError(f"{path}: {error}") from error
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise StorageError(
            f"{path} does not describe a valid {metadata['kind']} ({error}); save it again"
        ) from error


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


def stored_digest(path: str | os.PathLike[str]) -> str:
    """The hash of the contents that a file says it has, from its header alone; `load` checks it."""
    with _opened(path) as (_, metadata):
        return metadata.get("digest", "")


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with _opened(path) as (file, metadata):
        # A clone lies where torch aligns its memory, as it did before saving: matrix products round by
        # alignment, and a loaded monitor is to give the very same scores.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    if digest(metadata.get("state", ""), tensors) != metadata.get("digest"):
        raise StorageError(f"{path} is damaged: its contents do not match its digest; save it again")
    return metadata, tensors


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[Any, dict[str, str]]]:
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


class _Packer:
    """From an object to a JSON tree; tensors are kept separately, under a number."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.networks: list[object] = []

    def pack(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, list):
            return [self.pack(item) for item in value]
        return self._tagged(value)

    def _tagged(self, value: Any) -> dict[str, Any]:
        if type(value) in _kinds:
            kind, version = _kinds[type(value)]
            return {"$kind": kind, "version": version, "state": self.pack(self._state(value))}
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._tensor_name(value)}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            return {"$array": self._tensor_name(torch.from_numpy(np.require(value, requirements=["C", "W"])))}
        if isinstance(value, tuple):
            return {"$tuple": [self.pack(item) for item in value]}
        if isinstance(value, Mapping):
            return {"$items": [[self.pack(key), self.pack(item)] for key, item in value.items()]}
        if isinstance(value, pd.DataFrame):
            return {"$frame": [[self.pack(name), self.pack(_column(value[name]))] for name in value.columns]}
        if fingerprint := getattr(value, "fingerprint", None):
            return self._network_node(value, fingerprint)
        raise StorageError(
            f"expected plain values, tensors, arrays or storable objects, got "
            f"{type(value).__name__}; it cannot be saved"
        )

    def _tensor_name(self, tensor: torch.Tensor) -> str:
        name = str(len(self.tensors))
        self.tensors[name] = tensor
        return name

    def _state(self, obj: Any) -> dict[str, Any]:
        if hasattr(obj, "state"):
            return dict(obj.state())
        return {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}

    def _network_node(self, network: object, fingerprint: str) -> dict[str, Any]:
        """Which network it was, and how its outputs were read."""
        outputs = getattr(network, "outputs", None)
        return {"$network": self._network_number(network), "fingerprint": fingerprint, "outputs": outputs}

    def _network_number(self, network: object) -> int:
        for index, known in enumerate(self.networks):
            if known is network:
                return index
        self.networks.append(network)
        return len(self.networks) - 1


class _Identifier(_Packer):
    """For a fingerprint only: things no file can contain, such as code, are represented by what identifies
    them."""

    def _state(self, obj: Any) -> dict[str, Any]:
        return dict(obj.stated()) if hasattr(obj, "stated") else super()._state(obj)

    def _network_node(self, network: object, fingerprint: str) -> dict[str, Any]:
        # The same before and after the first rows show what the outputs are.
        return {"$network": self._network_number(network), "fingerprint": fingerprint}


class _Unpacker:
    """From a JSON tree to the object; anything unexpected is an error, never a partial object."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], networks: list[object]) -> None:
        self.tensors = tensors
        self.networks = networks

    def unpack(self, node: Any) -> Any:
        match node:
            case list():
                return [self.unpack(item) for item in node]
            case {"$kind": kind, "version": version, "state": state}:
                return self._object(kind, version, state)
            case {"$tensor": name}:
                return self.tensors[name]
            case {"$array": name}:
                return self.tensors[name].numpy()
            case {"$float": text}:
                return float(text)
            case {"$tuple": items}:
                return tuple(self.unpack(item) for item in items)
            case {"$items": items}:
                return {self.unpack(key): self.unpack(item) for key, item in items}
            case {"$frame": columns}:
                return pd.DataFrame({self.unpack(name): self.unpack(column) for name, column in columns})
            case {"$network": index, "fingerprint": fingerprint}:
                # Files from before outputs were recognised have no such entry: all were read as logits.
                return self._network(index, fingerprint, node.get("outputs", "logits"))
            case dict():
                raise StorageError(f"contains {sorted(node)}, which this assay does not know; upgrade assay")
        return node

    def _object(self, kind: str, version: int, state: Any) -> Any:
        cls = _class_of(kind)
        if version > _kinds[cls][1]:
            raise StorageError(
                f"contains a {kind} of version {version}, this assay reads up to {_kinds[cls][1]}; "
                "upgrade assay"
            )
        from_state = getattr(cls, "from_state", None)
        return from_state(self.unpack(state)) if from_state else cls(**self.unpack(state))

    def _network(self, index: int, fingerprint: str, outputs: str | None) -> object:
        if index >= len(self.networks):
            raise StorageError(
                f"needs {index + 1} network(s), got {len(self.networks)}; "
                "pass assay.load(path, network=...), on the command line --network"
            )
        network = self.networks[index]
        found = getattr(network, "fingerprint", None)
        if found is None:
            raise StorageError(
                f"expected an assay.Network, got {type(network).__name__}; pass network=assay.Network(module)"
            )
        if found != fingerprint:
            raise StorageError(
                "was saved with another network (weights, architecture, pooling or tokenizer differ, or what "
                "outputs= or scale= states); pass the network it was fitted on"
            )
        if outputs is not None and hasattr(network, "read_as"):
            network.read_as(outputs)
        return network


def _column(series: "pd.Series[Any]") -> Any:
    values = series.to_numpy()
    return values if values.dtype.kind in "biuf" else values.tolist()


def _class_of(kind: str) -> type:
    """The class of a kind; classes of assay itself are imported by their public name."""
    if kind not in _classes:
        found: Any = importlib.import_module("assay")
        try:
            for name in kind.split("."):
                found = getattr(found, name)
        except AttributeError:
            found = None
    if kind not in _classes:
        raise StorageError(
            f"contains a {kind}, which is not known here; import the package that defines it first"
        )
    return _classes[kind]
