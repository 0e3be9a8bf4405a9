"""What pytorch-ood, and the authors of CoRP, answered on a few rows; searches with and without faiss."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay import Trace
from assay.monitors.parts import nearest as search


@dataclass(frozen=True)
class PublishedScores:
    """Made by `python benchmarks/published.py --peer ../ood --corp ../ood-kernel-pca/CoP_CoRP_c10.py`, with
    pytorch-ood 0.4.0, in the units and with the sign of assay."""

    training: Trace
    unseen: Trace
    scores: dict[str, Tensor]
    corp: dict[str, Tensor]

    def match(self, name: str, monitor) -> bool:
        """Theirs are in single precision."""
        found = monitor.fit(self.training).score(self.unseen)
        return torch.allclose(found, self.scores[name], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="session")
def published() -> PublishedScores:
    answers = json.loads(Path(__file__).with_name("published_scores.json").read_text())

    def trace(name, labels=None):
        features, logits = (torch.tensor(answers[name][part]) for part in ("features", "logits"))
        return Trace(logits, {"penultimate": features, "half": features[:, ::2]}, labels)

    return PublishedScores(
        trace("training", torch.tensor(answers["labels"])),
        trace("unseen"),
        {name: torch.tensor(values, dtype=torch.float64) for name, values in answers["scores"].items()},
        {name: torch.tensor(values, dtype=torch.float64) for name, values in answers["corp"].items()},
    )


@pytest.fixture(params=["faiss", "own"])
def library(request, monkeypatch):
    """Who searches for neighbours."""
    if request.param == "faiss":
        pytest.importorskip("faiss")
    else:
        monkeypatch.setattr(search, "_faiss", lambda: None)
