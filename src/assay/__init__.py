"""assay: how far a neural network can be trusted when there are no labels."""

import importlib
from typing import TYPE_CHECKING, Any

from assay.version import VERSION as __version__

# Public name -> the module that defines it. Modules load on first use, so that `import assay` costs little
# more than `import torch`.
_HOMES = {
    "AccuracyEstimator": "volatility",
    "AnnotationItems": "omniinput.annotation_items",
    "AnnotatorAgreement": "omniinput.annotation_agreement",
    "AssayError": "errors",
    "BenchmarkResult": "benchmark",
    "Bins": "reshaping.bins",
    "CannotMatchError": "reshaping.mismatch",
    "CausalLM": "omniinput.language",
    "Check": "check",
    "DriftWatch": "operation",
    "Estimate": "reshaping.estimate",
    "Guard": "guard",
    "Histogram": "reshaping.histogram",
    "InputSpace": "omniinput.space",
    "MiraResult": "mira",
    "MonitorabilityComparison": "mira",
    "MonitorabilityValidation": "mira",
    "Network": "network",
    "OnnxGuard": "guard",
    "OutputDistribution": "omniinput.distribution",
    "PrecisionConvergence": "omniinput.precision_convergence",
    "PrecisionRecall": "omniinput.precision_curve",
    "PrecisionRecallComparison": "omniinput.precision_comparison",
    "Reshaping": "reshaping.subset",
    "ReshapingTrials": "reshaping.trials",
    "Scenario": "benchmark",
    "ShuffleScore": "mira",
    "Trace": "trace",
    "TrainingRecord": "volatility",
    "Verdict": "guard",
    "VolatilityWatch": "volatility",
    "Watch": "operation",
    "accuracy": "reshaping.indicator",
    "annotator_agreement": "omniinput.annotation_agreement",
    "build_scenarios": "benchmark",
    "choose_items": "omniinput.annotation_choice",
    "check_network": "check",
    "compare_monitorability": "mira",
    "compare_precision_recall": "omniinput.precision_comparison",
    "compare_volatility": "volatility",
    "cross_model_normalised": "omniinput.normalisation",
    "estimate_accuracy": "volatility",
    "implied_kappa": "reshaping.similarity",
    "kl_similarity": "reshaping.similarity",
    "load": "storage",
    "mira_score": "mira",
    "neuron_bounds": "reshaping.bounds",
    "portion_similarity": "reshaping.similarity",
    "precision_convergence": "omniinput.precision_convergence",
    "precision_recall": "omniinput.precision",
    "read_annotations": "omniinput.annotation_exchange",
    "recall": "reshaping.indicator",
    "reshape": "reshaping.subset",
    "run_benchmark": "benchmark",
    "sample_outputs": "omniinput.sampling",
    "save": "storage",
    "shuffle_score": "mira",
    "smallest_contamination": "volatility",
    "validate_monitorability": "mira",
    "volatility_in_certainty": "volatility",
    "write_annotations": "omniinput.annotation_exchange",
    "write_report": "report",
}
_ROOMS = {
    "benchmark",
    "check",
    "data",
    "errors",
    "faults",
    "mira",
    "monitors",
    "operation",
    "report",
    "volatility",
}

__all__ = ["__version__", *sorted(_HOMES), *sorted(_ROOMS)]

if TYPE_CHECKING:
    from assay import benchmark as benchmark
    from assay import check as check
    from assay import data as data
    from assay import errors as errors
    from assay import faults as faults
    from assay import mira as mira
    from assay import monitors as monitors
    from assay import operation as operation
    from assay import report as report
    from assay import volatility as volatility
    from assay.benchmark import BenchmarkResult as BenchmarkResult
    from assay.benchmark import Scenario as Scenario
    from assay.benchmark import build_scenarios as build_scenarios
    from assay.benchmark import run_benchmark as run_benchmark
    from assay.check import Check as Check
    from assay.check import check_network as check_network
    from assay.errors import AssayError as AssayError
    from assay.guard import Guard as Guard
    from assay.guard import OnnxGuard as OnnxGuard
    from assay.guard import Verdict as Verdict
    from assay.mira import MiraResult as MiraResult
    from assay.mira import MonitorabilityComparison as MonitorabilityComparison
    from assay.mira import MonitorabilityValidation as MonitorabilityValidation
    from assay.mira import ShuffleScore as ShuffleScore
    from assay.mira import compare_monitorability as compare_monitorability
    from assay.mira import mira_score as mira_score
    from assay.mira import shuffle_score as shuffle_score
    from assay.mira import validate_monitorability as validate_monitorability
    from assay.network import Network as Network
    from assay.omniinput.annotation_agreement import AnnotatorAgreement as AnnotatorAgreement
    from assay.omniinput.annotation_agreement import annotator_agreement as annotator_agreement
    from assay.omniinput.annotation_choice import choose_items as choose_items
    from assay.omniinput.annotation_exchange import read_annotations as read_annotations
    from assay.omniinput.annotation_exchange import write_annotations as write_annotations
    from assay.omniinput.annotation_items import AnnotationItems as AnnotationItems
    from assay.omniinput.distribution import OutputDistribution as OutputDistribution
    from assay.omniinput.language import CausalLM as CausalLM
    from assay.omniinput.normalisation import cross_model_normalised as cross_model_normalised
    from assay.omniinput.precision import precision_recall as precision_recall
    from assay.omniinput.precision_comparison import PrecisionRecallComparison as PrecisionRecallComparison
    from assay.omniinput.precision_comparison import compare_precision_recall as compare_precision_recall
    from assay.omniinput.precision_convergence import PrecisionConvergence as PrecisionConvergence
    from assay.omniinput.precision_convergence import precision_convergence as precision_convergence
    from assay.omniinput.precision_curve import PrecisionRecall as PrecisionRecall
    from assay.omniinput.sampling import sample_outputs as sample_outputs
    from assay.omniinput.space import InputSpace as InputSpace
    from assay.operation import DriftWatch as DriftWatch
    from assay.operation import Watch as Watch
    from assay.report import write_report as write_report
    from assay.reshaping.bins import Bins as Bins
    from assay.reshaping.bounds import neuron_bounds as neuron_bounds
    from assay.reshaping.estimate import Estimate as Estimate
    from assay.reshaping.histogram import Histogram as Histogram
    from assay.reshaping.indicator import accuracy as accuracy
    from assay.reshaping.indicator import recall as recall
    from assay.reshaping.mismatch import CannotMatchError as CannotMatchError
    from assay.reshaping.similarity import implied_kappa as implied_kappa
    from assay.reshaping.similarity import kl_similarity as kl_similarity
    from assay.reshaping.similarity import portion_similarity as portion_similarity
    from assay.reshaping.subset import Reshaping as Reshaping
    from assay.reshaping.subset import reshape as reshape
    from assay.reshaping.trials import ReshapingTrials as ReshapingTrials
    from assay.storage import load as load
    from assay.storage import save as save
    from assay.trace import Trace as Trace
    from assay.volatility import AccuracyEstimator as AccuracyEstimator
    from assay.volatility import TrainingRecord as TrainingRecord
    from assay.volatility import VolatilityWatch as VolatilityWatch
    from assay.volatility import compare_volatility as compare_volatility
    from assay.volatility import estimate_accuracy as estimate_accuracy
    from assay.volatility import smallest_contamination as smallest_contamination
    from assay.volatility import volatility_in_certainty as volatility_in_certainty


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"assay.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"assay.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
