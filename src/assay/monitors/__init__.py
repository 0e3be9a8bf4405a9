"""Every way to doubt a prediction, one per file; the contract is in `monitor.py`."""

from assay.monitors.activation_box import ActivationBox
from assay.monitors.activation_pattern import ActivationPattern
from assay.monitors.adapter import adapt
from assay.monitors.allowed_classes import AllowedClasses
from assay.monitors.ash import ASH
from assay.monitors.combination import AllOf, AnyOf, Standardised
from assay.monitors.corp import CoRP
from assay.monitors.dice import DICE
from assay.monitors.energy import Energy
from assay.monitors.ensemble_disagreement import EnsembleDisagreement
from assay.monitors.entropy import Entropy
from assay.monitors.fdbd import FDBD
from assay.monitors.gaussian_interval import GaussianInterval
from assay.monitors.gen import GEN
from assay.monitors.grad_norm import GradNorm
from assay.monitors.input_range import InputRange
from assay.monitors.input_statistics import InputStatistics
from assay.monitors.kl_matching import KLMatching
from assay.monitors.knn import KNN
from assay.monitors.likelihood_ratio import LikelihoodRatio
from assay.monitors.mahalanobis import Mahalanobis
from assay.monitors.max_logit import MaxLogit
from assay.monitors.max_softmax import MaxSoftmax
from assay.monitors.monitor import Monitor
from assay.monitors.monte_carlo_dropout import MonteCarloDropout
from assay.monitors.multi_layer_mahalanobis import MultiLayerMahalanobis
from assay.monitors.nci import NCI
from assay.monitors.nnguide import NNGuide
from assay.monitors.nusa import NuSA
from assay.monitors.odin import ODIN
from assay.monitors.open_max import OpenMax
from assay.monitors.parts.joint_fit import fit_together
from assay.monitors.react import ReAct
from assay.monitors.reconstruction import Reconstruction
from assay.monitors.relative_mahalanobis import RelativeMahalanobis
from assay.monitors.rule import Rule
from assay.monitors.scale import SCALE
from assay.monitors.she import SHE
from assay.monitors.temperature_scaled import TemperatureScaled
from assay.monitors.vim import ViM

__all__ = [
    "ASH",
    "DICE",
    "FDBD",
    "GEN",
    "KNN",
    "NCI",
    "ODIN",
    "SCALE",
    "SHE",
    "ActivationBox",
    "ActivationPattern",
    "AllOf",
    "AllowedClasses",
    "AnyOf",
    "CoRP",
    "Energy",
    "EnsembleDisagreement",
    "Entropy",
    "GaussianInterval",
    "GradNorm",
    "InputRange",
    "InputStatistics",
    "KLMatching",
    "LikelihoodRatio",
    "Mahalanobis",
    "MaxLogit",
    "MaxSoftmax",
    "Monitor",
    "MonteCarloDropout",
    "MultiLayerMahalanobis",
    "NNGuide",
    "NuSA",
    "OpenMax",
    "ReAct",
    "Reconstruction",
    "RelativeMahalanobis",
    "Rule",
    "Standardised",
    "TemperatureScaled",
    "ViM",
    "adapt",
    "fit_together",
]
