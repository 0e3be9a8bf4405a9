"""How often a model is right where it is confident, over all inputs (OmniInput, section 2.3).

`precision_recall` makes the curve (`curve`) from a distribution and scores, with intervals from
`bin_bootstrap`; `comparison` compares the curves of several models, `convergence` shows how many annotations
are enough.
"""

from assay.omniinput.precision.comparison import PrecisionRecallComparison, compare_precision_recall
from assay.omniinput.precision.convergence import PrecisionConvergence, precision_convergence
from assay.omniinput.precision.curve import PrecisionRecall
from assay.omniinput.precision.precision_recall import precision_recall

__all__ = [
    "PrecisionConvergence",
    "PrecisionRecall",
    "PrecisionRecallComparison",
    "compare_precision_recall",
    "precision_convergence",
    "precision_recall",
]
