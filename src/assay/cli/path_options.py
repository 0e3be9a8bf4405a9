"""Options of readers that follow a path on the command line: `mnist?split=test&scale=255`."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from assay.errors import InputError

TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
SEPARATORS = {"tab": "\t", r"\t": "\t", "blank": " "}


@dataclass(frozen=True)
class PathOption:
    """An option of a reader: how the text after `name=` becomes its value."""

    parse: Callable[[str], Any]
    wanted: str
    example: str


def _size(text: str) -> int | tuple[int, int]:
    height, cross, width = text.partition("x")
    return (int(height), int(width)) if cross else int(text)


def _column(text: str) -> str | int:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


def _text(text: str) -> str:
    if not text:
        raise ValueError(text)
    return text


COLUMN = "a column by name, or by position (-1 is the last)"
OPTIONS = {
    "inputs": PathOption(_text, "the name of an array", "x_test"),
    "labels": PathOption(_text, "the name of an array, or the file of labels", "y_test"),
    "split": PathOption(_text, "the name of a part", "test"),
    "scale": PathOption(float, "a number to divide by", "255"),
    "integers": PathOption(lambda text: TRUTHS[text.lower()], "true or false", "true"),
    "size": PathOption(_size, "pixels, as a side or height x width", "32x48"),
    "channels": PathOption(int, "1 (grey) or 3 (colour)", "3"),
    "classes": PathOption(_names, "names separated by commas", "cat,dog"),
    "label": PathOption(_column, COLUMN, "-1"),
    "text": PathOption(_column, COLUMN, "review"),
    "header": PathOption(lambda text: TRUTHS[text.lower()], "true or false", "false"),
    "separator": PathOption(lambda text: SEPARATORS.get(text, _text(text)), "a character, or tab", "tab"),
    "quoted": PathOption(lambda text: TRUTHS[text.lower()], "true or false", "true"),
}


def path_and_options(source: str) -> tuple[str, dict[str, Any]]:
    """The path, and its options as the readers take them; names that no reader has stay as they are.

    `%26` and the like stand for characters that would end an option. A file whose own name has a question
    mark is found by that name.
    """
    path, mark, query = source.partition("?")
    if not mark or Path(source).exists():
        return source, {}
    options: dict[str, Any] = {}
    for pair in query.split("&"):
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise InputError(
                f"expected options as {path}?name=value&name=value, got {pair!r} in {source}; write it so"
            )
        if name in options:
            raise InputError(f"expected each option once, got {name} twice in {source}; keep one")
        options[name] = _parsed(name, unquote(text), path)
    return path, options


@contextmanager
def errors_in_path_syntax(path: str) -> Iterator[None]:
    """Errors of readers, with arguments written as options after a path."""
    try:
        yield
    except InputError as error:
        message = str(error)
        first = re.search(ARGUMENT, message)
        if first is None:
            raise
        name, value = first["name"], first["value"] or OPTIONS[first["name"]].example
        message = re.sub(ARGUMENT, lambda found: f"?{found['name']}={found['value'].lower()}", message)
        raise type(error)(f"{message} (options follow the path: {path}?{name}={value.lower()})") from error


ARGUMENT = rf'\b(?P<name>{"|".join(OPTIONS)})=(?P<quote>["\']?)(?P<value>[\w.]*)(?P=quote)'
"""An argument of a reader in a message, such as scale=255 or split="train"."""


def _parsed(name: str, text: str, path: str) -> Any:
    if name not in OPTIONS:
        return text
    option = OPTIONS[name]
    try:
        return option.parse(text)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"expected {option.wanted} after {name}=, got {text!r}; write, for example, "
            f"{path}?{name}={option.example}"
        ) from error
