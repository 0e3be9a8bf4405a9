"""MIRA: will this network's failures be visible from inside, and at which layer?"""

from assay.mira.chi_square import surprisal
from assay.mira.comparison import MonitorabilityComparison, compare_monitorability
from assay.mira.detection import Tuning
from assay.mira.error_visibility import ErrorVisibility, error_visibility
from assay.mira.panel_result import Monitorability
from assay.mira.panel_score import monitorability
from assay.mira.readings import MiraReadings, mira_readings
from assay.mira.result import FeatureSample, MiraResult
from assay.mira.score import mira_score
from assay.mira.settings import AUTHORS_CODE, MiraSettings
from assay.mira.validation import MonitorabilityValidation, validate_monitorability
from assay.mira.weights import Weight

__all__ = [
    "AUTHORS_CODE",
    "ErrorVisibility",
    "FeatureSample",
    "MiraReadings",
    "MiraResult",
    "MiraSettings",
    "Monitorability",
    "MonitorabilityComparison",
    "MonitorabilityValidation",
    "Tuning",
    "Weight",
    "compare_monitorability",
    "error_visibility",
    "mira_readings",
    "mira_score",
    "monitorability",
    "surprisal",
    "validate_monitorability",
]
