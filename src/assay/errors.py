"""What assay raises: one sentence saying what was expected, what came, and what to do."""


class AssayError(Exception):
    """Everything assay raises on purpose."""


class InputError(AssayError, ValueError):
    """Data or an argument is not what was expected."""


class MissingLabelsError(InputError):
    """Data that would do, had they labels."""


class UndecidedError(InputError):
    """What was given is right but cannot decide: too few samples, infeasible, no such range."""


class NotFittedError(AssayError, RuntimeError):
    """A monitor scored before `fit`, or a guard judged before `calibrate`."""


class GradientError(AssayError, RuntimeError):
    """Gradients were asked of a network that has none (a black box)."""


class StorageError(AssayError):
    """A file that cannot be written, or cannot be trusted when read."""


class MissingExtraError(AssayError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; run: pip install 'assay[{extra}]'"
        )
