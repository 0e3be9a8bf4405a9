"""The networks of the monitorability study, in groups that share data; trained here once and cached.

Networks of one group know the same classes and are tried on the same unknown sets. What the score is made of
was decided on DEVELOPMENT; every other group was measured once, after it was frozen.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monitorability_texts import text_group, text_networks, tf_idf_group
from monitorability_training import CACHE, Group, Member, Rows, fitted, member
from networks import kept, lenet, mlp, resnet20, resnet32
from papers.mira_networks import TABULAR, custom_cnn, strided_cnn
from subjects import SHARED, expected, images
from torch import Tensor, nn

import assay
from assay.faults import matched
from assay.mira import Tuning

DEVELOPMENT = ("mnist", "sensorless 0", "sensorless 1")
SEEDS = range(6)
"""Splits and weights of the tabular networks: the groups "sensorless 0" to "sensorless 5"."""

FITTED, TESTED, UNKNOWN = 2000, 1000, 400
"""Training rows that monitors are fitted on, test rows, and rows of each unknown set."""


def members() -> Iterator[Member]:
    """Every network of the study, development first."""
    yield from _grey("mnist")
    for seed in SEEDS:
        yield from _sensorless_networks(seed)
    yield from _grey("fashion")
    yield from _digits_networks()
    yield from _cifar_networks()
    yield from _gtsrb_networks()
    yield from text_networks()


@cache
def group(name: str) -> Group:
    if name.startswith("sensorless"):
        return _sensorless(int(name.split()[1]))
    return {
        "mnist": partial(_grey_data, "mnist"),
        "fashion": partial(_grey_data, "fashion"),
        "digits": _digits,
        "cifar10": _cifar,
        "gtsrb": _gtsrb,
        "text": text_group,
        "tf-idf": tf_idf_group,
    }[name]()


# MNIST and Fashion-MNIST: eight classes are known, two are not


def small_cnn(narrow: int, wide: int, hidden: int, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, narrow, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(wide * 49, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 8)),
    )


def thinned_mlp(dropout: float) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for size in (784, 128):
        layers += [nn.Linear(size, 128), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(128, 8))


def _grey(dataset: str) -> Iterator[Member]:
    plans: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
        "MLP 16": (lambda: mlp(784, 16, 1, 8), 5, {}),
        "MLP 128": (lambda: mlp(784, 128, 1, 8), 5, {}),
        "MLP 512": (lambda: mlp(784, 512, 1, 8), 5, {}),
        "MLP 64-64": (lambda: mlp(784, 64, 2, 8), 5, {}),
        "MLP 256-256": (lambda: mlp(784, 256, 2, 8), 5, {}),
        "MLP 64 x 4": (lambda: mlp(784, 64, 4, 8), 5, {}),
        "MLP 32 x 6": (lambda: mlp(784, 32, 6, 8), 5, {}),
        "MLP dropout": (lambda: thinned_mlp(0.5), 5, {}),
        "MLP smoothed labels": (lambda: mlp(784, 128, 2, 8), 5, {"smoothing": 0.1}),
        "MLP weight decay": (lambda: mlp(784, 128, 2, 8), 5, {"decay": 1.0}),
        "MLP one epoch": (lambda: mlp(784, 128, 2, 8), 1, {}),
        "MLP twenty epochs": (lambda: mlp(784, 128, 2, 8), 20, {}),
        "CNN 8-16": (lambda: small_cnn(8, 16, 64), 3, {}),
        "CNN 16-32": (lambda: small_cnn(16, 32, 128), 3, {}),
        "CNN dropout": (lambda: small_cnn(8, 16, 64, 0.5), 3, {}),
        "CNN one epoch": (lambda: small_cnn(8, 16, 64), 1, {}),
        "CNN smoothed labels": (lambda: small_cnn(8, 16, 64), 3, {"smoothing": 0.1}),
    }
    for name, (build, epochs, how) in plans.items():
        yield member(dataset, name, build, lambda: _grey_rows(dataset), epochs, **how)


@cache
def _grey_rows(dataset: str) -> Rows:
    return _of_classes(images(dataset, "train"), range(8), 20_000)


def _grey_data(dataset: str) -> Group:
    tested = images(dataset, "test")
    like = tested[0]
    other = {"mnist": "fashion", "fashion": "mnist"}[dataset]
    unknown = {
        "class 8": _of_classes(tested, [8], UNKNOWN)[0],
        "class 9": _of_classes(tested, [9], UNKNOWN)[0],
        other: images(other, "test")[0][:UNKNOWN],
        "cifar10": matched(images("cifar10", "test")[0][:UNKNOWN], like),
        "gtsrb": matched(_drawn(images("gtsrb", "test")[0], UNKNOWN), like),
    }
    train = tuple(part[:FITTED] for part in _grey_rows(dataset))
    return Group(dataset, "image", train, _of_classes(tested, range(8), TESTED), unknown)


def _of_classes(rows: Rows, classes: Any, count: int) -> Rows:
    """At most so many rows of these classes, numbered from 0."""
    inputs, labels = rows
    known = torch.tensor(list(classes))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    places = order[torch.isin(labels[order], known)][:count]
    return inputs[places], torch.searchsorted(known, labels[places])


def _drawn(inputs: Tensor, count: int) -> Tensor:
    return inputs[torch.randperm(len(inputs), generator=torch.Generator().manual_seed(1))[:count]]


# Tables


def _sensorless_networks(seed: int) -> Iterator[Member]:
    """MIRA's Appendix B.3: five architectures, a split and weights of their own for every seed."""
    for name, build in TABULAR.items():
        path = CACHE / "sensorless" / f"{name}-{seed}.safetensors"

        def network(path: Path = path, build: Any = build) -> assay.Network:
            rows = group(f"sensorless {seed}").train
            return assay.Network(
                kept(path, build, lambda made: fitted(made, rows, 60, rate=1e-3, batch=32), seed)
            )

        yield Member(f"sensorless {seed}", f"{name} {seed}", f"sensorless {name}", network)


def _sensorless(seed: int) -> Group:
    inputs = torch.from_numpy(np.load(expected(SHARED / "sensorless" / "X.npy"))).float()
    labels = torch.from_numpy(np.load(SHARED / "sensorless" / "y.npy")).long()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(inputs)))
    known = order[labels[order] < 5]
    train, test = known[:700], known[700:]
    inputs = (inputs - inputs[train].mean(0)) / inputs[train].std(0)
    unknown = {f"class {label}": inputs[labels == label] for label in range(5, 11)}
    return Group(
        f"sensorless {seed}",
        "tabular",
        (inputs[train], labels[train]),
        (inputs[test], labels[test]),
        unknown,
        Tuning(inputs=100),
    )


def _digits_networks() -> Iterator[Member]:
    """scikit-learn's digits as a table of 64 columns, seven classes known."""
    plans: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
        "MLP 16": (lambda: mlp(64, 16, 1, 7), 40, {}),
        "MLP 64": (lambda: mlp(64, 64, 1, 7), 40, {}),
        "MLP 256": (lambda: mlp(64, 256, 1, 7), 40, {}),
        "MLP 32 x 2": (lambda: mlp(64, 32, 2, 7), 40, {}),
        "MLP 64 x 3": (lambda: mlp(64, 64, 3, 7), 40, {}),
        "MLP 32 x 5": (lambda: mlp(64, 32, 5, 7), 40, {}),
        "MLP few epochs": (lambda: mlp(64, 64, 2, 7), 5, {}),
        "MLP smoothed labels": (lambda: mlp(64, 64, 2, 7), 40, {"smoothing": 0.1}),
        "MLP weight decay": (lambda: mlp(64, 64, 2, 7), 40, {"decay": 1.0}),
    }
    for name, (build, epochs, how) in plans.items():
        yield member("digits", name, build, lambda: group("digits").train, epochs, batch=32, **how)


def _digits() -> Group:
    from sklearn.datasets import load_breast_cancer, load_digits

    found = load_digits()
    inputs, labels = torch.from_numpy(found.data).float() / 16, torch.from_numpy(found.target).long()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(inputs)))
    known = order[labels[order] < 7]
    unknown = {f"class {label}": inputs[labels == label] for label in (7, 8, 9)}
    # Two tables of other things, brought to 64 columns in the range of a pixel.
    cells = torch.from_numpy(load_breast_cancer().data).float()
    cells = (cells - cells.amin(0)) / (cells.amax(0) - cells.amin(0))
    unknown["breast cancer"] = cells.repeat(1, 3)[:400, :64]
    drives = torch.from_numpy(np.load(expected(SHARED / "sensorless" / "X.npy"))).float()
    low, high = drives.quantile(0.01, dim=0), drives.quantile(0.99, dim=0)
    unknown["sensorless"] = ((drives - low) / (high - low)).clamp(0, 1).repeat(1, 2)[::6, :64]
    train, test = known[:800], known[800:]
    return Group(
        "digits",
        "tabular",
        (inputs[train], labels[train]),
        (inputs[test], labels[test]),
        unknown,
        Tuning(inputs=100),
    )


# Colour images


def _cifar_networks() -> Iterator[Member]:
    weights = SHARED / "resnet-cifar10"
    for name, build, file in (
        ("ResNet-20", resnet20, "resnet20-12fca82f.th"),
        ("ResNet-32", resnet32, "resnet32-d509ac18.th"),
    ):
        yield Member(
            "cifar10",
            name,
            f"cifar10 {name}",
            lambda build=build, file=file: assay.Network(build(expected(weights / file)), batch_size=250),
        )
    plans: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
        "MLP 512": (lambda: mlp(3072, 512, 2, 10), 6, {}),
        "LeNet": (lambda: lenet(10), 6, {"moved": 2}),
        "LeNet two epochs": (lambda: lenet(10), 2, {}),
        "LeNet smoothed labels": (lambda: lenet(10), 6, {"moved": 2, "smoothing": 0.1}),
        "CustomNet": (custom_cnn, 3, {"moved": 2}),
        "strided CNN": (lambda: strided_cnn(24, 48, 64, 96), 5, {"moved": 2}),
        "strided CNN weight decay": (lambda: strided_cnn(24, 48, 64, 96), 5, {"moved": 2, "decay": 1.0}),
        "narrow CNN": (lambda: strided_cnn(16, 24, 32), 5, {"moved": 2}),
    }
    for name, (build, epochs, how) in plans.items():
        yield member("cifar10", name, build, lambda: _cifar_rows(), epochs, **how)


@cache
def _cifar_rows() -> Rows:
    return _of_classes(images("cifar10", "train"), range(10), 20_000)


def _cifar() -> Group:
    like = images("cifar10", "test")[0]
    unknown = {
        "gtsrb": _drawn(images("gtsrb", "test")[0], UNKNOWN),
        "fashion": matched(images("fashion", "test")[0][:UNKNOWN], like),
        "mnist": matched(images("mnist", "test")[0][:UNKNOWN], like),
        "photographs": _photographs(),
    }
    train = tuple(part[:FITTED] for part in _cifar_rows())
    return Group(
        "cifar10", "image", train, _of_classes(images("cifar10", "test"), range(10), TESTED), unknown
    )


def _photographs() -> Tensor:
    """Pieces of 64 x 64 pixels of the two photographs that come with scikit-learn, at half their size."""
    from sklearn.datasets import load_sample_images

    pieces = []
    for photograph in load_sample_images().images:
        values = torch.from_numpy(photograph.copy()).permute(2, 0, 1).float()[None] / 255
        found = values.unfold(2, 64, 32).unfold(3, 64, 32)[0].permute(1, 2, 0, 3, 4).reshape(-1, 3, 64, 64)
        pieces.append(nn.functional.avg_pool2d(found, 2))
    return _drawn(torch.cat(pieces), UNKNOWN)


def _gtsrb_networks() -> Iterator[Member]:
    plans: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
        "LeNet": (lambda: lenet(33), 8, {"moved": 2}),
        "LeNet still": (lambda: lenet(33), 8, {}),
        "LeNet two epochs": (lambda: lenet(33), 2, {"moved": 2}),
        "LeNet smoothed labels": (lambda: lenet(33), 8, {"moved": 2, "smoothing": 0.1}),
        "LeNet weight decay": (lambda: lenet(33), 8, {"moved": 2, "decay": 1.0}),
        "strided CNN": (lambda: _headed(strided_cnn(16, 24, 32), 33), 8, {"moved": 2}),
        "MLP 256": (lambda: mlp(3072, 256, 2, 33), 8, {}),
        "MLP 64 x 4": (lambda: mlp(3072, 64, 4, 33), 8, {}),
    }
    for name, (build, epochs, how) in plans.items():
        yield member("gtsrb", name, build, lambda: _gtsrb_rows(), epochs, **how)


def _headed(module: nn.Module, classes: int) -> nn.Module:
    module[-1] = nn.Linear(module[-1].in_features, classes)  # type: ignore[index, operator]
    return module


@cache
def _gtsrb_rows() -> Rows:
    return _of_classes(images("gtsrb", "train"), range(33), 20_000)


def _gtsrb() -> Group:
    tested = images("gtsrb", "test")
    like = tested[0]
    unknown = {
        "other signs": _of_classes(tested, range(33, 43), UNKNOWN)[0],
        "cifar10": images("cifar10", "test")[0][:UNKNOWN],
        "mnist": matched(images("mnist", "test")[0][:UNKNOWN], like),
        "photographs": _photographs(),
    }
    train = tuple(part[:4000] for part in _gtsrb_rows())
    return Group("gtsrb", "image", train, _of_classes(tested, range(33), TESTED), unknown)
