"""Chapter: of all images there could be, which does a network take for a zero?"""

import torch
from torch import Tensor

from assay.demo.setting import Setting
from assay.omniinput.sampling import sample_outputs
from assay.omniinput.space import InputSpace
from assay.report import Section

LEVELS = 3
"""Grey values of a pixel: black, grey, white."""

BUDGET = 60_000


def everything(setting: Setting) -> Section:
    """How far a zero is ahead, over all images of 4x4 pixels in three greys, enlarged to 8x8."""
    network = setting.networks["wide MLP"]

    def lead_of_zero(images: Tensor) -> Tensor:
        enlarged = images.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        with torch.no_grad():
            logits = network(enlarged.float() / (LEVELS - 1))
        return logits[:, 0] - logits[:, 1:].amax(dim=1)

    space = InputSpace(shape=(1, 4, 4), values=LEVELS)
    result = sample_outputs(lead_of_zero, space, bins=15, budget=BUDGET, seed=setting.seed)
    sure = result.edges[:-1] >= 0
    share = float(torch.logsumexp(torch.as_tensor(result.log_density[sure]).nan_to_num(-torch.inf), 0).exp())
    words = (
        f"Every image of 4x4 pixels in {LEVELS} greys, enlarged to 8x8, could be shown to the wide MLP; "
        "nobody would call more than a handful of them a zero. The output here is how far the logit of the "
        f"zero is ahead of every other. About {share:.1%} of all images lie in bins where it is ahead. "
    )
    return Section(
        "What it believes about every image",
        words + result.summary(),
        "What does it believe about inputs nobody ever collected?",
        [result.plot()],
        result.to_frame(),
    )
