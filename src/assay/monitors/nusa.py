"""NuSA: doubt features that the last layer mostly ignores (Cook, Zare and Gader 2020)."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.parts.last_layer import LastLayer
from assay.monitors.parts.last_layer_reader import _LastLayerReader
from assay.monitors.parts.row_blocks import row_blocks
from assay.trace import Trace

_ROWS = 1024  # scored at a time: intermediate results stay in cache

_RANK = 1e-5
"""Share of the largest singular value of the weights below which a direction is rounding: weights recovered
from logits in single precision are known to about 1e-6."""


class NuSA(_LastLayerReader):
    """s(x) = -||P f(x)|| / ||f(x)||, with P the projection onto the span of the rows of W, the weights of the
    last layer: minus the share of the features that is not in their null space (null space analysis; Cook,
    Zare and Gader 2020), in [-1, 0].

    The paper trains networks to keep their features out of the null space of every layer, and adds up the
    layers. Here, as in ViM's paper and in the code for OpenOOD, it reads one layer of any network. W is
    recovered from the training Trace (see `head.py`), so the layer must be the input of the last Linear, and
    wider than there are classes: else nothing lies outside. Features that are all zero score 0, the largest.
    """

    metadata = Metadata(
        score="-‖P z‖ / ‖z‖, P the projection onto the span of the last layer's weights",
        fit="N * (d + C)**2",
        cost="N * d * C",
        state="4 * d * C",
        paper="Cook, Zare and Gader",
        year=2020,
    )

    directions_: Tensor

    def __init__(self, *, layer: str = "penultimate") -> None:
        self.layer = layer

    def _use(self, last: LastLayer) -> None:
        _, strengths, directions = torch.linalg.svd(last.weight, full_matrices=False)
        known = directions[strengths > _RANK * strengths[0]]
        if len(known) == self.dimensions_[self.layer]:
            raise InputError(
                f"expected more features in layer {self.layer!r} than the directions its weights span, got "
                f"{len(known)} of both, so that nothing lies outside; use another monitor, such as ViM"
            )
        self.directions_ = known.float().contiguous()
        self.remedy_ = last.undetermined

    def _score(self, trace: Trace) -> Tensor:
        blocks = row_blocks(trace.layer(self.layer), _ROWS)
        return -torch.cat([self._shares(rows.float()) for rows in blocks]).double()

    def _shares(self, features: Tensor) -> Tensor:
        # (directions, rows) is the faster way round where classes are few.
        seen: Tensor = torch.linalg.vector_norm(self.directions_ @ features.T, dim=0)
        whole: Tensor = torch.linalg.vector_norm(features, dim=1)
        return seen / whole.clamp(min=1e-8)
