"""Where commands write: looked at before any work, and said plainly if something older stays there."""

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

PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Written:
    """Stands in the annotation of an option that says where something is written."""

    folder: bool = False
    kept: bool = False
    """Whether it goes on from run to run, so that an older one is no surprise."""
    picture: bool = False


def with_places(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which refuses a place that cannot be written before it does anything.

    If it does not reach its end, its error also names what stayed from an earlier run.
    """
    options = {
        name: mark
        for name, parameter in inspect.signature(command).parameters.items()
        for mark in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(mark, Written)
    }

    @functools.wraps(command)
    def careful(**given: Any) -> None:
        places = {name: given[name] for name in options if given.get(name) is not None}
        _check(places, options)
        before = {path: _stamp(path) for name, path in places.items() if not options[name].kept}
        try:
            command(**given)
        except typer.Exit as ended:
            if ended.exit_code >= WRONG_USE and (older := _older(before)):
                typer.echo(f"assay: {older}", err=True)
            raise
        except Exception as error:
            if older := _older(before):
                error.add_note(older)
            raise

    return careful


def write_picture(figure: "Figure", path: Path) -> None:
    """As png, svg or pdf by the name's ending, whole or not at all."""
    from assay.storage import write_whole

    kind = path.suffix.lower().removeprefix(".")
    write_whole(path, lambda temporary: figure.savefig(temporary, format=kind))


def _check(places: Mapping[str, Path], options: Mapping[str, Written]) -> None:
    from assay.storage import expect_writable

    taken: dict[Path, str] = {}
    for name, path in places.items():
        if options[name].picture and path.suffix.lower() not in PICTURES:
            raise InputError(
                f"expected --{name} to end in {', '.join(PICTURES)}, got {path}; give it one of these endings"
            )
        expect_writable(path, folder=options[name].folder)
        other = taken.setdefault(path.resolve(), name)
        if other != name:
            raise InputError(f"expected two places, got {path} for both --{other} and --{name}; change one")


def _stamp(path: Path) -> Any:
    """What changes when the file, or a file of the folder, is replaced; None where there is nothing."""
    if path.is_dir():
        return sorted((entry.name, _stamp(entry)) for entry in path.iterdir() if entry.is_file()) or None
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def _older(before: Mapping[Path, Any]) -> str:
    """Which of these were there and are as they were; empty if none."""
    return _said(str(path) for path, stamp in before.items() if stamp is not None and _stamp(path) == stamp)


def _said(names: Iterable[str]) -> str:
    listed = list(names)
    if not listed:
        return ""
    words = ("is", "was", "it was") if len(listed) == 1 else ("are", "were", "they were")
    return f"{' and '.join(listed)} {words[0]} from an earlier run and {words[1]} left as {words[2]}"
