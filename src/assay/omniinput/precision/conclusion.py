"""The conclusion of a precision-recall curve in plain words."""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from assay.omniinput.precision.curve import PrecisionRecall


def number_of_inputs(log_count: float) -> str:
    """A count given by its natural log: in full up to a million, then as a power of ten.

    >>> number_of_inputs(math.log(1234.4)), number_of_inputs(math.log(3e20)), number_of_inputs(-math.inf)
    ('1,234', '10^20.5', '0')
    """
    if log_count == -math.inf:
        return "0"
    if log_count < math.log(1e6):
        return f"{math.exp(log_count):,.0f}" if log_count >= 0 else "fewer than 1"
    return f"10^{log_count / math.log(10):.1f}"


def summary(curve: "PrecisionRecall") -> str:
    last = len(curve.threshold) - 1
    sentences = [_counts_at(curve, 0, "Where it is most confident")]
    if last:
        sentences.append(_counts_at(curve, last, "Over all judged bins"))
    middle = _first_below_half(curve)
    if middle is not None:
        sentences.append(_below_half(curve, middle))
    lower, upper = curve.aupr_interval
    sentences.append(
        f"The area under precision over log-recall is {curve.aupr:.3g} ({curve.level:.0%} interval "
        f"{lower:.3g} to {upper:.3g})."
    )
    sentences.append(_sources(curve))
    return " ".join(sentences + _cautions(curve))


def _counts_at(curve: "PrecisionRecall", place: int, where: str) -> str:
    row = curve.to_frame().iloc[place]
    right, wrong = (
        _amount(curve, float(logs[place])) for logs in (curve.log_recall, curve.log_false_positive)
    )
    unit = "inputs" if curve.normalisation == "entire" else "times as many inputs as both models share"
    return (
        f"{where}, with {curve.output_name} {_side(curve)} {row['threshold']:.4g}, the model is rightly "
        f"confident about {right} {unit} and wrongly confident about {wrong}: {row['precision']:.1%} are "
        f"right ({curve.level:.0%} interval {row['precision_lower']:.1%} to {row['precision_upper']:.1%})."
    )


def _amount(curve: "PrecisionRecall", log_share: float) -> str:
    """The number of inputs, or how many there are for each that both models share, which may be below one."""
    if curve.normalisation == "entire":
        return number_of_inputs(log_share + curve.log_size)
    if log_share == -math.inf or abs(log_share) < math.log(1e4):
        return f"{math.exp(log_share):.2g}"
    return f"10^{log_share / math.log(10):.1f}"


def _side(curve: "PrecisionRecall") -> str:
    return "up to" if curve.confident == "low" else "of at least"


def _first_below_half(curve: "PrecisionRecall") -> int | None:
    below = np.flatnonzero(curve.precision < 0.5)
    return int(below[0]) if len(below) else None


def _below_half(curve: "PrecisionRecall", place: int) -> str:
    if place == 0:
        return "Fewer than half are right even where it is most confident."
    return (
        f"At least half of them are right {_side(curve)} {curve.threshold[place - 1]:.4g}; beyond that wrong "
        "ones are the majority."
    )


def _sources(curve: "PrecisionRecall") -> str:
    names = len(curve.annotators)
    who = f"{names} annotators" if names > 1 else f"one annotator ({curve.annotators[0]})"
    words = f"Judged by {who} on {int(curve.items.sum()):,} inputs in {len(curve.bins)} bins."
    if curve.audit is not None:
        words = (
            f"A judge scored {curve.audit.judged:,} inputs and is corrected by {who} on "
            f"{curve.audit.audited:,} of them: it scores {abs(curve.audit.bias):.2g} too "
            f"{'high' if curve.audit.bias > 0 else 'low'} on average and is trusted by "
            f"{curve.audit.share:.0%}."
        )
    return words if names > 1 else words + " The intervals do not include how far another would disagree."


def _cautions(curve: "PrecisionRecall") -> list[str]:
    words = []
    if curve.left_out:
        words.append(
            f"{curve.left_out} visited bins with even more confident outputs have no annotations and are "
            "left out of all sums."
        )
    doubtful = int((~curve.trusted).sum())
    if doubtful:
        words.append(
            f"In {doubtful} of {len(curve.trusted)} bins the number of inputs itself is uncertain; their "
            "points are drawn hollow. Sample longer."
        )
    if curve.reasons:
        words.append("The output distribution did not converge.")
    return words
