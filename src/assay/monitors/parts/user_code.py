"""The parent of monitors that call user code: everything of a monitor except files."""

import inspect
from typing import Any, NoReturn

import torch
from torch import Tensor

from assay.errors import InputError, StorageError
from assay.monitors.monitor import Monitor
from assay.trace import Trace


class _UserCode(Monitor):
    """Saving is an error that says why, and what to do instead."""

    instead: str
    """The end of the error of `save`: what to do instead."""

    code: str
    """The parameter that is the user's code."""

    name: str | None
    """The name by which saved results identify it."""

    @property
    def nbytes(self) -> int:
        return 0

    def state(self) -> NoReturn:
        raise StorageError(f"expected a monitor that can be saved, got {self!r}; {self.instead}")

    def stated(self) -> dict[str, Any]:
        """Its identity: the name, since code has no hash, and the settings."""
        if not self.name:
            raise InputError(
                f"expected a {type(self).__name__} with a name: code has no hash to save results under, "
                f"got {self!r}; pass name=, and change it when the code changes"
            )
        names = [name for name in inspect.signature(type(self)).parameters if name != self.code]
        return {name: getattr(self, name) for name in names} | {"learned": self._learned()}

    def _learned(self) -> dict[str, Any]:
        """The part of the fitted state that can be hashed."""
        return {}

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        arguments = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({arguments})"


def one_score_per_row(answer: Any, trace: Trace, source: str) -> Tensor:
    """The answer of a user's code as scores (N,); anything of another shape is an error."""
    try:
        scores = torch.as_tensor(answer)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"expected one number or truth value per row from {source}, got {type(answer).__name__}; "
            f"return a tensor of shape ({len(trace)},)"
        ) from error
    if scores.shape != (len(trace),):
        raise InputError(
            f"expected one number or truth value per row from {source}, shape ({len(trace)},), "
            f"got shape {tuple(scores.shape)}; reduce over everything but rows"
        )
    return scores.detach().cpu().double()


def _shown(value: Any) -> str:
    return getattr(value, "__qualname__", None) or repr(value)
