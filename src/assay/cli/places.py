"""Files that commands write: checked before any work, and named if an older one is left there."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from assay.cli.status import WRONG_USE
from assay.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Written:
    """Marks an option that is the path of a file or folder to write."""

    folder: bool = False
    kept: bool = False
    """Whether it continues from run to run, so that an older file is expected."""
    figure: bool = False


def with_places(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which first checks that it can write all its files.

    If it fails, the error also names the files left from an earlier run.
    """
    options = {
        name: mark
        for name, parameter in inspect.signature(command).parameters.items()
        for mark in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(mark, Written)
    }

    @functools.wraps(command)
    def checked(**arguments: Any) -> None:
        places = {name: arguments[name] for name in options if arguments.get(name) is not None}
        _check_places(places, options)
        before = {path: _stamp(path) for name, path in places.items() if not options[name].kept}
        try:
            command(**arguments)
        except typer.Exit as ended:
            if ended.exit_code >= WRONG_USE and (left := _left_from_before(before)):
                typer.echo(f"assay: {left}", err=True)
            raise
        except Exception as error:
            if left := _left_from_before(before):
                error.add_note(left)
            raise

    return checked


def write_figure(figure: "Figure", path: Path) -> None:
    """Write the figure as png, svg or pdf, by the ending of the name, whole or not at all."""
    from assay.storage import write_whole

    kind = path.suffix.lower().removeprefix(".")
    write_whole(path, lambda temporary: figure.savefig(temporary, format=kind))


def _check_places(places: Mapping[str, Path], options: Mapping[str, Written]) -> None:
    from assay.storage import expect_writable

    names: dict[Path, str] = {}
    for name, path in places.items():
        if options[name].figure and path.suffix.lower() not in FIGURE_ENDINGS:
            raise InputError(
                f"expected --{name} to end in {', '.join(FIGURE_ENDINGS)}, got {path}; "
                "give it one of these endings"
            )
        expect_writable(path, folder=options[name].folder)
        other = names.setdefault(path.resolve(), name)
        if other != name:
            raise InputError(f"expected two files, got {path} for both --{other} and --{name}; change one")


def _stamp(path: Path) -> Any:
    """Changes when the file, or a file of the folder, is replaced; None if there is nothing."""
    if path.is_dir():
        return sorted((entry.name, _stamp(entry)) for entry in path.iterdir() if entry.is_file()) or None
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def _left_from_before(before: Mapping[Path, Any]) -> str:
    """A sentence about the files that existed before and are unchanged; empty if there are none."""
    return _sentence(
        str(path) for path, stamp in before.items() if stamp is not None and _stamp(path) == stamp
    )


def _sentence(names: Iterable[str]) -> str:
    listed = list(names)
    if not listed:
        return ""
    words = ("is", "was", "it was") if len(listed) == 1 else ("are", "were", "they were")
    return f"{' and '.join(listed)} {words[0]} from an earlier run and {words[1]} left as {words[2]}"
