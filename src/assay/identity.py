"""Identity: hashes that show which network, monitor or run a file, count or checkpoint belongs to.

Every fingerprint in assay is a `digest` of settings, fitted state and weights. Hashing all weights of a large
network takes a tenth of a second, so the hash of each tensor is cached until the tensor changes.
"""

import hashlib
import json
import re
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from assay.errors import InputError

COMPILED = "_orig_mod"
"""The name under which `torch.compile` keeps the module it was given."""

TABLE_ROW = 8192
"""Bytes in a row of the table that `_checksum` sums up."""

Octets = NDArray[np.uint8]

_cached_hashes: MutableMapping[Tensor, tuple[Any, str]] = WeakTensorKeyDictionary()


def digest(*parts: Any) -> str:
    """A hash of plain values, tensors, arrays and trees of them; device and memory layout do not matter.

    >>> digest({"a": 1, "b": torch.zeros(2)}) == digest({"b": torch.zeros(2), "a": 1})
    True
    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    return _hash(json.dumps([_as_json(part) for part in parts]).encode())


def check_identity(identity: str | None) -> None:
    """The name of a model, where it has one, is not empty."""
    if identity is not None and not identity.strip():
        raise InputError(
            "expected an identity that says which model it is, got an empty one; name model and version"
        )


def module_identity(module: nn.Module) -> str | None:
    """A hash of a module's parts (class, and settings such as a stride or a slope), its weights and buffers.

    None if it has no number among weights and buffers, since nothing then distinguishes it from others of
    its class. A compiled module has the identity of the module it was compiled from.
    """
    values = module.state_dict(keep_vars=True)  # the tensors themselves: new ones would miss the cache
    state = {_uncompiled(name): value for name, value in values.items() if isinstance(value, Tensor | tuple)}
    if not any(isinstance(value, tuple) or value.numel() for value in state.values()):
        return _frozen_identity(module) if isinstance(module, torch.jit.ScriptModule) else None
    parts = {
        _uncompiled(name): [type(part).__qualname__, _settings(part)]
        for name, part in module.named_modules()
        if not hasattr(part, COMPILED)
    }
    return digest(parts, state)


def _frozen_identity(module: torch.jit.ScriptModule) -> str | None:
    """Of TorchScript that was frozen, whose weights are constants in its code; None if it has none."""
    code, constants = module.code_with_constants
    weights = {name: value for name, value in constants.const_mapping.items() if isinstance(value, Tensor)}
    return digest(code, weights) if weights else None


def file_hash(path: Path) -> str:
    """A hash of the file's content, read piece by piece."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _settings(part: nn.Module) -> str:
    """The settings that a layer prints of itself, without addresses in memory, which no two runs share."""
    return re.sub(r" at 0x[0-9a-f]+", "", part.extra_repr())


def _uncompiled(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != COMPILED)


def _as_json(part: Any) -> Any:
    """The part as unambiguous JSON; tensors and arrays are represented by their hash."""
    if isinstance(part, np.generic):
        part = part.item()
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, Tensor):
        return {"tensor": _tensor_hash(part)}
    if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
        return {"array": [str(part.dtype), part.shape, _hash(np.ascontiguousarray(part).data)]}
    if isinstance(part, bytes):
        return {"bytes": _hash(part)}
    if isinstance(part, torch.dtype):
        return {"dtype": str(part)}
    if isinstance(part, Mapping):
        items = [[_as_json(key), _as_json(value)] for key, value in part.items()]
        return {"items": sorted(items, key=lambda item: json.dumps(item[0]))}
    if isinstance(part, Sequence):
        return [_as_json(item) for item in part]
    raise InputError(
        f"expected plain values, tensors and arrays to hash, got "
        f"{type(part).__name__}; leave it out or describe it with plain values"
    )


def _tensor_hash(tensor: Tensor) -> str:
    octets = _octets(tensor)
    mark = (*_memory_mark(tensor), _checksum(octets))
    cached = _cached_hashes.get(tensor)
    if cached is None or cached[0] != mark:
        description = f"{tensor.dtype} {tuple(tensor.shape)} {_hash(octets.data)}"
        cached = _cached_hashes[tensor] = mark, description
    return cached[1]


def _memory_mark(tensor: Tensor) -> tuple[Any, ...]:
    """Changes when a tensor gets other memory or is written to in the usual ways."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return (tensor.dtype,)
    version = None if tensor.is_inference() else tensor._version
    return tensor.dtype, tuple(tensor.shape), tensor.data_ptr(), version


def _checksum(octets: Octets) -> int:
    """Changes when the tensor is written to unnoticed by torch, through `.data` or a NumPy view.

    The sums of the rows and columns of a table of its bytes: a tenth of the time of a hash. A plain sum
    would miss weights that change places.
    """
    whole = len(octets) // TABLE_ROW * TABLE_ROW
    table = octets[:whole].view(np.int64).reshape(-1, TABLE_ROW // 8)
    sums = (table.sum(axis=0), table.sum(axis=1), octets[whole:])
    return hash(b"".join(part.tobytes() for part in sums))


def _octets(tensor: Tensor) -> Octets:
    if not tensor.numel():
        return np.empty(0, np.uint8)
    values = tensor.detach()
    if values.is_quantized:
        values = values.dequantize()
    if values.layout != torch.strided:
        values = values.to_dense()
    octets: Octets = values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return octets


def _hash(content: bytes | memoryview) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
