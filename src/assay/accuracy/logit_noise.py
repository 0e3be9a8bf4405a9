"""Stand-ins for perturbed versions of the reference: its logits with ever more noise."""

from collections.abc import Iterator

import torch

from assay.outputs import LOGITS
from assay.trace import Trace

STRENGTHS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2, 3.0)
"""Standard deviations of the noise, in units of that of the reference logits."""


def noisy(reference: Trace, seed: int) -> Iterator[Trace]:
    """The reference with ever more Gaussian noise on its logits, each with the true labels.

    The spread of the logits is kept: a network on perturbed inputs is wrong more often, not more confident.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = reference.logits.double()
    scale = float((logits - logits.mean(dim=1, keepdim=True)).std())
    for strength in STRENGTHS:
        noise = scale * torch.randn(logits.shape, generator=generator, dtype=torch.float64)
        noised = (logits + strength * noise) / (1 + strength**2) ** 0.5
        yield Trace(noised, labels=reference.labels, outputs=LOGITS)
