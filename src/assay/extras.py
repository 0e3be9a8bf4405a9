"""Packages that only some jobs need: asked for before any work, in one sentence with the pip line."""

from importlib.util import find_spec

from assay.errors import MissingExtraError

EXTRAS = {
    "lightning": "lightning",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "prometheus_client": "web",
    "pyarrow": "benchmark",
    "ray": "ray",
    "starlette": "web",
    "transformers": "hf",
    "uvicorn": "web",
}
"""The extra that brings each package, by the name it is imported by."""


def expect_installed(*packages: str) -> None:
    """Raise where one of these packages is missing; none is imported for it."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(package.replace("_", "-"), EXTRAS[package])
