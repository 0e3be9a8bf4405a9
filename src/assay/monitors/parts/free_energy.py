"""Logits whose free energy differs from row to row, for monitors that read it."""

from collections.abc import Iterable, Iterator

from assay.errors import InputError
from assay.monitors.parts.exponentials import log_sum_exp
from assay.trace import Trace

NORMALISED = 0.02
"""Largest |log sum exp| of log-probabilities: zero, up to how well probabilities add up to one."""


def with_energies(traces: Iterable[Trace], monitor: str) -> Iterator[Trace]:
    """The same stream; an error at its end if every row had log-probabilities for logits.

    Their energy is zero in every row: the softmax has dropped what such a monitor reads.
    """
    largest = 0.0
    for trace in traces:
        if largest <= NORMALISED and len(trace):
            largest = max(largest, float(log_sum_exp(trace.logits).abs().max()))
        yield trace
    if largest <= NORMALISED:
        raise InputError(
            f"expected logits to fit {monitor} on, got the logarithms of probabilities, whose energy is 0 in "
            "every row; observe the network without its softmax, or use MaxSoftmax, Entropy or GEN"
        )
