"""A guard whose monitor scores are whatever a test chooses."""

import torch
from torch import nn

from assay import Guard, Network, Trace
from assay.monitors import Monitor


class FirstLogit(Monitor):
    """Its score is the first logit, so that tests can choose scores."""

    def _score(self, trace):
        return trace.logits[:, 0]


def traced(scores):
    return Trace(torch.stack([scores, torch.zeros_like(scores)], dim=1), outputs="logits")


def fresh_guard():
    torch.manual_seed(0)
    return Guard(Network(nn.Linear(2, 2), layers=()), FirstLogit().fit(traced(torch.zeros(1))))
