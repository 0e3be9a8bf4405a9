"""What a command will need beyond the core, asked for before it does any work."""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from assay.extras import expect_installed


def with_extras(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which refuses to begin where a package that it will need is not installed."""

    @functools.wraps(command)
    def prepared(**given: Any) -> None:
        expect_extras(command.__name__, given)
        command(**given)

    return prepared


def expect_extras(command: str, given: Mapping[str, Any]) -> None:
    """Raise, with the pip line, where what the command was given needs a package that is not installed."""
    if command == "serve" or (command == "annotate" and not (given["take"] or given["export"])):
        expect_installed("starlette", "uvicorn", "prometheus_client")
    if command == "sample" and given["kind"] == "language-model" and ":" not in given["model"]:
        expect_installed("transformers")
    if given.get("readouts"):
        expect_installed("pyarrow")
    if given.get("engine") == "ray":
        expect_installed("ray")
    if any(_is_onnx(value) for value in given.values()):
        expect_installed("onnx", "onnxruntime")


def _is_onnx(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_onnx, value))
    return isinstance(value, str | Path) and str(value).endswith(".onnx")
