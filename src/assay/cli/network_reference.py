"""Networks and data named on the command line: `package.module:name`, files and folders."""

import importlib
import inspect
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from assay.cli.path_options import errors_in_path_syntax, in_path_syntax, path_and_options
from assay.errors import InputError, MissingLabelsError

if TYPE_CHECKING:
    from assay import Network

PENULTIMATE = "penultimate"
NETWORK_OPTIONS = {"label", "layers", "output", "outputs", "scale"}
"""Arguments of Network that may follow a reference to one."""

TRAIN, TEST = 0, 1
"""The parts of `digits`."""


def network_at(reference: str, layers: tuple[str, ...] | None = None) -> "Network":
    """The Network from `module:factory` or an .onnx file, which watches exactly these layers.

    The name may be a Network, a torch module, or a function without arguments that returns either. Without
    `layers` a Network keeps its own, and anything else watches its penultimate layer. The current folder is
    searched first, as python itself does. Options of Network follow a
    question mark: `net.onnx?outputs=probabilities&layers=none`.
    """
    from torch import nn

    from assay import Network

    reference, options = _network_and_options(reference)
    layers = options.pop("layers", layers)
    usual = (PENULTIMATE,) if layers is None else layers
    if reference.endswith(".onnx"):
        return Network.from_onnx(reference, usual, **options)
    found = named(reference)
    found = found if isinstance(found, Network | nn.Module) else made(found, reference)
    if isinstance(found, nn.Module):
        return Network(found, layers=usual, **options)
    if isinstance(found, Network) and not options:
        return found if layers is None else found.watching_only(layers)
    if isinstance(found, Network):
        raise InputError(
            f"expected options of {reference} in the Network that it is, got {sorted(options)} after it; "
            "state them in its factory"
        )
    raise InputError(
        f"expected {reference} to be or to return a torch module or an assay.Network, got "
        f"{type(found).__name__}; return the module from the factory"
    )


def _network_and_options(reference: str) -> tuple[str, dict[str, Any]]:
    """The reference without its options, and these as Network takes them."""
    plain, given = path_and_options(reference)
    if unknown := sorted(given.keys() - NETWORK_OPTIONS):
        raise InputError(
            f"expected options of a network ({', '.join(sorted(NETWORK_OPTIONS))}), got {unknown} in "
            f"{reference}; leave them out"
        )
    options = dict(given)
    if "layers" in options:
        options["layers"] = () if options["layers"] == "none" else tuple(options["layers"].split(","))
    if options.get("output", "").lstrip("-").isdigit():
        options["output"] = int(options["output"])
    if not isinstance(options.get("label", 0), int):
        raise InputError(f"expected label= with the number of an output, got {options['label']!r}; number it")
    return plain, options


def data_at(source: str, part: int = TEST) -> Any:
    """(inputs, labels) of a file or folder; `digits` is a part of the bundled digits.

    Options of the reader follow a question mark: `mnist?split=test`, `photos?size=32&channels=3`
    (path_options.py). If class names were numbered, a note says how.
    """
    found = _labelled_at(source, part)
    note(found.note, source)
    return found


def data_or_inputs_at(source: str) -> Any:
    """(inputs, labels), or the inputs alone if there are no labels."""
    try:
        return data_at(source)
    except MissingLabelsError as missing:
        if "classes" in path_and_options(source)[1]:  # who names the classes expects labels
            raise
        try:
            return _inputs_at(source)
        except InputError as error:  # perhaps because of labels that were not found
            error.add_note(f"if the data has labels: {missing}")
            raise


def named_data(text: str) -> tuple[str, Any]:
    """The name and the inputs of `name=data`; labels, if any, are ignored."""
    name, equals, source = text.partition("=")
    if not equals or not source or "?" in name:
        raise InputError(f"expected --novelty name=data, got {text!r}; name the unknown classes")
    try:
        return name, _labelled_at(source, TEST)[0]
    except MissingLabelsError:
        return name, _inputs_at(source)


def note(text: str, source: str) -> None:
    """Print a note about data to standard error, if there is one."""
    if text:
        path, _ = path_and_options(source)
        typer.echo(f"note: {source}: {in_path_syntax(text, path)}", err=True)


def _labelled_at(source: str, part: int) -> Any:
    from assay import data

    if source == "digits" and not Path(source).exists():
        return data.digits()[part]
    path, options = path_and_options(source)
    with errors_in_path_syntax(path):
        return data.read(path, **options)


def _inputs_at(source: str) -> Any:
    from assay import data

    path, options = path_and_options(source)
    options.pop("classes", None)  # of a novelty: its labels do not matter
    with errors_in_path_syntax(path):
        return data.read_inputs(path, **options)


def named(reference: str) -> Any:
    """The object that `package.module:name` refers to."""
    module_name, colon, name = reference.partition(":")
    if not colon or not name.isidentifier() or not all(map(str.isidentifier, module_name.split("."))):
        raise InputError(f"expected package.module:name, got {reference!r}; name a function that returns it")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"expected a module named {module_name!r}, found none ({error}); run from its folder"
            " or install it"
        ) from error
    except PermissionError as error:
        raise InputError(
            f"expected a module named {module_name!r} that can be read, got {error}; change the permissions "
            "of that file"
        ) from error
    except SyntaxError as error:
        raise InputError(
            f"expected Python in {error.filename}, got a mistake in line {error.lineno} ({error.msg}); "
            "correct it"
        ) from error
    if not hasattr(module, name):
        near = get_close_matches(name, vars(module), n=1)
        hint = f"did you mean {module_name}:{near[0]}?" if near else "check the name"
        raise InputError(f"expected {name!r} in module {module_name!r}, found none; {hint}")
    return getattr(module, name)


def callable_at(reference: str) -> Any:
    """The function that `package.module:name` refers to."""
    found = named(reference)
    if not callable(found):
        raise InputError(
            f"expected {reference} to be a function of a batch of inputs, got {type(found).__name__}; "
            "name a function"
        )
    return found


def made(found: Any, reference: str) -> Any:
    """The result of a factory called without arguments; anything else is returned unchanged."""
    if not callable(found):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise InputError(
            f"expected {reference} to be callable without arguments, got one that is not ({error}); name a "
            "function that needs none"
        ) from error
    except ValueError:  # built in, without a signature that can be read
        pass
    return found()
