"""The networks of the volatility paper's Table I, trained here once and kept in a cache folder.

ANN and CNN are Table I's. The VGG-like network has Table I's shape (three blocks of convolution, batch
norm, ReLU and pooling, two fully connected layers, SGD with momentum, label smoothing 0.1) at half the widths
and a fifth of the epochs: what one core trains in half an hour, multiplying in half precision (bfloat16). So
few epochs call for one rise and fall of the learning rate in place of steps, for random crops and flips, and
for dropout before the last layer only: regularised like a network of 100 epochs it would stay unsure of
itself. After each epoch
the logits on the validation rows are kept, and within the first epoch after the batches of `EARLY`, where
accuracy is still low: they are the training trajectory of Figure 6. A run that was stopped continues from its
last epoch.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import assay
from assay import Network, Trace

AROUND = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("ASSAY_DATA", AROUND / "data"))
CACHE = AROUND / "cache"
BATCH = 128
EARLY = (*range(0, 20, 2), *range(20, 400, 20))
"""The batches of the first epoch before which the validation logits are kept."""
Pair = tuple[Tensor, Tensor]


def mnist(folder: Path, split: str) -> Pair:
    """Images (N, 1, 28, 28) in [0, 1] and labels; split is "train" or "test"."""
    images, labels = assay.data.read(folder, split=split)
    return images, labels


def cifar10(folder: Path, split: str) -> Pair:
    """Images (N, 3, 32, 32) in [0, 1] and labels; a row of a PNG is one image."""
    names = ["test_batch"] if split == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    rows = np.concatenate([np.asarray(Image.open(folder / f"{name}.png").convert("RGB")) for name in names])
    images = torch.from_numpy(rows.reshape(-1, 32, 32, 3)).permute(0, 3, 1, 2).contiguous() / 255
    return images, torch.tensor(json.loads((folder / f"{split}_lables.json").read_text()))


READERS = {"mnist": mnist, "cifar10": cifar10}


def read(dataset: str, data: Path, split: str) -> Pair:
    """Images and labels of a dataset below the folder `data`."""
    if not (data / dataset).is_dir():
        raise SystemExit(f"expected {dataset} at {data / dataset}, found none; pass --data or set ASSAY_DATA")
    return READERS[dataset](data / dataset, split)


class Normalised(nn.Module):
    """Mean and standard deviation inside the network, so that attacks work on pixels in [0, 1]."""

    def __init__(self, body: nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return self.body((images - self.mean) / self.deviation)


def ann() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def vgg(widths: tuple[int, ...] = (32, 64, 128)) -> nn.Module:
    layers: list[nn.Module] = []
    for before, width in zip((3, *widths), widths, strict=False):
        layers += [
            nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(2),
        ]  # fmt: skip
    layers += [nn.Flatten(), nn.Linear(16 * widths[-1], 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 10)]
    return Normalised(nn.Sequential(*layers), (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))


@dataclass(frozen=True)
class Recipe:
    """One column of Table I."""

    build: Callable[[], nn.Module]
    dataset: str
    validation: int
    epochs: int
    sgd: bool


RECIPES = {
    "ann": Recipe(ann, "mnist", 6_000, 30, sgd=False),
    "cnn": Recipe(cnn, "mnist", 6_000, 20, sgd=False),
    "vgg": Recipe(vgg, "cifar10", 5_000, 20, sgd=True),
}


def moved(images: Tensor, generator: torch.Generator, far: int = 4) -> Tensor:
    """Images shifted by up to `far` pixels each way, the border mirrored, and every other one flipped."""
    count, _, height, width = images.shape
    padded = nn.functional.pad(images, (far,) * 4, mode="reflect")
    top, left = torch.randint(0, 2 * far + 1, (2, count, 1), generator=generator)
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    flipped = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    every = torch.arange(count)[:, None, None]
    return padded.permute(0, 2, 3, 1)[every, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _optimiser(
    module: nn.Module, recipe: Recipe, batches: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    if not recipe.sgd:
        adam = torch.optim.Adam(module.parameters(), lr=0.001)
        return adam, torch.optim.lr_scheduler.ConstantLR(adam, factor=1.0)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    return sgd, torch.optim.lr_scheduler.OneCycleLR(sgd, 0.1, total_steps=recipe.epochs * batches)


def train(name: str, data: Path, cache: Path, epochs: int | None = None, seed: int = 0) -> None:
    """Train one recipe, at most `epochs` further epochs, keeping weights and validation logits."""
    recipe = RECIPES[name]
    images, labels = read(recipe.dataset, data, "train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held, kept = order[: recipe.validation], order[recipe.validation :]
    torch.manual_seed(seed)
    module = recipe.build().to(memory_format=torch.channels_last)
    optimiser, steps = _optimiser(module, recipe, batches=-(-len(kept) // BATCH))
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{name}.pt"
    trajectory: list[Tensor] = []
    early: list[Tensor] = []
    if path.exists():
        known = torch.load(path, weights_only=True)
        early = list(known["early"])
        module.load_state_dict(known["weights"])
        optimiser.load_state_dict(known["optimiser"])
        steps.load_state_dict(known["steps"])
        trajectory = list(known["trajectory"])
    last = min(recipe.epochs, len(trajectory) + (epochs or recipe.epochs))
    for epoch in range(len(trajectory), last):
        generator = torch.Generator().manual_seed(seed + epoch)
        batches = kept[torch.randperm(len(kept), generator=generator)].split(BATCH)
        for number, rows in enumerate(batches):
            if epoch == 0 and number in EARLY:
                early.append(_logits(module, images[held]))
            module.train()
            shown = moved(images[rows], generator) if recipe.sgd else images[rows]
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.sgd):
                logits = module(shown.contiguous(memory_format=torch.channels_last))
            nn.functional.cross_entropy(logits.float(), labels[rows], label_smoothing=0.1).backward()
            optimiser.step()
            steps.step()
        trajectory.append(_logits(module, images[held]))
        accuracy = (trajectory[-1].argmax(1) == labels[held]).float().mean().item()
        print(f"{name} epoch {epoch + 1}: validation accuracy {accuracy:.4f}", flush=True)
        torch.save(
            {
                "weights": module.state_dict(),
                "optimiser": optimiser.state_dict(),
                "steps": steps.state_dict(),
                "trajectory": trajectory,
                "early": early,
                "labels": labels[held],
                "held": held,
            },
            path,
        )


def _logits(module: nn.Module, images: Tensor) -> Tensor:
    module.eval()
    with torch.no_grad():
        return torch.cat([module(part) for part in images.split(500)])


def load(name: str, data: Path, cache: Path, rows: int) -> tuple[Network, Pair]:
    """A network and the first `rows` test rows of its dataset; ResNet-20 comes with its published weights."""
    if name == "resnet20":
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from networks import resnet20

        roots = (data, data.parent / "shared" / "data")
        weights = next((path for root in roots for path in root.glob("resnet-cifar10/resnet20-*.th")), None)
        if weights is None:
            raise SystemExit(
                f"expected ResNet-20's weights in {data / 'resnet-cifar10'}, found none; download them there"
            )
        images, labels = read("cifar10", data, "test")
        return observer(resnet20(weights)), (images[:rows], labels[:rows])
    recipe = RECIPES[name]
    module = recipe.build()
    module.load_state_dict(trained(name, cache)["weights"])
    images, labels = read(recipe.dataset, data, "test")
    return observer(module), (images[:rows], labels[:rows])


def trained(name: str, cache: Path) -> dict:
    """What `train` kept of one recipe."""
    path = cache / f"{name}.pt"
    if not path.exists():
        raise SystemExit(
            f"expected the trained {name} at {path}, found none; run volatility_networks.py {name}"
        )
    return torch.load(path, weights_only=True)


def observer(module: nn.Module) -> Network:
    """The network with its batch norms folded into the convolutions: the same function, twice as fast."""
    from torch.fx.experimental.optimization import fuse  # here: importing it warns of other deprecations

    return Network(fuse(module.eval()).to(memory_format=torch.channels_last), layers=())


def observed(name: str, key: str, cache: Path, make: Callable[[], Trace]) -> Trace:
    """What a network did under one condition, from the cache if it was seen before."""
    return assay.load(kept(name, key, cache, make), kind="Trace")


def kept(name: str, key: str, cache: Path, make: Callable[[], Trace]) -> Path:
    """The file in the cache with what a network did under one condition."""
    path = cache / f"{name}-{key}.safetensors"
    if not path.exists():
        assay.save(make(), path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(RECIPES), help="which of ann, cnn, vgg to train")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--epochs", type=int, default=None, help="the most further epochs in this run")
    arguments = parser.parse_args()
    for chosen in arguments.names:
        train(chosen, arguments.data, arguments.cache, arguments.epochs)
