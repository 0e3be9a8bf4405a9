"""The application: every command by its name, errors on one line."""

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from assay.cli.accuracy import accuracy
from assay.cli.annotate import annotate
from assay.cli.benchmark import benchmark
from assay.cli.check import check
from assay.cli.demo import demo
from assay.cli.extras import with_extras
from assay.cli.fleet import fleet
from assay.cli.merge import merge
from assay.cli.mira import mira
from assay.cli.monitorability import monitorability
from assay.cli.observe import observe
from assay.cli.options import with_finite_numbers
from assay.cli.pipe import Reader
from assay.cli.places import with_places
from assay.cli.precision import precision
from assay.cli.project_file import NAME as PROJECT_FILE
from assay.cli.project_file import project_options
from assay.cli.report import report
from assay.cli.reshape import reshape
from assay.cli.sample import sample
from assay.cli.score import score
from assay.cli.serve import serve
from assay.cli.status import FINE, INTERRUPTED, READER_LEFT, UNDECIDED, WRONG_USE
from assay.cli.volatility import volatility
from assay.freed_memory import keep_freed_memory


class PlainFlags:
    """Help that shows a flag such as --json without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in found:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = ""
        return found


class Command(PlainFlags, typer.core.TyperCommand):
    pass


class Group(PlainFlags, typer.core.TyperGroup):
    pass


app = typer.Typer(
    name="assay",
    cls=Group,
    help="How far can a neural network be trusted when there are no labels?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

QUESTIONS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start here": (demo,),
    "Is it fit to ship?": (check, report),
    "Will its failures be visible, and to which monitor?": (monitorability, mira, benchmark),
    "Ship it with a guard, and watch it": (observe, score, serve, merge, volatility),
    "What is its accuracy now, without labels?": (accuracy, reshape, fleet),
    "What does it believe about inputs nobody collected?": (sample, annotate, precision),
}
"""Every command, below the question it answers."""

COMMANDS = tuple(command for commands in QUESTIONS.values() for command in commands)

for question, commands in QUESTIONS.items():
    for command in commands:
        whole = with_finite_numbers(with_places(with_extras(command)))
        app.command(cls=Command, rich_help_panel=question)(whole)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    project: Annotated[
        Path | None, typer.Option(help="File with options, a table per command. [default: assay.toml]")
    ] = None,
) -> None:
    if version:
        import assay

        print(f"assay {assay.__version__}")
        raise typer.Exit
    if project is not None or PROJECT_FILE.is_file():
        _take_defaults(context, project or PROJECT_FILE)


def _take_defaults(context: typer.Context, path: Path) -> None:
    """Let the project's options stand for the defaults of the command, and say so."""
    group: Any = context.command
    context.default_map = project_options(path, group.commands)
    if context.invoked_subcommand in context.default_map:
        print(f"note: options from [{context.invoked_subcommand}] in {path}", file=sys.stderr)


USAGE_ERROR: Any = typer.BadParameter.__bases__[0]
"""Raised by typer for wrong options; which package defines it depends on the version of typer."""


def main() -> None:
    """Run a command; an error is printed as one line (with --debug, after the traceback), with status 2 or
    3."""
    keep_freed_memory()
    reader = Reader()
    try:
        status = _status(reader)
    except BrokenPipeError:
        reader.discard_output()
        status = READER_LEFT
    sys.exit(status)


def _status(reader: Reader) -> int:
    from assay.errors import UndecidedError

    try:
        with _noted_warnings():
            return _run_command()
    except USAGE_ERROR as error:
        _print_usage_error(error)
        return WRONG_USE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # even from the user's own code: a crash must not look like an alarm, status 1
        if isinstance(error, BrokenPipeError) and reader.has_left():
            raise
        if "--debug" in sys.argv:
            traceback.print_exc()
        print(f"assay: {_error_line(error)}", file=sys.stderr)
        return UNDECIDED if isinstance(error, UndecidedError) else WRONG_USE


@contextmanager
def _noted_warnings() -> Iterator[None]:
    """What assay itself warns of is a note on one line."""
    from assay.errors import AssayWarning

    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
            if issubclass(category, AssayWarning):
                print(f"note: {message}", file=sys.stderr)
            else:
                shown(message, category, *place, **named)

        warnings.showwarning = show
        yield


def _run_command() -> int:
    """The exit status of the command; a broken pipe is raised as such."""
    try:
        status: int = app(standalone_mode=False) or FINE
        if sys.stdout is not None:  # it may have been closed from the start
            sys.stdout.flush()
        return status
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # Typer would exit with 1, which means an alarm
            raise ended.__context__ from None
        raise


def _error_line(error: Exception) -> str:
    from assay.errors import AssayError

    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
    if isinstance(error, AssayError):
        return f"{error}{notes}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return (
        f"{type(error).__name__} in {last.name} ({last.filename}, line {last.lineno}): {message}{notes}; "
        "assay --debug shows the traceback"
    )


def _print_usage_error(error: Any) -> None:
    if len(sys.argv) == 1:  # without arguments, show the help
        error.show()
        return
    words = error.format_message().rstrip(".")
    joint = " " if words.endswith("?") else "; "
    help_of = error.ctx.command_path if error.ctx else "assay"
    print(f"assay: {words}{joint}see {help_of} --help", file=sys.stderr)
