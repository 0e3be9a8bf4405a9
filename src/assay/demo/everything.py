"""Chapter: of all images there could be, which does a network take for a zero?"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from assay.demo.setting import Setting
from assay.omniinput.annotation.scores import Judge
from assay.omniinput.precision.precision_recall import precision_recall
from assay.omniinput.sampling.distribution import OutputDistribution
from assay.omniinput.sampling.run import sample_outputs
from assay.omniinput.sampling.space import InputSpace
from assay.report import Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 3
"""Grey values of a pixel: black, grey, white."""

BINS = np.linspace(-30.0, 9.0, 14)
"""Nearly all there is; what lies beyond is too rare for a demo."""

BUDGET = 240_000
SHOWN = 8


def everything(setting: Setting) -> Section:
    """How far a zero is ahead, over all images of 4x4 pixels in three greys, enlarged to 8x8."""
    network = setting.networks["wide MLP"]

    def lead_of_zero(images: Tensor) -> Tensor:
        enlarged = images.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        with torch.no_grad():
            logits = network(enlarged.float() / (LEVELS - 1))
        return logits[:, 0] - logits[:, 1:].amax(dim=1)

    space = InputSpace(shape=(1, 4, 4), values=LEVELS)
    result = sample_outputs(lead_of_zero, space, bins=BINS, budget=BUDGET, seed=setting.seed)
    sure = result.edges[:-1] >= 0
    share = float(torch.logsumexp(torch.as_tensor(result.log_density[sure]).nan_to_num(-torch.inf), 0).exp())
    words = (
        f"Every image of 4x4 pixels in {LEVELS} greys, enlarged to 8x8, could be shown to the wide MLP; "
        "few of them look like a zero. The output here is how far the logit of the "
        f"zero is ahead of every other. About {share:.1%} of all images lie in bins where it is ahead. "
    )
    judge = zero_judge(setting)
    curve = precision_recall(result, judge, confident="high", seed=setting.seed)
    judged = (
        "Is it right where it is sure? A judge in code, a stand-in for people, gives an image that lies "
        "nearest to a real zero a score from 0, as far from it as random images are, to 1, as near as real "
        "ones are. "
    )
    advice = (
        "Look at the inputs it is surest about. Where most of them are wrong, its confidence says "
        "nothing outside the data it was trained on: put a guard on its inputs, or train it to reject such "
        "images. With people as judges: assay annotate."
    )
    return Section(
        "What it believes about every image",
        words + result.summary(),
        "What does it believe about inputs nobody ever collected?",
        [result.plot()],
        result.to_frame(),
        [
            Section(
                curve.title,
                judged + curve.summary(),
                "",
                [_surest(result, judge), curve.plot()],
                curve.to_frame(),
            )
        ],
        advice,
    )


def _surest(result: OutputDistribution, judge: Judge) -> "Figure":
    """Images of the bin where the zero is furthest ahead, with the judge's scores."""
    from matplotlib.figure import Figure

    images = result.samples(int(np.flatnonzero(result.visited)[-1]))[:SHOWN]
    figure = Figure(figsize=(7.5, 1.6), layout="constrained")
    for axes, image, score in zip(figure.subplots(1, SHOWN), images, judge(images), strict=False):
        axes.imshow(image[0].numpy(), cmap="gray_r", vmin=0, vmax=LEVELS - 1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"score {score:.2f}", fontsize=8)
    figure.suptitle("Images it is surest are a zero, and how near the judge finds them to one", fontsize=10)
    return figure


def zero_judge(setting: Setting) -> Judge:
    """How near an image is to a real zero; 0 if some other digit is nearer."""
    (known, labels), (unseen, answers) = setting.train, setting.test
    small, zeros = _coarse(known), _coarse(unseen[answers == 0])
    generator = torch.Generator().manual_seed(setting.seed)
    noise = torch.randint(LEVELS, (200, small.shape[1]), generator=generator) / (LEVELS - 1)
    near, far = (torch.cdist(images, small[labels == 0]).amin(dim=1).median() for images in (zeros, noise))

    def judge(images: Tensor) -> Tensor:
        distance, nearest = torch.cdist(images.flatten(1).float() / (LEVELS - 1), small).min(dim=1)
        return (labels[nearest] == 0) * ((far - distance) / (far - near)).clamp(0, 1)

    return judge


def _coarse(images: Tensor) -> Tensor:
    """Digits as this chapter's images are: 4x4 pixels, stretched to full contrast, in three greys."""
    small = torch.nn.functional.avg_pool2d(images, 2).flatten(1)
    bright = small / small.amax(dim=1, keepdim=True)
    return (bright * (LEVELS - 1)).round() / (LEVELS - 1)
