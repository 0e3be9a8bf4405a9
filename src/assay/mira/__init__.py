"""MIRA: will this network's failures be visible from inside, and at which layer?"""

from assay.mira.chi_square import surprisal
from assay.mira.comparison import MonitorabilityComparison, compare_monitorability
from assay.mira.detection import Tuning
from assay.mira.panel_result import Monitorability
from assay.mira.panel_score import monitorability
from assay.mira.result import FeatureSample, MiraResult
from assay.mira.score import mira_score
from assay.mira.settings import MiraSettings
from assay.mira.shuffle import ShuffleScore, shuffle_score
from assay.mira.validation import MonitorabilityValidation, validate_monitorability
from assay.mira.weights import Weight

__all__ = [
    "FeatureSample",
    "MiraResult",
    "MiraSettings",
    "Monitorability",
    "MonitorabilityComparison",
    "MonitorabilityValidation",
    "ShuffleScore",
    "Tuning",
    "Weight",
    "compare_monitorability",
    "mira_score",
    "monitorability",
    "shuffle_score",
    "surprisal",
    "validate_monitorability",
]
