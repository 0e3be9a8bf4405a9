"""A monitor named on the command line, with its settings: `KNN:k=10,limit=500`."""

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Network


def monitor_at(reference: str, network: "Network") -> Any:
    """A monitor of assay.monitors, by its name and settings; the network where it asks for one."""
    name, colon, text = reference.partition(":")
    kind = _kind(name)
    settings = _settings(reference, text) if colon else {}
    parameters = inspect.signature(kind).parameters.values()
    if any(parameter.name == "network" for parameter in parameters):
        settings.setdefault("network", network)
    known = [parameter.name for parameter in parameters if parameter.name != "network"]
    if unknown := [setting for setting in settings if setting not in [*known, "network"]]:
        listed = ", ".join(known) or "it has none"
        raise InputError(
            f"expected settings of {kind.__name__} ({listed}), got {unknown[0]!r} in {reference}"
        )
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.name not in settings
    ]
    if missing:
        raise InputError(
            f"expected {kind.__name__} with a setting for {missing[0]}, got {reference}; write "
            f"{kind.__name__}:{missing[0]}=..., or use assay.run_benchmark in Python"
        )
    return _built(kind, reference, settings)


def _kind(name: str) -> Any:
    from assay import monitors

    by_name = {one.casefold(): getattr(monitors, one) for one in monitors.__all__}
    kind = by_name.get(name.casefold())
    if not (isinstance(kind, type) and issubclass(kind, monitors.Monitor)) or inspect.isabstract(kind):
        raise InputError(
            f"expected a monitor of assay.monitors, got {name!r}; choose from {monitors.__all__}"
        )
    return kind


def _built(kind: Any, reference: str, settings: dict[str, Any]) -> Any:
    try:
        return kind(**settings)
    except TypeError as error:  # a word where the monitor computes with a number
        raise InputError(
            f"expected settings that {kind.__name__} takes, got {reference} ({error})"
        ) from error


def _settings(reference: str, text: str) -> dict[str, Any]:
    """The settings, with values as Python writes them; a word without quotes is a text.

    >>> _settings("", "k=10, layer=layer4.1, shares=(0.5, 1), limit=None")
    {'k': 10, 'layer': 'layer4.1', 'shares': (0.5, 1), 'limit': None}
    """
    pairs = [pair.partition("=") for pair in re.split(r",\s*(?=[A-Za-z_]\w*=)", text)]
    settings = {name: _value(value.strip()) for name, _, value in pairs}
    if len(settings) < len(pairs) or not all(name.isidentifier() for name in settings):
        settings = {"": WRONG}
    if WRONG in settings.values():
        raise InputError(
            f"expected settings as NAME:name=value,name=value, each once, got {reference!r}; write, for "
            "example, KNN:k=10,limit=500"
        )
    return settings


WRONG = object()
"""Stands for a value that is none."""


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text if re.fullmatch(r"[\w./-]+", text) else WRONG
