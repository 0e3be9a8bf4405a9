"""Chapter: of all possible images, which does a network take for a zero?"""

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

GREYS = 3
"""Grey values of a pixel: black, grey, white."""

BINS = np.linspace(-30.0, 9.0, 14)
"""Nearly all outputs; values beyond are too rare for a demo."""

BUDGET = 240_000
SHOWN = 8


def everything(setting: Setting) -> Section:
    """The lead of the zero, over all images of 4x4 pixels in three greys, enlarged to 8x8."""
    network = setting.networks["wide MLP"]

    def lead_of_zero(images: Tensor) -> Tensor:
        enlarged = images.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        with torch.no_grad():
            logits = network(enlarged.float() / (GREYS - 1))
        return logits[:, 0] - logits[:, 1:].amax(dim=1)

    space = InputSpace(shape=(1, 4, 4), values=GREYS)
    result = sample_outputs(lead_of_zero, space, bins=BINS, budget=BUDGET, seed=setting.seed)
    sure = result.edges[:-1] >= 0
    share = float(torch.logsumexp(torch.as_tensor(result.log_density[sure]).nan_to_num(-torch.inf), 0).exp())
    words = (
        f"Every image of 4x4 pixels in {GREYS} greys, enlarged to 8x8, could be shown to the wide MLP; "
        "few of them look like a zero. The output here is how far the logit of the zero is ahead of all "
        f"others. About {share:.1%} of all images are in bins where it is ahead. "
    )
    judge = zero_judge(setting)
    curve = precision_recall(result, judge, confident="high", seed=setting.seed)
    judged = (
        "Is it right where it is confident? A judge in code, a stand-in for people, scores an image whose "
        "nearest real digit is a zero from 0 (as far away as random images) to 1 (as near as real zeros). "
    )
    advice = (
        "Look at the inputs it is most confident about. If most of them are wrong, its confidence means "
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
                [_most_confident(result, judge), curve.plot()],
                curve.to_frame(),
            )
        ],
        advice,
    )


def _most_confident(result: OutputDistribution, judge: Judge) -> "Figure":
    """Images of the bin where the zero is furthest ahead, with the judge's scores."""
    from matplotlib.figure import Figure

    images = result.samples(int(np.flatnonzero(result.visited)[-1]))[:SHOWN]
    figure = Figure(figsize=(7.5, 1.6), layout="constrained")
    for axes, image, score in zip(figure.subplots(1, SHOWN), images, judge(images), strict=False):
        axes.imshow(image[0].numpy(), cmap="gray_r", vmin=0, vmax=GREYS - 1)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"score {score:.2f}", fontsize=8)
    figure.suptitle("Images it most confidently takes for a zero, with the score of the judge", fontsize=10)
    return figure


def zero_judge(setting: Setting) -> Judge:
    """How near an image is to a real zero; 0 if some other digit is nearer."""
    (train, labels), (test, answers) = setting.train, setting.test
    small, zeros = _coarse(train), _coarse(test[answers == 0])
    generator = torch.Generator().manual_seed(setting.seed)
    noise = torch.randint(GREYS, (200, small.shape[1]), generator=generator) / (GREYS - 1)
    near, far = (torch.cdist(images, small[labels == 0]).amin(dim=1).median() for images in (zeros, noise))

    def judge(images: Tensor) -> Tensor:
        distance, nearest = torch.cdist(images.flatten(1).float() / (GREYS - 1), small).min(dim=1)
        return (labels[nearest] == 0) * ((far - distance) / (far - near)).clamp(0, 1)

    return judge


def _coarse(images: Tensor) -> Tensor:
    """Digits as this chapter's images are: 4x4 pixels, stretched to full contrast, in three greys."""
    small = torch.nn.functional.avg_pool2d(images, 2).flatten(1)
    bright = small / small.amax(dim=1, keepdim=True)
    return (bright * (GREYS - 1)).round() / (GREYS - 1)
