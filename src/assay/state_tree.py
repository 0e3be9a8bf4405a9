"""The state of an object as a tree: plain values whose leaves may be tensors, arrays, data frames or other
storable objects. One decorator makes a class storable; files and hashes are made of the tree."""

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch

from assay.errors import StorageError
from assay.identity import digest

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


def fingerprint_of(obj: object) -> str:
    """A hash of everything a file of `obj` would contain: the same before saving and after loading."""
    packer = _Identifier()
    return digest(packer.pack(obj), packer.tensors)


def kind_of(obj: object) -> str | None:
    """The kind of an object that can be saved; None for any other."""
    known = _kinds.get(type(obj))
    return None if known is None else known[0]


class Packer:
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


class MergeablePacker(Packer):
    def _state(self, obj: Any) -> dict[str, Any]:
        return dict(obj.mergeable_state()) if hasattr(obj, "mergeable_state") else super()._state(obj)


class _Identifier(Packer):
    """For a fingerprint only: things no file can contain, such as code, are represented by what identifies
    them."""

    def _state(self, obj: Any) -> dict[str, Any]:
        return dict(obj.stated()) if hasattr(obj, "stated") else super()._state(obj)

    def _network_node(self, network: object, fingerprint: str) -> dict[str, Any]:
        # The same before and after the first rows show what the outputs are.
        return {"$network": self._network_number(network), "fingerprint": fingerprint}


class Unpacker:
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
        cls = class_of(kind)
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


class NetworklessUnpacker(Unpacker):
    """Reads what needs no network; an object made with one becomes None."""

    def _object(self, kind: str, version: int, state: Any) -> Any:
        pairs = state.get("$items", []) if isinstance(state, dict) else []
        if any(isinstance(part, dict) and "$network" in part for _, part in pairs):
            return None
        return super()._object(kind, version, state)


def _column(series: "pd.Series[Any]") -> Any:
    values = series.to_numpy()
    return values if values.dtype.kind in "biuf" else values.tolist()


def class_of(kind: str) -> type:
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
