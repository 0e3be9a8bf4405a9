"""assay.toml: the options of a project, a table per command; what the command line says wins."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError

NAME = Path("assay.toml")


def project_options(path: Path, commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For every command with a table in the file: its parameters and the values that stand for a default.

    Options are written as on the command line, without the two dashes in front: `false-alarm-rate = 0.01`,
    and arguments by their name in the help.
    """
    found = _read(path)
    for name, table in found.items():
        if not isinstance(table, dict):
            raise InputError(
                f"expected a table for each command in {path}, got {name!r} outside one; write it below "
                "[check] or another command"
            )
        _expect_known(name, commands, f"expected commands of assay as tables of {path}")
    return {name: _values(table, commands[name], f"[{name}] in {path}") for name, table in found.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"expected options as TOML in {path}, got {error}; correct it") from error


def _values(table: Mapping[str, Any], command: Any, place: str) -> dict[str, Any]:
    known = {name: parameter for parameter in command.params for name in _names(parameter)}
    values = {}
    for name, value in table.items():
        _expect_known(name, known, f"expected options of the command below {place}")
        parameter = known[name]
        several = getattr(parameter, "multiple", False) or parameter.nargs != 1
        if isinstance(value, dict) or (isinstance(value, list) and not several):
            raise InputError(f"expected one value for {name} below {place}, got {value}; write a single one")
        values[parameter.name] = [value] if several and not isinstance(value, list) else value
    return values


def _names(parameter: Any) -> list[str]:
    """How a parameter is written: an option without its dashes, an argument by its name."""
    if parameter.param_type_name == "argument":
        return [parameter.name]
    return [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]


def _expect_known(name: str, known: Iterable[str], expected: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, list(known), n=1)
    words = f"did you mean {near[0]!r}" if near else f"choose from {', '.join(sorted(known))}"
    raise InputError(f"{expected}, got {name!r}; {words}")
