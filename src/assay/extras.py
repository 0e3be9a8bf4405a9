"""Optional packages: checked before any work; if one is missing, the error shows the pip command."""

from importlib.util import find_spec

from assay.errors import MissingExtraError

EXTRAS = {
    "fastapi": "serve",
    "lightning": "lightning",
    "mlflow": "mlflow",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "opentelemetry": "otel",
    "prometheus_client": "web",
    "pyarrow": "benchmark",
    "ray": "ray",
    "starlette": "web",
    "transformers": "hf",
    "uvicorn": "web",
}
"""Import name of each optional package, and the extra that installs it."""


def expect_installed(*packages: str) -> None:
    """Raise if one of these packages is missing; none is imported."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(package.replace("_", "-"), EXTRAS[package])
