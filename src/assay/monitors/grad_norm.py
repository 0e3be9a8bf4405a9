"""GradNorm: doubt what would hardly move the last layer (Huang, Geng and Li 2021)."""

from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.exponentials import Exponentials
from assay.monitors.parts.row_sums import absolute_sum
from assay.trace import Trace


class GradNorm(Monitor):
    """s(x) = -||dL/dW||_1 = -||f(x)||_1 ||p(x) - u||_1 / T, with p = softmax(logits / T), u = 1 / C for every
    class, W the weights of the last layer and L the cross-entropy of p to u (Huang et al. 2021; the product
    is their decomposition into feature space and output space).

    The gradient is an outer product, so neither a backward pass nor W is needed. The authors' code sums L
    over classes instead of averaging, which multiplies every score by C. It is the gradient of the last
    Linear where the layer is its input; this is not checked.

    >>> import torch
    >>> trace = Trace(torch.tensor([[0.0, 0.0]]), {"penultimate": torch.tensor([[3.0, -1.0]])})
    >>> GradNorm().fit(trace).score(trace).tolist()
    [-0.0]
    """

    metadata = Metadata(
        score="-‖z‖₁ ‖p - 1/C‖₁, the gradient of the last layer in closed form",
        cost="N * (d + C)",
        paper="Huang, Geng and Li",
        year=2021,
    )

    def __init__(self, *, layer: str = "penultimate", temperature: float = 1.0) -> None:
        if not temperature > 0:
            raise InputError(f"expected a positive temperature, got {temperature}")
        self.layer = layer
        self.temperature = temperature

    def _score(self, trace: Trace) -> Tensor:
        probabilities = Exponentials.of(trace.logits, self.temperature).probabilities
        apart = (probabilities - 1 / len(probabilities)).abs().sum(dim=0)
        return -absolute_sum(trace.layer(self.layer)) * apart / self.temperature
