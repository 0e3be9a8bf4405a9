"""Limits: how much a client may ask of a service."""

from dataclasses import dataclass

from assay.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Limits on what a client may ask for."""

    body: int = 16 * 2**20
    """Most bytes per request, and per answer."""
    rows: int = 256
    """Most rows per request."""
    waiting: int = 32
    """Most requests accepted and not yet answered."""
    seconds: float = 30.0
    """From the end of a body to its answer."""
    body_seconds: float = 20.0
    """From the header of a request to the end of its body."""
    threads: int = 1
    """Requests, or batches of them, computed at the same time."""
    batch_seconds: float | None = None
    """How long a request may wait for others that are computed with it; None computes each alone."""

    def __post_init__(self) -> None:
        whole, seconds = (self.body, self.rows, self.waiting, self.threads), (self.seconds, self.body_seconds)
        if min(whole) < 1 or not min(seconds) > 0 or not 0 <= (self.batch_seconds or 0) < self.seconds:
            raise InputError(
                f"expected limits of at least 1 and positive seconds, for a batch fewer than for an answer, "
                f"got {self}"
            )
