"""Pages and services that listen on this machine: people annotate inputs, programs ask a guard."""

from importlib.util import find_spec

from assay.errors import MissingExtraError

for package in ("starlette", "uvicorn"):
    if find_spec(package) is None:
        raise MissingExtraError(package, "web")
