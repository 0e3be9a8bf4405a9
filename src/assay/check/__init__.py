"""Is this network fit to ship? Accuracy, monitorability and monitors checked at once, against gates."""

from assay.check.accuracy_trials import AccuracyTrials
from assay.check.gate import Gate
from assay.check.junit import junit
from assay.check.result import Check
from assay.check.run import check_network

__all__ = ["AccuracyTrials", "Check", "Gate", "check_network", "junit"]
