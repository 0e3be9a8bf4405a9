"""States that a kernel learns from: those of the whole adaptation, later ones more densely."""

import torch
from torch import Tensor


def joined(
    before: tuple[Tensor | None, Tensor | None], sites: Tensor, outputs: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Those kept before and these, at most so many: of the older half every other one is dropped, since
    neighbours in time are alike."""
    if before[0] is not None and before[1] is not None:
        sites, outputs = torch.cat([before[0], sites]), torch.cat([before[1], outputs])
    if len(sites) > most:
        stay = torch.cat([torch.arange(0, most // 2, 2), torch.arange(most // 2, len(sites))])[-most:]
        sites, outputs = sites[stay], outputs[stay]
    return sites, outputs
