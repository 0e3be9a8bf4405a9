"""The application: every command by its name, errors on one line."""

import functools
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.annotate import annotate
from assay.cli.benchmark import benchmark
from assay.cli.check import check
from assay.cli.demo import demo
from assay.cli.merge import merge
from assay.cli.mira import mira
from assay.cli.observe import observe
from assay.cli.options import refuse_no_numbers
from assay.cli.precision import precision
from assay.cli.report import report
from assay.cli.reshape import reshape
from assay.cli.sample import sample
from assay.cli.serve import serve
from assay.cli.status import INTERRUPTED, UNDECIDED, WRONG_USE
from assay.cli.volatility import volatility

app = typer.Typer(
    name="assay",
    help="How far can a neural network be trusted when there are no labels?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

PLACES = {"output", "report", "junit"}
"""Options that say where something is written."""

COMMANDS = (
    annotate,
    benchmark,
    check,
    demo,
    merge,
    mira,
    observe,
    precision,
    report,
    reshape,
    sample,
    serve,
    volatility,
)


def _with_places_checked(command: Callable[..., None]) -> Callable[..., None]:
    """The command, refusing before any work a place that nothing can be written to, and what is no number."""

    @functools.wraps(command)
    def checked(**given: Any) -> None:
        refuse_no_numbers(given)
        for name in PLACES - ({"output"} if command is check else set()):  # a check makes its own folder
            if isinstance(given.get(name), Path):
                _expect_folder(given[name])
        command(**given)

    return checked


def _expect_folder(path: Path) -> None:
    from assay.errors import StorageError

    if not path.absolute().parent.is_dir():
        raise StorageError(
            f"cannot write {path}: no such folder; choose a folder that exists and is writable"
        )


for command in COMMANDS:
    app.command()(_with_places_checked(command))


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        import assay

        print(f"assay {assay.__version__}")
        raise typer.Exit


USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
"""What typer raises for wrong options; which package it comes from depends on typer's version."""


def main() -> None:
    """Run a command; an error is one line and status 2 or 3, with --debug after its traceback."""
    from assay.errors import UndecidedError

    try:
        sys.exit(app(standalone_mode=False))
    except USAGE_ERROR as error:
        _say_usage(error)
        sys.exit(WRONG_USE)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as error:  # also of the user's own code: a crash must not look like status 1, an alarm
        if "--debug" in sys.argv:
            traceback.print_exc()
        print(f"assay: {_said(error)}", file=sys.stderr)
        sys.exit(UNDECIDED if isinstance(error, UndecidedError) else WRONG_USE)


def _said(error: Exception) -> str:
    from assay.errors import AssayError

    if isinstance(error, AssayError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return (
        f"{type(error).__name__} in {last.name} ({last.filename}, line {last.lineno}): {message}; "
        "assay --debug shows the traceback"
    )


def _say_usage(error: Any) -> None:
    if len(sys.argv) == 1:  # nothing was asked: the help was asked for
        error.show()
        return
    words = error.format_message().rstrip(".")
    print(f"assay: {words}; see {error.ctx.command_path if error.ctx else 'assay'} --help", file=sys.stderr)
