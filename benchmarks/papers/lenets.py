"""The safety-monitor paper's data and classifiers: LeNets for GTSRB and CIFAR-10.

    python benchmarks/papers/lenets.py gtsrb cifar10 --work FOLDER    # trains those that are not there

Data: GTSRB in --shared (gtsrb/gtsrb32.npz), CIFAR-10 in --data (cifar10/*.png, brought by get.sh).
"""

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import assay

ROOT = Path(__file__).resolve().parents[3]
DATASETS = {"gtsrb": 43, "cifar10": 10}
EPOCHS = {"gtsrb": 20, "cifar10": 12}
TRACK = {"gtsrb": 10, "cifar10": 1}
"""Images in a row that show one thing: every third of the 30 frames of a sign in GTSRB."""


@dataclass(frozen=True)
class Split:
    """Training rows of one dataset: those learned from, and a tenth of the tracks held out."""

    inputs: torch.Tensor
    labels: torch.Tensor
    tracks: torch.Tensor
    learned: torch.Tensor
    held: torch.Tensor

    @classmethod
    def of(cls, name: str, options: argparse.Namespace) -> "Split":
        inputs, labels = images_of(name, "train", options)
        tracks = torch.arange(len(labels)) // TRACK[name]
        order = torch.randperm(int(tracks.max()) + 1, generator=torch.Generator().manual_seed(0))
        order = order[: None if options.images is None else options.images // TRACK[name]]
        held, learned = order[: len(order) // 10], order[len(order) // 10 :]
        return cls(
            inputs, labels, tracks, *(torch.isin(tracks, part).nonzero()[:, 0] for part in (learned, held))
        )


def images_of(name: str, part: str, options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 3, 32, 32) in [0, 1] and labels."""
    if name == "gtsrb":
        arrays = np.load(options.shared / "gtsrb/gtsrb32.npz")
        pixels, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    else:
        folder = options.data / "cifar10"
        files = ["test_batch.png"] if part == "test" else [f"data_batch_{i}.png" for i in range(1, 6)]
        pixels = np.concatenate([np.asarray(Image.open(folder / f)).reshape(-1, 32, 32, 3) for f in files])
        labels = np.array(json.loads((folder / f"{part}_lables.json").read_text()))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(labels).long()


def lenet(classes: int) -> nn.Module:
    """About 120,000 parameters, 128 neurons in the last hidden layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, classes)),
    )


def trained(name: str, inputs: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    module = lenet(DATASETS[name])
    steps = EPOCHS[name] * -(-len(inputs) // 128)
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(EPOCHS[name]):
        for rows in torch.randperm(len(inputs), generator=generator).split(128):
            # Shifted by up to two pixels against overfitting; no flips, which change traffic signs.
            right, down = torch.randint(-2, 3, (2,), generator=generator).tolist()
            batch = inputs[rows].roll((down, right), dims=(2, 3))
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return module.eval()


def network_of(name: str, folder: Path) -> assay.Network:
    module = lenet(DATASETS[name])
    module.load_state_dict(torch.load(folder / f"{name}.pt", weights_only=True))
    return assay.Network(module, batch_size=500)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    home = Path(os.environ["ASSAY_DATA"]) if "ASSAY_DATA" in os.environ else None
    parser.add_argument("--shared", type=Path, default=home or ROOT / "shared/data")
    parser.add_argument("--data", type=Path, default=home or ROOT / "data")
    parser.add_argument("--images", type=int, help="training images used, for a quick try (default: all)")
    parser.add_argument("--threads", type=int, default=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+", choices=list(DATASETS))
    parser.add_argument("--work", type=Path, default=Path("safety-monitors"))
    add_data_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    for name in options.datasets:
        path = options.work / f"{name}.pt"
        if path.exists():
            continue
        split, start = Split.of(name, options), time.perf_counter()
        module = trained(name, split.inputs[split.learned], split.labels[split.learned])
        torch.save(module.state_dict(), path)
        print(f"{name}: trained in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
