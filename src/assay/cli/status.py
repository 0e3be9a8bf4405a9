"""Exit statuses, the same for every command."""

import sys

import typer

FINE = 0
ALARM = 1
"""A gate failed or an alarm was raised."""
WRONG_USE = 2
UNDECIDED = 3
"""No decision: too few samples, infeasible, not converged."""
INTERRUPTED = 130
"""By Ctrl-C; the number that shells use."""
READER_LEFT = 141
"""Nobody reads the output any more (`| head`); the number that shells use. Says nothing about an alarm."""


def leave_by_gate(name: str, interval: tuple[float, float], least: float) -> None:
    """Return if the whole interval lies above what is wanted; otherwise say why not and exit."""
    from assay.check.gate import decided

    passed = decided(interval, least)
    if passed:
        return
    found = f"the {name} lies between {interval[0]:.4g} and {interval[1]:.4g}"
    words = f"cannot decide: {found}, on both sides of the {least:g} wanted; pass more data"
    print(words if passed is None else f"gate failed: {found}, below the {least:g} wanted", file=sys.stderr)
    raise typer.Exit(UNDECIDED if passed is None else ALARM)
