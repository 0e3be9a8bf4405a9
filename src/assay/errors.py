"""Errors that assay raises. Each message is one sentence: what was expected, what came, what to do."""

from collections.abc import Sequence


class AssayError(Exception):
    """Parent of every error that assay raises on purpose."""


class InputError(AssayError, ValueError):
    """Data or an argument are not as expected."""


class MissingLabelsError(InputError):
    """Usable data without labels."""


class UndecidedError(InputError):
    """The input is valid but gives no answer: too few samples, an infeasible task, an empty range."""


class NotFittedError(AssayError, RuntimeError):
    """A monitor was asked for scores before `fit`, or a guard for a verdict before `calibrate`."""


class GradientError(AssayError, RuntimeError):
    """The network is a black box without gradients, which this method needs."""


class StorageError(AssayError):
    """A file cannot be written, or its contents cannot be trusted."""


class MissingExtraError(AssayError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; run: pip install 'assay[{extra}]'"
        )


class AssayWarning(UserWarning):
    """Something that assay found out by itself and that you can state instead; said once."""


def shortened(names: Sequence[str], most: int = 20) -> list[str]:
    """Names for a message: all of them, or the first and the last if there are too many to read.

    >>> shortened(["a", "b", "c", "d", "e"], most=4)
    ['a', 'b', '...', 'd', 'e']
    """
    unique = list(dict.fromkeys(names))
    return unique if len(unique) <= most else [*unique[: most // 2], "...", *unique[-(most // 2) :]]
