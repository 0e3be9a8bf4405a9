"""MonteCarloDropout: doubt what thinned copies of the network are unsure of (Gal and Ghahramani 2016)."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.uncertainty import MEASURES, check_measure
from assay.network import Network
from assay.trace import Trace


class MonteCarloDropout(Monitor):
    """s(x) = H((1/T) sum_t p_t(x)), p_t the softmax of the network under the t-th dropout mask.

    Dropout as a Bayesian approximation (Gal and Ghahramani 2016). measure: "entropy" as above,
    "mutual_information" or "variation_ratio". The T masks come from the seed and are the same for every
    input, so that an input's score does not depend on its batch.
    """

    metadata = Metadata(
        score="entropy of the mean probabilities under dropout",
        needs=Needs(inputs=True, forward="passes"),
        cost="N * C * passes",
        paper="Gal and Ghahramani",
        year=2016,
    )

    def __init__(
        self, network: Network, *, passes: int = 20, measure: str = "entropy", seed: int = 0
    ) -> None:
        if passes < 2:
            raise InputError(f"expected at least 2 passes, got {passes}")
        check_measure(measure)
        self.network = network
        self.passes = passes
        self.measure = measure
        self.seed = seed

    def _score(self, trace: Trace) -> Tensor:
        logits = self.network.dropout_logits(trace.known_inputs, self.passes, self.seed)
        return MEASURES[self.measure](torch.softmax(logits.double(), dim=2))
