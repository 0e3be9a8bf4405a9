"""Chapter: a device sends only counts; what is the accuracy where it is used?"""

import torch

from assay.demo.setting import Setting
from assay.report import Section
from assay.reshaping.bins import Bins
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import accuracy
from assay.reshaping.subset import reshape

NEURONS = 10
EPSILON = 0.04
RARE, SHARE_LEFT = (1, 8), 0.2
"""The digits that are rare where the device is used, and the share of them that is left there."""


def device_counts(setting: Setting) -> Section:
    """The test set reshaped to a device's neuron histograms, and the accuracy measured on it."""
    network = setting.networks["deep MLP"]  # the one that errs often enough for a shift to show
    inputs, labels = (torch.cat(parts) for parts in zip(setting.validation, setting.test, strict=True))
    generator = torch.Generator().manual_seed(setting.seed)
    order = torch.randperm(len(labels), generator=generator)
    testing, operation = order[: len(order) // 2], order[len(order) // 2 :]
    common = ~torch.isin(labels[operation], torch.tensor(RARE))
    operation = operation[common | (torch.rand(len(operation), generator=generator) < SHARE_LEFT)]

    operational = network.observe((inputs[operation], labels[operation]))
    bins = Bins.from_bounds(network, low=0.0, high=1.0, width=2.0)
    histogram = Histogram.of(operational, Bins(width=2.0, last=bins.last, neurons=tuple(range(NEURONS))))
    result = reshape(
        network.observe((inputs[testing], labels[testing])), histogram, EPSILON, seed=setting.seed
    )
    estimate = result.estimate(accuracy, seed=setting.seed)
    words = (
        f"A device saw {histogram.total} digits, few of them {RARE[0]} or {RARE[1]}, and sent only how often "
        f"the values of {NEURONS} neurons of the deep MLP fell into each bin: no image, no label. "
        f"{result.summary()}\n\n{estimate.summary()} The true accuracy, which the device cannot know, is "
        f"{float(operational.correct.double().mean()):.4f}."
    )
    advice = (
        "If images may not leave the device, let it send counts (assay reshape). Report the label shift "
        "estimate with its interval, whether the counts fit it, and the gamma at which your requirement "
        "breaks. For many devices there is assay.estimate_fleet."
    )
    return Section(
        "What the counts of a device say",
        words,
        "What is its accuracy where raw data may not leave the device?",
        [result.plot(), estimate.plot()],
        estimate.to_frame(),
        advice=advice,
    )
