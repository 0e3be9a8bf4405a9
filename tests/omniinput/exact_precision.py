"""Distributions whose every input is known, for tests of what is computed from them."""

import numpy as np
import torch
from exact import all_inputs

from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.omniinput.sampling.space import InputSpace


def enumerated(output, sites, values, edges):
    """The exact output distribution: all inputs kept, no error."""
    inputs = all_inputs(sites, values)
    outputs = output(inputs).double().numpy()
    bins = np.searchsorted(edges, outputs, side="right") - 1
    inside = (bins >= 0) & (bins < len(edges) - 1)
    counts = np.bincount(bins[inside], minlength=len(edges) - 1)
    with np.errstate(divide="ignore"):
        logs = np.where(counts > 0, np.log(counts / len(inputs)), np.nan)
    kept = Samples(inputs[inside], outputs[inside], bins[inside], np.zeros(int(inside.sum())))
    return OutputDistribution(
        edges, logs, np.where(counts > 0, 0.0, np.nan), InputSpace((sites,), values), kept, logs[None], {}
    )


def without(dist, **changes):
    import dataclasses

    return dataclasses.replace(dist, **changes)


def exact_curve(outputs, right, edges, confident="low"):
    """Precision, log recall and log false positives at every edge, by counting inputs one by one."""
    rows = []
    thresholds = edges[1:] if confident == "low" else edges[:-1][::-1]
    for threshold in thresholds:
        inside = (outputs >= edges[0]) & (outputs < edges[-1])
        positive = inside & ((outputs < threshold) if confident == "low" else (outputs >= threshold))
        true = (positive * right).sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            rows.append((threshold, true / positive.sum(), np.log(true / len(outputs)),
                         np.log((positive.sum() - true) / len(outputs))))  # fmt: skip
    return np.array(rows).T


def weighted_sum(inputs):
    return (inputs.double() * torch.arange(1, inputs.shape[1] + 1)).sum(dim=1)
