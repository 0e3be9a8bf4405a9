"""OmniInput: how right a model is over its whole input space.

Three steps, one folder each: `sampling` estimates how many inputs the model maps to each output, `annotation`
has some of these inputs judged, and `precision` turns the judgements into precision and recall.
"""

from assay.omniinput.annotation import (
    AnnotationItems,
    AnnotatorAgreement,
    annotator_agreement,
    choose_items,
    read_annotations,
    write_annotations,
)
from assay.omniinput.precision import (
    PrecisionConvergence,
    PrecisionRecall,
    PrecisionRecallComparison,
    compare_precision_recall,
    precision_convergence,
    precision_recall,
)
from assay.omniinput.sampling import (
    CausalLM,
    InputSpace,
    Memorised,
    NGram,
    OutputDistribution,
    Samples,
    SamplingError,
    Templates,
    TextsOf,
    cross_model_normalised,
    memorised,
    sample_outputs,
)

__all__ = [
    "AnnotationItems",
    "AnnotatorAgreement",
    "CausalLM",
    "InputSpace",
    "Memorised",
    "NGram",
    "OutputDistribution",
    "PrecisionConvergence",
    "PrecisionRecall",
    "PrecisionRecallComparison",
    "Samples",
    "SamplingError",
    "Templates",
    "TextsOf",
    "annotator_agreement",
    "choose_items",
    "compare_precision_recall",
    "cross_model_normalised",
    "memorised",
    "precision_convergence",
    "precision_recall",
    "read_annotations",
    "sample_outputs",
    "write_annotations",
]
