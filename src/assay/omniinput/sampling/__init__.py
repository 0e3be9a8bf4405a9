"""How many of all inputs a model maps to each output (OmniInput, section 2).

`run` is the entry point. A `Question` holds its arguments and builds a run by one of the `samplers`, which
move inputs with `kernels`; each sampler returns its own `OutputDistribution`.
"""

from assay.omniinput.sampling.bases import Templates, TextsOf
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.memorisation import Memorised, memorised
from assay.omniinput.sampling.ngram import NGram
from assay.omniinput.sampling.normalisation import cross_model_normalised
from assay.omniinput.sampling.problem import SamplingError
from assay.omniinput.sampling.run import sample_outputs
from assay.omniinput.sampling.space import InputSpace

__all__ = [
    "CausalLM",
    "InputSpace",
    "Memorised",
    "NGram",
    "OutputDistribution",
    "Samples",
    "SamplingError",
    "Templates",
    "TextsOf",
    "cross_model_normalised",
    "memorised",
    "sample_outputs",
]
