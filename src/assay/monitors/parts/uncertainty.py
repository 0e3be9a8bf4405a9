"""How unsure several predictions of the same inputs are, from probabilities (predictions, N, classes)."""

import torch
from torch import Tensor

from assay.errors import InputError


def predictive_entropy(probabilities: Tensor) -> Tensor:
    """H(mean p), in nats: all uncertainty, of the data and of the model."""
    return _entropy(probabilities.mean(dim=0))


def mutual_information(probabilities: Tensor) -> Tensor:
    """H(mean p) - mean H(p), in nats: what the predictions disagree about (Houlsby et al. 2011)."""
    expected = _entropy(probabilities).mean(dim=0)
    return (predictive_entropy(probabilities) - expected).clamp(min=0)


def variation_ratio(probabilities: Tensor) -> Tensor:
    """The share of predictions that differ from the most frequent class (Freeman 1965)."""
    votes = torch.nn.functional.one_hot(probabilities.argmax(dim=2), probabilities.shape[2])
    share = votes.double().mean(dim=0).amax(dim=1)
    return torch.where(torch.isfinite(probabilities).all(dim=2).all(dim=0), 1 - share, torch.nan)


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)  # 0 ln 0 is 0
    return terms.sum(dim=-1)


MEASURES = {
    "entropy": predictive_entropy,
    "mutual_information": mutual_information,
    "variation_ratio": variation_ratio,
}


def check_measure(measure: str) -> None:
    if measure not in MEASURES:
        raise InputError(f"expected measure to be one of {list(MEASURES)}, got {measure!r}")
