"""A guard that was saved or exported, from its file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Guard
    from assay.guard import AnyGuard

SavedGuard = Annotated[Path, typer.Argument(help="A saved Guard, or an exported one (.onnx).")]
NetworkOfGuard = Annotated[
    str | None,
    typer.Argument(help="module:factory that returns the network of a saved Guard, or its .onnx file."),
]


def guard_at(path: Path, network: str | None) -> "AnyGuard":
    import assay
    from assay.cli.network_reference import network_at

    if path.suffix == ".onnx":
        if network is not None:
            raise InputError(
                f"expected no network beside {path}, which contains its own, got {network}; leave it out"
            )
        return assay.OnnxGuard(path)
    if not path.exists():
        raise InputError(f"expected a guard at {path}, found none; check the path")
    if network is None:
        raise InputError(
            f"expected the network of {path}, which the file does not contain; pass module:factory as well"
        )
    # Without layers of its own: the guard knows which ones it watches.
    loaded: Guard = assay.load(path, network=network_at(network, layers=()), kind="Guard")
    return loaded
