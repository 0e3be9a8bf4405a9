"""EnsembleDisagreement: doubt what several networks see differently (Lakshminarayanan et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.uncertainty import MEASURES, check_measure
from assay.network import Network
from assay.trace import Trace


class EnsembleDisagreement(Monitor):
    """s(x) = H(mean_m p_m(x)) - mean_m H(p_m(x)), p_m the softmax of network m.

    Deep ensembles (Lakshminarayanan, Pritzel, Blundell 2017); this measure is their disagreement
    sum_m KL(p_m || mean p) divided by the number of networks. "entropy" and "variation_ratio" are the
    others. Put the watched network among `networks` to count its own prediction. A file does not contain
    the networks: pass them all to assay.load(path, network=[...]), in this order.
    """

    metadata = Metadata(
        score="mutual information of the networks' predictions",
        needs=Needs(inputs=True, forward="len(networks)"),
        cost="N * C * len(networks)",
        paper="Lakshminarayanan, Pritzel and Blundell",
        year=2017,
    )

    def __init__(self, networks: Sequence[Network], *, measure: str = "mutual_information") -> None:
        if len(networks) < 2:
            raise InputError(f"expected at least 2 networks that can disagree, got {len(networks)}")
        check_measure(measure)
        self.networks = list(networks)
        self.measure = measure

    def _score(self, trace: Trace) -> Tensor:
        observed = [
            network.observe(trace.known_inputs, allow_nonfinite=True).probabilities
            for network in self.networks
        ]
        counts = [probabilities.shape[1] for probabilities in observed]
        if len(set(counts)) > 1:
            raise InputError(
                f"expected networks with the same number of classes, got {counts}; leave out the others"
            )
        return MEASURES[self.measure](torch.stack(observed))
