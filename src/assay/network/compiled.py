"""Parts that went through `torch.compile`: run as they were written, since compiled code calls no hooks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from torch import nn

from assay.identity import COMPILED

_switching = Lock()
_running: dict[nn.Module, int] = {}
"""Compiled parts that run as written now, and for how many forward passes."""
_compiled_code: dict[nn.Module, Any] = {}
"""What such a part runs otherwise."""


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that was compiled, with its author's layer names; any other module as it is."""
    plain: nn.Module = getattr(module, COMPILED, module)
    return plain


@contextmanager
def as_written(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Those of the parts that were compiled, by `torch.compile(part)` or `part.compile()`, run as written.

    Any number of threads may be inside at once. torch's own switch, `set_stance`, is for the whole process,
    and does not let a tracer pass.
    """
    compiled = [part for part in parts if COMPILED in part._modules or part._compiled_call_impl is not None]
    if not (compiled or _running):
        yield
        return
    with _switching:
        switched = [*compiled, *(part for part in parts if part in _running and part not in compiled)]
        for part in switched:
            if part not in _running:
                _compiled_code[part] = _switched(part, None)
            _running[part] = _running.get(part, 0) + 1
    try:
        yield
    finally:
        with _switching:
            for part in switched:
                _running[part] -= 1
                if not _running[part]:
                    del _running[part]
                    _switched(part, _compiled_code.pop(part))


def _switched(part: nn.Module, code: Any) -> Any:
    """Let the part run this code, or what was written where it is None; what it ran before."""
    name = "forward" if COMPILED in part._modules else "_compiled_call_impl"
    before = getattr(part, name)
    setattr(part, name, getattr(part, COMPILED).__call__ if code is None and name == "forward" else code)
    return before
