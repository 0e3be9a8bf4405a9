"""OmniInput: precision and recall of a model over its whole input space (one folder per step)."""

from assay.omniinput.annotation.agreement import AnnotatorAgreement, annotator_agreement
from assay.omniinput.annotation.choice import choose_items
from assay.omniinput.annotation.formats import read_annotations, write_annotations
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.precision.comparison import PrecisionRecallComparison, compare_precision_recall
from assay.omniinput.precision.convergence import PrecisionConvergence, precision_convergence
from assay.omniinput.precision.curve import PrecisionRecall
from assay.omniinput.precision.precision_recall import precision_recall
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.normalisation import cross_model_normalised
from assay.omniinput.sampling.problem import SamplingError
from assay.omniinput.sampling.run import sample_outputs
from assay.omniinput.sampling.space import InputSpace

__all__ = [
    "AnnotationItems",
    "AnnotatorAgreement",
    "CausalLM",
    "InputSpace",
    "OutputDistribution",
    "PrecisionConvergence",
    "PrecisionRecall",
    "PrecisionRecallComparison",
    "Samples",
    "SamplingError",
    "annotator_agreement",
    "choose_items",
    "compare_precision_recall",
    "cross_model_normalised",
    "precision_convergence",
    "precision_recall",
    "read_annotations",
    "sample_outputs",
    "write_annotations",
]
