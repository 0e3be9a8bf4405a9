"""What the networks of the monitorability study share: how they are trained and kept, and their groups."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from networks import kept
from subjects import DATA
from torch import Tensor, nn

import assay
from assay.mira import Tuning

CACHE = Path(os.environ.get("ASSAY_CACHE", DATA / "runs")) / "monitorability"
FEW = Tuning(temperatures=(1000.0,), magnitudes=(0.0, 0.0014, 0.005, 0.02), inputs=100)
"""Four of the 40 settings in the grid of MIRA's Appendix B.5, for networks with expensive passes."""

Rows = tuple[Any, Tensor]


@dataclass(frozen=True)
class Member:
    """A network of the study and its architecture, which networks that differ by seed alone share."""

    group: str
    name: str
    architecture: str
    network: Callable[[], assay.Network]


@dataclass(frozen=True)
class Group:
    """Data that networks share: rows to train and fit on, test rows of the same classes, unknown sets."""

    name: str
    modality: str
    train: Rows
    test: Rows
    unknown: dict[str, Any]
    tuning: Tuning = FEW


def fitted(
    module: nn.Module,
    rows: Rows,
    epochs: int,
    *,
    rate: float = 2e-3,
    batch: int = 128,
    smoothing: float = 0.0,
    decay: float = 0.0,
    moved: int = 0,
) -> None:
    """AdamW on one cycle, images moved by up to `moved` pixels."""
    inputs, labels = rows
    optimiser = torch.optim.AdamW(module.parameters(), rate, weight_decay=decay)
    steps = epochs * -(-len(labels) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    module.train()
    for _ in range(epochs):
        for part in torch.randperm(len(labels)).split(batch):
            rows_now = inputs[part]
            if moved:
                rows_now = rows_now.roll(torch.randint(-moved, moved + 1, (2,)).tolist(), dims=(2, 3))
            loss = nn.functional.cross_entropy(module(rows_now), labels[part], label_smoothing=smoothing)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()


def member(
    group: str, name: str, build: Callable[[], nn.Module], rows: Callable[[], Rows], epochs: int, **how: Any
) -> Member:
    def network() -> assay.Network:
        path = CACHE / group.replace(" ", "-") / f"{name.replace(' ', '-')}.safetensors"
        module = kept(path, build, lambda made: fitted(made, rows(), epochs, **how))
        return assay.Network(module, batch_size=250)

    return Member(group, name, f"{group} {name}", network)
