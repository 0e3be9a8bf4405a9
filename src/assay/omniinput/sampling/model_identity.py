"""Which model an output function uses: a hash of the weights of every module it can reach."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from assay.errors import InputError
from assay.identity import digest, module_identity
from assay.network import Network

DEPTH = 5
"""How deep to look: a closure over a partial over a method of an object with a module is four levels."""


def model_identity(*functions: Any) -> str | None:
    """A hash of the networks and modules inside functions, methods, partials, closures and callable objects.

    None if none of them has weights: then only outputs distinguish models. How the function is wrapped does
    not matter.
    """
    found = {identity for function in functions for identity in _identities(function, DEPTH, set())}
    return digest(sorted(found)) if found else None


def _identities(thing: Any, depth: int, seen: set[int]) -> Iterator[str]:
    if depth < 0 or id(thing) in seen:
        return
    seen.add(id(thing))
    identity = _own_identity(thing)
    if identity is not None:
        yield identity
        return
    for part in _parts(thing):
        yield from _identities(part, depth - 1, seen)


def _own_identity(thing: Any) -> str | None:
    if isinstance(thing, nn.Module):
        return module_identity(thing)
    if isinstance(thing, Network):
        with suppress(InputError):  # it has nothing to hash
            return thing.fingerprint
    return None


def _parts(thing: Any) -> list[Any]:
    """Objects that a call of the thing may use."""
    if isinstance(thing, type | ModuleType | str):
        return []
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, MethodType):
        return [thing.__self__, thing.__func__]
    if isinstance(thing, FunctionType):
        return _variables(thing)
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing)
    return list(vars(thing).values()) if hasattr(thing, "__dict__") else []


def _variables(function: FunctionType) -> list[Any]:
    with suppress(ValueError):  # a variable of an outer function that has no value yet
        used = inspect.getclosurevars(function)
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return [*used.nonlocals.values(), *used.globals.values(), *defaults]
    return []
