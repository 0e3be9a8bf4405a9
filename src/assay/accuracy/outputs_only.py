"""The answer where nothing taught it: outputs say that accuracy has fallen, hardly ever how far.

Over the four development networks of benchmarks/subjects.py and 504 conditions without attacks, accuracy was
above the highest of three estimates by more than 5 points in 1.8 %; it was below the lowest by up to 86.
"""

from assay.accuracy.headline import Headline
from assay.accuracy.set_sums import SetSums

ABOVE = 0.05
"""How far accuracy may be above every estimate from outputs."""
LESS = "outputs alone were there to learn from; pass network= and labelled inputs, so that faults teach"


def outputs_estimates(sums: SetSums, reference: SetSums, accuracy: float) -> tuple[float, float, float]:
    """Three estimates that need no teacher: rows above the cut of the reference (ATC, Garg et al. 2022), mean
    calibrated confidence, and the accuracy of the reference less the fall of the mean confidence."""
    confidence = sums.scores[0] / sums.rows - reference.scores[0] / reference.rows
    return sums.above / sums.rows, sums.expected / sums.rows, float(accuracy + confidence)


def outputs_only_headline(sums: SetSums, reference: SetSums, accuracy: float) -> Headline:
    """The first estimate, with nothing but zero for a lower end; "cannot tell" where the upper is no lower
    than the accuracy of the reference."""
    estimates = outputs_estimates(sums, reference, accuracy)
    upper = min(1.0, max(estimates) + ABOVE)
    if upper >= accuracy:
        return Headline.unknown(f"the outputs have changed, and do not say how far the accuracy did: {LESS}")
    reason = f"all estimates from outputs have fallen, and it may be far lower: {LESS}"
    return Headline.of(min(estimates[0], upper), 0.0, upper, accuracy, reason)
