"""Difference of confidences (DoC; Guillory et al. 2021)."""

from assay.accuracy.methods.average_confidence import AverageConfidence
from assay.storage import storable


@storable("accuracy.methods.DifferenceOfConfidences")
class DifferenceOfConfidences(AverageConfidence):
    """Reference accuracy less the fall in mean confidence."""

    name = "difference of confidences (DoC)"
    assumption = "accuracy falls by as much as mean confidence does"
    corrected = True
