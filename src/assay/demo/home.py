"""Chapter: a device sends nothing but counts; what is the accuracy where it works?"""

import torch

from assay.demo.setting import Setting
from assay.report import Section
from assay.reshaping.bins import Bins
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import accuracy
from assay.reshaping.subset import reshape

NEURONS = 10
EPSILON = 0.04
RARE, KEPT = (1, 8), 0.2
"""The digits that are rare where the device works, and the share of them that is left there."""


def home(setting: Setting) -> Section:
    """The test set reshaped to what the neurons of a device saw, and the accuracy measured on it."""
    network = setting.networks["deep MLP"]  # the one that errs often enough for a shift to show
    inputs, labels = (torch.cat(parts) for parts in zip(setting.validation, setting.test, strict=True))
    generator = torch.Generator().manual_seed(setting.seed)
    order = torch.randperm(len(labels), generator=generator)
    here, there = order[: len(order) // 2], order[len(order) // 2 :]
    common = ~torch.isin(labels[there], torch.tensor(RARE))
    there = there[common | (torch.rand(len(there), generator=generator) < KEPT)]

    out_there = network.observe((inputs[there], labels[there]))
    bins = Bins.from_bounds(network, low=0.0, high=1.0, width=2.0)
    histogram = Histogram.of(out_there, Bins(width=2.0, last=bins.last, neurons=tuple(range(NEURONS))))
    result = reshape(network.observe((inputs[here], labels[here])), histogram, EPSILON, seed=setting.seed)
    estimate = result.estimate(accuracy, seed=setting.seed)
    words = (
        f"A device met {histogram.total} digits, few of them {RARE[0]} or {RARE[1]}, and sent home how often "
        f"{NEURONS} neurons of the deep MLP fell into each bin: no image, no label. {result.summary()}\n\n"
        f"{estimate.summary()} The truth, which the counts do not hold, is "
        f"{float(out_there.correct.double().mean()):.4f}."
    )
    advice = (
        "Where images may not leave the device, let it send counts (assay reshape). Report the estimate with "
        "its interval; if the range of everything that fits is wide, send more neurons or narrower "
        "bins before a safety case rests on it."
    )
    return Section(
        "What the counts of a device say",
        words,
        "What is its accuracy where raw data may not leave the device?",
        [result.plot(), estimate.plot()],
        estimate.to_frame(),
        advice=advice,
    )
