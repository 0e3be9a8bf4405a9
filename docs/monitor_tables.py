"""Writes the tables of docs/monitors.md from the monitors' own metadata: python docs/monitor_tables.py"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from assay import monitors
from assay.monitors.adapter import Adapter
from assay.monitors.metadata import Labels
from assay.monitors.monitor import Monitor

PAGE = Path(__file__).parent / "monitors.md"
TABLES = re.compile(r"(?<=<!-- tables -->\n).*(?=<!-- /tables -->)", re.DOTALL)

COLUMNS = ("monitor", "score", "needs", "fit", "score costs", "keeps, bytes", "merges", "paper")
SHARED = {"layer", "limit", "name", "seed"}
"""Arguments that mean the same everywhere; the page explains them once."""

SHOWN = 3
"""Optional arguments shown; the docstring has them all."""

LABELS = {Labels.OPTIONAL: "labels (optional)", Labels.REQUIRED: "labels"}


def tables() -> str:
    """The tables as Markdown, one per kind of monitor."""
    groups: dict[str, list[type[Monitor]]] = {
        title: []
        for title in ("Outputs", "Features", "Inputs", "Further passes", "Combinations", "Your own code")
    }
    for cls in sorted(_classes(), key=lambda cls: (cls.metadata.year or 9999, cls.__name__)):
        groups[_group(cls)].append(cls)
    return "\n" + "\n".join(_table(title, group) for title, group in groups.items())


def _classes() -> Iterator[type[Monitor]]:
    yield Adapter
    for name in monitors.__all__:
        cls = getattr(monitors, name)
        if inspect.isclass(cls) and issubclass(cls, Monitor) and cls is not Monitor:
            yield cls


def _group(cls: type[Monitor]) -> str:
    """By what it reads or runs, which is what a user must have at hand."""
    needs, arguments = cls.metadata.needs, _arguments(cls)
    if needs.user_code:
        return "Your own code"
    if needs.forward:
        return "Further passes"
    if needs.inputs:
        return "Inputs"
    if _reads_features(cls):
        return "Features"
    return "Combinations" if {"monitor", "members"} & set(arguments) else "Outputs"


def _table(title: str, classes: list[type[Monitor]]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, classes)]
    return f"### {title}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(cls: type[Monitor]) -> tuple[str, ...]:
    metadata = cls.metadata
    return (
        f"`{_call(cls)}`",
        metadata.score,
        ", ".join(_needs(cls)) or "logits",
        _total(cls, metadata.fit),
        _cost(cls),
        _kept(cls),
        f"no: {metadata.unmergeable}" if metadata.unmergeable else "yes",
        f"{metadata.paper} {metadata.year}" if metadata.paper else "-",
    )


def _call(cls: type[Monitor]) -> str:
    """The constructor with the arguments it must have and the first of those it may have."""
    parameters = [parameter for name, parameter in _arguments(cls).items() if name not in SHARED]
    needed = [
        parameter.name if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{parameter.name}="
        for parameter in parameters
        if parameter.default is parameter.empty
    ]
    optional = [
        f"{parameter.name}={parameter.default!r}"
        for parameter in parameters
        if parameter.default is not parameter.empty
    ]
    more = ["..."] if len(optional) > SHOWN else []
    name = "adapt" if cls is Adapter else cls.__name__
    return f"{name}({', '.join(needed + optional[:SHOWN] + more)})".replace("'", '"')


def _needs(cls: type[Monitor]) -> Iterator[str]:
    needs, arguments = cls.metadata.needs, _arguments(cls)
    if _reads_features(cls):
        yield "features"
    if needs.inputs:
        yield "inputs" + (" (to fit, too)" if needs.inputs_in_fit else "")
    if needs.labels in LABELS:
        yield LABELS[needs.labels]
    if needs.backward:
        yield "gradients"
    if "members" in arguments:
        yield "what the members need"
    elif "monitor" in arguments and "layer" not in arguments:
        yield "what the inner monitor needs"


def _reads_features(cls: type[Monitor]) -> bool:
    """Whether it takes a layer, or cannot do without a list of them."""
    listed = _arguments(cls).get("layers")
    return "layer" in _arguments(cls) or (listed is not None and listed.default is listed.empty)


def _cost(cls: type[Monitor]) -> str:
    needs = cls.metadata.needs
    if needs.user_code:
        return "what your code costs"
    passes = {"forward": needs.forward, "backward": needs.backward}
    parts = [f"{_formula(count)} × {direction}" for direction, count in passes.items() if count]
    return " + ".join(parts) or _total(cls, cls.metadata.cost)


def _kept(cls: type[Monitor]) -> str:
    if cls.metadata.needs.user_code:
        return "cannot be saved"
    return _total(cls, cls.metadata.state)


def _total(cls: type[Monitor], expression: str) -> str:
    """The expression, and that wrapped monitors come on top."""
    arguments = _arguments(cls)
    parts = [_formula(expression)]
    if "members" in arguments:
        parts.append("the members'")
    elif "monitor" in arguments:
        parts.append("the inner monitor's")
    return " + ".join(filter(None, parts)) or "-"


def _formula(expression: str) -> str:
    """The expression as people write it.

    >>> _formula("4 * d**2 + 8 * len(members)")
    '4 d² + 8 members'
    """
    counts = re.sub(r"len\((\w+)\)", r"\1", expression)
    return counts.replace("**2", "²").replace("**3", "³").replace(" * ", " ")


def _arguments(cls: type[Monitor]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


if __name__ == "__main__":
    PAGE.write_text(TABLES.sub(lambda _: tables(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
