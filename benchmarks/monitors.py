"""What monitors cost: fitting, scoring and bytes beside pytorch-ood; a guarded network beside a plain one.

    pip install --no-deps --target ../ood pytorch-ood
    python benchmarks/monitors.py --peer ../ood

50,000 rows fitted, 10,000 scored, d = 512, 10 classes, two threads. Both sides run in one process, turn by
turn; figures are medians, and ratios are medians of the ratios of neighbouring runs. Without --peer only
assay runs. pytorch-ood's ViM, SHE and NNGuide compute the logits from the features; a Trace has them already.
"""

import argparse
import importlib.abc
import importlib.machinery
import platform
import statistics
import sys
import time
import types
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import published
import torch
from networks import resnet20
from torch import Tensor, nn

import assay
from assay import Guard, Network, Trace, monitors
from assay.monitors.parts import nearest as search

FITTED, SCORED, SIZE, CLASSES = 50_000, 10_000, 512, 10
SECTIONS = ("features", "outputs", "published", "neighbours", "odin", "guard")


class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for torchvision, which pytorch-ood imports and none of the detectors here uses."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        ours = name.split(".")[0] == "torchvision"
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def peer_detectors(folder: Path | None) -> Any:
    if folder is None:
        return None
    sys.meta_path.insert(0, Stub())
    sys.path.append(str(folder))
    return importlib.import_module("pytorch_ood.detector")


class Data:
    """Gaussian classes, the linear head that tells them apart, and the Traces of both.

    Standard deviations fall from 1 to `decay`, as those of real features do.
    """

    def __init__(self, decay: float = 1.0, scored: int = SCORED) -> None:
        centres = torch.randn(CLASSES, SIZE, generator=torch.Generator().manual_seed(0))
        deviations = torch.logspace(0, torch.tensor(decay).log10(), SIZE)
        self.weight = centres / deviations / SIZE**0.5
        self.bias = -centres.square().sum(dim=1) / 2 / SIZE**0.5
        self.labels = torch.arange(FITTED) % CLASSES

        def rows(count: int, seed: int) -> Tensor:
            noise = torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed))
            return (centres[torch.arange(count) % CLASSES] + noise) * deviations

        self.features, self.unseen = rows(FITTED, seed=2), rows(scored, seed=3)
        self.training = Trace(self.head(self.features), {"penultimate": self.features}, self.labels)
        self.trace = Trace(self.head(self.unseen), {"penultimate": self.unseen})

    def head(self, features: Tensor) -> Tensor:
        return features @ self.weight.T + self.bias


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]


def seconds(run: Callable[[], Any]) -> float:
    start = clock()
    run()
    return clock() - start


def in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any] | None, repeats: int
) -> tuple[float, float, float]:
    """Median seconds of each, and the median of theirs / ours; both warmed up."""
    runs = [ours] + ([theirs] if theirs else [])
    for run in runs:
        run()
    times = [[seconds(run) for run in runs] for _ in range(repeats)]
    first = statistics.median(pair[0] for pair in times)
    if theirs is None:
        return first, float("nan"), float("nan")
    return (
        first,
        statistics.median(pair[1] for pair in times),
        statistics.median(pair[1] / pair[0] for pair in times),
    )


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(title: str, *cells: str) -> None:
    print(f"\n## {title}\n")
    row(*cells)
    row(*["---"] * len(cells))


def millis(value: float) -> str:
    return "-" if value != value else f"{1000 * value:.2f}"


def times(value: float) -> str:
    return "-" if value != value else f"{value:.2f}x"


def feature_monitors(peer: Any, data: Data) -> dict[str, tuple[monitors.Monitor, Any]]:
    return {
        "Mahalanobis": (monitors.Mahalanobis(), peer and peer.Mahalanobis(None)),
        "RelativeMahalanobis": (monitors.RelativeMahalanobis(), peer and peer.RMD(None)),
        "ViM": (monitors.ViM(), peer and peer.ViM(None, SIZE // 2, data.weight, data.bias)),
        "SHE": (monitors.SHE(), peer and peer.SHE(None, data.head)),
        "ReAct": (monitors.ReAct(), peer and peer_react(peer, data)),
        "ActivationBox": (monitors.ActivationBox(), None),
        "ActivationPattern": (monitors.ActivationPattern(), None),
        "GaussianInterval": (monitors.GaussianInterval(), None),
    }


def peer_react(peer: Any, data: Data) -> Any:
    react = peer.ReAct(None, data.head)
    return types.SimpleNamespace(
        fit_features=react.fit_feature_maps, predict_features=react.predict_feature_maps
    )


def compare_features(peer: Any, repeats: int) -> None:
    for name, decay in (("round clouds", 1.0), ("standard deviations from 1 to 0.001", 0.001)):
        data = Data(decay)
        header(
            f"Feature monitors, {name}",
            *(
                "monitor",
                "fit ms",
                "pytorch-ood ms",
                "faster",
                "score ms",
                "pytorch-ood ms",
                "faster",
                "bytes",
            ),
        )
        for title, (ours, theirs) in feature_monitors(peer, data).items():
            fit = in_turn(
                partial(ours.fit, data.training),
                partial(theirs.fit_features, data.features, data.labels) if theirs else None,
                max(3, repeats // 3),
            )
            score = in_turn(
                partial(ours.score, data.trace),
                partial(theirs.predict_features, data.unseen) if theirs else None,
                repeats,
            )
            row(title, *_cells(fit), *_cells(score), ours.nbytes)


def _cells(measured: tuple[float, float, float]) -> tuple[str, str, str]:
    return millis(measured[0]), millis(measured[1]), times(measured[2])


def compare_outputs(peer: Any, repeats: int) -> None:
    data = Data()
    pairs: Mapping[str, tuple[monitors.Monitor, Any]] = {
        "MaxSoftmax": (monitors.MaxSoftmax(), peer and peer.MaxSoftmax(None)),
        "MaxLogit": (monitors.MaxLogit(), peer and peer.MaxLogit(None)),
        "Entropy": (monitors.Entropy(), peer and peer.Entropy(None)),
        "Energy": (monitors.Energy(), peer and peer.EnergyBased(None)),
        "GEN": (monitors.GEN(), peer and peer.GEN(None)),
        "KLMatching": (monitors.KLMatching(), peer and peer.KLMatching(None)),
    }
    header("Output monitors", "monitor", "score ms", "pytorch-ood ms", "faster", "bytes")
    for title, (ours, theirs) in pairs.items():
        ours.fit(data.training)
        if theirs is not None and theirs.requires_fit:
            theirs.fit_logits(data.training.logits)
        score = in_turn(
            partial(ours.score, data.trace),
            partial(theirs.predict_logits, data.trace.logits) if theirs else None,
            20 * repeats,
        )
        row(title, *_cells(score), ours.nbytes)


def compare_published(peer: Any, repeats: int, script: Path | None) -> None:
    data = Data()
    head = nn.Linear(SIZE, CLASSES)
    with torch.no_grad():
        head.weight.copy_(data.weight)
        head.bias.copy_(data.bias - data.head(data.features.relu()).mean(dim=0))  # every class is predicted
    training = published.rectified(data.features, head)
    labels = torch.where(torch.arange(FITTED) % 7 == 0, data.labels, training.predictions)  # some are wrong
    training = Trace(training.logits, training.features, labels)
    unseen = published.rectified(data.unseen, head)
    header(
        "Monitors of newer papers, features after a ReLU",
        *("monitor", "largest difference", "fit ms", "pytorch-ood ms", "faster"),
        *("score ms", "pytorch-ood ms", "faster", "bytes"),
    )
    for title, pair in published.pairs(peer, head, FITTED).items():
        ours, rounds = pair.ours, 1 if pair.slow else repeats
        fitting = partial(pair.fit, training) if pair.fit else None
        fit = in_turn(partial(ours.fit, training), fitting, max(1, rounds // 3))
        scoring = partial(pair.predict, unseen) if pair.predict else None
        score = in_turn(partial(ours.score, unseen), scoring, rounds)
        if pair.refit:
            pair.refit(training)
        difference = apart(ours.score(unseen), scoring()) if scoring else "-"
        row(title, difference, *_cells(fit), *_cells(score), ours.nbytes)
    if script is not None:
        rows = training[:SCORED]
        answer = published.corp_by_its_authors(script, rows, unseen, published.MANY)
        ours = published.corp_with(answer["frequencies"], answer["phases"]).fit(rows).score(unseen)
        print(f"\nCoRP and its authors' script differ by at most {apart(ours, answer['scores'])}")


def apart(ours: Tensor, theirs: Tensor) -> str:
    """The largest difference, as a share of scores above 1."""
    return f"{((ours - theirs.double()).abs() / theirs.double().abs().clamp(min=1)).max():.0e}"


def compare_neighbours(peer: Any, repeats: int, scored: int) -> None:
    data = Data(scored=scored)
    pairs = {
        "KNN": (monitors.KNN(k=50), peer and peer.KNN(None, k=50)),
        "NNGuide": (monitors.NNGuide(), peer and peer.NNGuide(None, data.head)),
    }
    cells = ("monitor", "search", "score s", "pytorch-ood s", "faster", "bytes")
    header(f"Neighbours, exact, k = 50 and 10, {scored:,} rows scored", *cells)
    found = search._faiss
    for title, (ours, theirs) in pairs.items():
        ours.fit(data.training)
        if theirs:
            theirs.fit_features(data.features, data.labels)
        for library in ("faiss", "torch"):
            search._faiss = found if library == "faiss" else lambda: None
            first, second, ratio = in_turn(
                partial(ours.score, data.trace),
                partial(theirs.predict_features, data.unseen) if theirs else None,
                max(1, repeats // 5),
            )
            row(title, library, f"{first:.2f}", f"{second:.2f}", times(ratio), ours.nbytes)
        search._faiss = found


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 64, CLASSES)),
    ).eval()


def compare_odin(peer: Any, repeats: int) -> None:
    header("ODIN, 1,024 images of 3x32x32", "network", "plain ms", "score ms", "pytorch-ood ms", "faster")
    images = torch.rand(1024, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for title, module in (("small CNN", small_network()), ("ResNet-20", resnet20())):
        network = Network(module)
        trace = network.observe(images, keep_inputs=True)
        ours = monitors.ODIN(network).fit(trace)
        theirs = peer and peer.ODIN(module)

        plain = in_turn(partial(batched, module, images), None, repeats)[0]
        score = in_turn(
            partial(ours.score, trace), partial(batched, theirs.predict, images) if theirs else None, repeats
        )
        row(title, millis(plain), *_cells(score))


def batched(run: Callable[[Tensor], Any], images: Tensor) -> None:
    with torch.no_grad():  # detectors that need gradients turn them on themselves
        for part in torch.split(images, 256):
            run(part)


def guard_overhead(repeats: int, weights: Path | None) -> None:
    module = resnet20(weights if weights is not None and weights.exists() else None)
    network = Network(module)
    images = torch.rand(2048, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    training = network.observe(images)
    title = f"Guard over a plain forward pass, ResNet-20 ({'trained' if weights else 'random'} weights)"
    header(title, "monitor", "batch", "plain ms", "guarded ms", "ratio", "bytes")
    for cls in (monitors.MaxSoftmax, monitors.Energy, monitors.Mahalanobis, monitors.ActivationBox):
        monitor = cls().fit(training[:1024])
        guard = Guard(network, monitor).calibrate(training[1024:])
        for batch, rounds in ((256, 3 * repeats), (1, 60 * repeats)):
            inputs = images[:batch]
            first, second, ratio = in_turn(partial(batched, module, inputs), partial(guard, inputs), rounds)
            row(cls.__name__, batch, millis(first), millis(second), f"{ratio:.3f}", monitor.nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", type=Path, help="folder with pytorch-ood, installed by pip --no-deps --target"
    )
    parser.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scored", type=int, default=SCORED, help="rows whose neighbours are searched")
    parser.add_argument("--corp", type=Path, help="CoP_CoRP_c10.py of fanghenshaometeor/ood-kernel-pca")
    parser.add_argument("--weights", type=Path, help="trained ResNet-20 weights (resnet20-12fca82f.th)")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a machine that is not idle")
    arguments = parser.parse_args()
    if arguments.corp is not None and not arguments.corp.exists():
        parser.error(f"expected the authors' script at {arguments.corp}, got nothing there; fetch it first")
    global clock
    clock = CLOCKS[arguments.clock]
    torch.set_num_threads(arguments.threads)
    peer = peer_detectors(arguments.peer)
    print(
        f"assay {assay.__version__}, torch {torch.__version__}, {platform.machine()}, "
        f"{arguments.threads} thread(s), {arguments.clock} time, pytorch-ood {'beside' if peer else 'absent'}"
    )
    print(f"{FITTED:,} fitted, {SCORED:,} scored, d = {SIZE}, {CLASSES} classes")
    runs: dict[str, Callable[[], None]] = {
        "features": lambda: compare_features(peer, arguments.repeats),
        "outputs": lambda: compare_outputs(peer, arguments.repeats),
        "published": lambda: compare_published(peer, arguments.repeats, arguments.corp),
        "neighbours": lambda: compare_neighbours(peer, arguments.repeats, arguments.scored),
        "odin": lambda: compare_odin(peer, arguments.repeats),
        "guard": lambda: guard_overhead(arguments.repeats, arguments.weights),
    }
    for section in arguments.only:
        runs[section]()


if __name__ == "__main__":
    main()
