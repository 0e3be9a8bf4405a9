"""Optional packages that a command needs, checked before it does any work."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.extras import expect_installed


def with_extras(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which refuses to start if a package it needs is not installed."""

    @functools.wraps(command)
    def prepared(**arguments: Any) -> None:
        expect_extras(command.__name__, arguments)
        command(**arguments)

    return prepared


def expect_extras(command: str, arguments: Mapping[str, Any]) -> None:
    """Raise, with the pip command, if these arguments need a package that is not installed."""
    if command == "serve" or (command == "annotate" and not (arguments["imported"] or arguments["export"])):
        expect_installed("starlette", "uvicorn", "prometheus_client")
    if command == "sample" and arguments["kind"] == "language-model" and ":" not in arguments["model"]:
        expect_installed("transformers")
    if arguments.get("readouts"):
        expect_installed("pyarrow")
    if arguments.get("engine") == "ray":
        expect_installed("ray")
    if any(_ends_in(".onnx", value) for value in arguments.values()):
        expect_installed("onnx", "onnxruntime")
    if any(_ends_in(".parquet", value) for value in arguments.values()):
        expect_installed("pyarrow")


def _ends_in(ending: str, value: Any) -> bool:
    """Whether a path, or one of several, ends so; options may follow it after a question mark."""
    if isinstance(value, list):
        return any(_ends_in(ending, one) for one in value)
    return isinstance(value, str | Path) and str(value).partition("?")[0].endswith(ending)
