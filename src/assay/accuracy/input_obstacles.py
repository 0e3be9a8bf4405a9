"""Inputs from which nothing can be told: the same ones again, values that never change, or only extremes."""

from assay.accuracy.set_sums import SetSums

REPEATED = 0.2
"""Share of rows that equal the row before, beyond that of the reference."""
FROZEN = 0.05
"""Share of input values that never change, among those that do in the reference."""
SATURATED = 0.5
"""Share of input values at the ends of the reference's range, beyond that of the reference."""


def input_obstacle(sums: SetSums, reference: SetSums) -> str:
    """Why these inputs say nothing about accuracy; empty where they may."""
    repeated = sums.repeats / sums.rows - reference.repeats / reference.rows
    if repeated > REPEATED:
        return f"{repeated:.0%} of the rows repeat the row before, as from a stuck sensor; check the inputs"
    if not sums.lowest.size or sums.lowest.shape != reference.lowest.shape:
        return ""
    moving = reference.lowest < reference.highest
    frozen = float((sums.lowest >= sums.highest)[moving].mean()) if moving.any() else 0.0
    if frozen > FROZEN:
        return f"{frozen:.0%} of the input values never change, as from a stuck sensor; check the inputs"
    saturated = sums.extremes / sums.values - reference.extremes / reference.values
    if saturated > SATURATED:
        return f"{saturated:.0%} more input values than usual are at the end of their range; check the inputs"
    return ""
