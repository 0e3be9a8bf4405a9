"""Every monitor that pytorch-ood has, too, beside its detector: the same rows in, scores in like units out.

    pip install --no-deps --target ../ood pytorch-ood

`monitors.py --peer ../ood` measures and compares them on many rows; `published.py` writes down its answers on
a few.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from scipy import optimize, stats
from torch import Tensor, nn

from assay import Network, Trace, monitors

LAYERS = ("penultimate", "half")
PASSES = 20


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


@dataclass(frozen=True)
class Pair:
    """A monitor and the detector that should score alike; without pytorch-ood, the monitor alone."""

    ours: monitors.Monitor
    predict: Callable[[Trace], Tensor] | None = None
    """Their scores, in the units of ours."""
    fit: Callable[[Trace], Any] | None = None
    exact: monitors.Monitor | None = None
    """Ours without sampling of rows, to compare scores with, not times."""
    refit: Callable[[Trace], Any] | None = None
    """Their fit with its last digits, where they stop before, for the same purpose."""
    labels: bool = True
    """Whether ours is given labels."""
    slow: bool = False
    """Whether theirs takes seconds."""

    def training(self, trace: Trace) -> Trace:
        return trace if self.labels else Trace(trace.logits, trace.features)


def rectified(features: Tensor, head: nn.Linear, labels: Tensor | None = None) -> Trace:
    """As after a ReLU, which several monitors are made for."""
    return observed(features.relu(), head, labels)


def observed(features: Tensor, head: nn.Linear, labels: Tensor | None = None) -> Trace:
    """A Trace of two layers, the second with every other feature of the first."""
    with torch.no_grad():
        return Trace(head(features), {"penultimate": features, "half": features[:, ::2]}, labels)


def features(trace: Trace) -> Tensor:
    return trace.layer("penultimate")


def pairs(peer: Any, head: nn.Linear, rows: int) -> dict[str, Pair]:
    """Every monitor of a Trace with its detector; `rows` is how many both are fitted on."""
    own = alone()
    if peer is None:
        return {name: Pair(ours) for name, ours in own.items()}
    found = outputs(peer, own) | of_features(peer, own, head, rows) | shaped(peer, own, head)
    return {name: found[name] for name in own}


def alone() -> dict[str, monitors.Monitor]:
    return {
        "MaxSoftmax": monitors.MaxSoftmax(),
        "MaxLogit": monitors.MaxLogit(),
        "Entropy": monitors.Entropy(),
        "Energy": monitors.Energy(),
        "GEN": monitors.GEN(),
        "KLMatching": monitors.KLMatching(),
        "OpenMax": monitors.OpenMax(),
        "TemperatureScaled": monitors.TemperatureScaled(),
        "Mahalanobis": monitors.Mahalanobis(),
        "RelativeMahalanobis": monitors.RelativeMahalanobis(),
        "MultiLayerMahalanobis": monitors.MultiLayerMahalanobis(layers=LAYERS, weights=[1, 1]),
        "MultiLayerMahalanobis, relative": monitors.MultiLayerMahalanobis(
            layers=LAYERS, weights=[1, 1], relative=True
        ),
        "ViM": monitors.ViM(),
        "SHE": monitors.SHE(),
        "FDBD": monitors.FDBD(),
        "NCI": monitors.NCI(),
        "GradNorm": monitors.GradNorm(),
        "ReAct": monitors.ReAct(),
        "ASH-P": monitors.ASH(variant="P", percentile=60),
        "ASH-B": monitors.ASH(variant="B", percentile=65),
        "ASH-S": monitors.ASH(),
        "SCALE": monitors.SCALE(),
        "DICE": monitors.DICE(),
        "KNN": monitors.KNN(k=50),
        "NNGuide": monitors.NNGuide(k=10),
    }


def outputs(peer: Any, own: dict[str, monitors.Monitor]) -> dict[str, Pair]:
    def of_logits(name: str, detector: Any, units: Callable[[Tensor], Tensor] = Tensor.double) -> Pair:
        return Pair(own[name], lambda trace: units(detector.predict_logits(trace.logits)))

    matching, unknown, scaling = (
        peer.KLMatching(None),
        peer.OpenMax(None, 20, 10),
        peer.TemperatureScaling(None),
    )
    return {
        "MaxSoftmax": of_logits("MaxSoftmax", peer.MaxSoftmax(None), lambda scores: 1 + scores),
        "MaxLogit": of_logits("MaxLogit", peer.MaxLogit(None)),
        "Entropy": of_logits("Entropy", peer.Entropy(None)),
        "Energy": of_logits("Energy", peer.EnergyBased(None)),
        # They take the mean over classes.
        "GEN": Pair(
            own["GEN"], lambda trace: trace.logits.shape[1] * peer.GEN(None).predict_logits(trace.logits)
        ),
        "KLMatching": Pair(
            own["KLMatching"],
            lambda trace: matching.predict_logits(trace.logits),
            lambda trace: matching.fit_logits(trace.logits),
            labels=False,
        ),
        "OpenMax": Pair(
            own["OpenMax"],
            lambda trace: torch.logit(unknown.predict_logits(trace.logits)),
            partial(fit_right_rows, unknown),
            refit=partial(fit_to_the_last_digit, unknown),
            slow=True,
        ),
        "TemperatureScaled": Pair(
            own["TemperatureScaled"],
            lambda trace: 1 + scaling.predict_logits(trace.logits).detach(),
            lambda trace: scaling.fit_logits(trace.logits, trace.labels),
            exact=monitors.TemperatureScaled(limit=None),
            refit=partial(set_most_likely_temperature, scaling),
        ),
    }


def of_features(peer: Any, own: dict[str, monitors.Monitor], head: nn.Linear, rows: int) -> dict[str, Pair]:
    def pair(
        name: str,
        detector: Any,
        scale: float = 1.0,
        slow: bool = False,
        exact: monitors.Monitor | None = None,
    ) -> Pair:
        return Pair(
            own[name],
            lambda trace: scale * detector.predict_features(features(trace)).double(),
            lambda trace: detector.fit_features(features(trace), trace.labels),
            exact=exact,
            slow=slow,
        )

    weight, bias = head.weight.detach(), head.bias.detach()
    linear = partial(nn.functional.linear, weight=weight, bias=bias)
    gradient = peer.GradNorm(head, param_filter=lambda name: name == "weight")
    # They do not divide the covariance by the number of rows, and take half the squared distance.
    return {
        "Mahalanobis": pair("Mahalanobis", peer.Mahalanobis(None), 2 * rows),
        "RelativeMahalanobis": pair("RelativeMahalanobis", peer.RMD(None), rows),
        "MultiLayerMahalanobis": _layered(own, peer, rows),
        "MultiLayerMahalanobis, relative": _layered_relative(own, peer, rows),
        "ViM": pair(
            "ViM", peer.ViM(None, weight.shape[1] // 2, weight, bias), exact=monitors.ViM(limit=None)
        ),
        "SHE": pair("SHE", peer.SHE(None, linear)),
        "FDBD": pair("FDBD", peer.fDBD(None, head)),
        "NCI": pair("NCI", peer.NCI(None, head, 1e-4)),
        "GradNorm": Pair(own["GradNorm"], lambda trace: gradient.predict(features(trace)), slow=True),
        "DICE": pair("DICE", peer.DICE(None, weight, bias, 0.9)),
        "KNN": pair("KNN", peer.KNN(None, k=50), slow=True),
        "NNGuide": pair("NNGuide", peer.NNGuide(None, linear, k=10), slow=True),
    }


def _layered(own: dict[str, monitors.Monitor], peer: Any, rows: int) -> Pair:
    detector = peer.MultiMahalanobis([nn.Identity()] * len(LAYERS))
    return Pair(
        own["MultiLayerMahalanobis"],
        lambda trace: 2 * rows * in_batches(detector.predict_structured, trace),
        lambda trace: detector.fit_structured(list(trace.features.values()), trace.labels),
        slow=True,
    )


def _layered_relative(own: dict[str, monitors.Monitor], peer: Any, rows: int) -> Pair:
    """They have it for one layer; one detector for each, added up."""
    detectors = {layer: peer.RMD(None) for layer in LAYERS}
    return Pair(
        own["MultiLayerMahalanobis, relative"],
        lambda trace: (
            rows * sum(one.predict_features(trace.layer(layer)) for layer, one in detectors.items())
        ),
        lambda trace: [
            one.fit_features(trace.layer(layer), trace.labels) for layer, one in detectors.items()
        ],
    )


def shaped(peer: Any, own: dict[str, monitors.Monitor], head: nn.Linear) -> dict[str, Pair]:
    """Detectors that change feature maps (N, d, 1, 1) before the last layer."""
    weight, bias = head.weight.detach(), head.bias.detach()

    def logits(maps: Tensor) -> Tensor:
        return nn.functional.linear(maps.flatten(1), weight, bias)

    def maps(trace: Trace) -> Tensor:
        return features(trace)[:, :, None, None]

    found = {
        f"ASH-{kind}": peer.ASH(None, logits, f"ash-{kind.lower()}", share)
        for kind, share in (("P", 0.6), ("B", 0.65), ("S", 0.9))
    }
    found |= {"SCALE": peer.SCALE(None, logits, 0.85), "ReAct": peer.ReAct(None, logits)}

    def pair(name: str, detector: Any) -> Pair:
        return Pair(
            own[name],
            lambda trace: detector.predict_feature_maps(maps(trace)),
            (lambda trace: detector.fit_feature_maps(maps(trace), trace.labels)) if name == "ReAct" else None,
            exact=monitors.ReAct(limit=None) if name == "ReAct" else None,
        )

    return {name: pair(name, detector) for name, detector in found.items()}


def passes(peer: Any, module: nn.Module) -> dict[str, Pair]:
    """Monitors that run the network again, on a module whose part `features` feeds its last layer."""
    network = Network(module)
    own = {
        "ODIN": monitors.ODIN(network),
        "Mahalanobis, inputs moved": monitors.Mahalanobis(network=network, magnitude=0.002),
        f"MonteCarloDropout, {PASSES} passes": monitors.MonteCarloDropout(network, passes=PASSES),
    }
    if peer is None:
        return {name: Pair(ours) for name, ours in own.items()}
    odin, moved = peer.ODIN(module), peer.MahalanobisODIN(module.features, eps=0.002)
    dropout = peer.MCD(module, samples=PASSES, mode="mean")
    theirs: list[tuple[Callable[[Trace], Tensor], Callable[[Trace], Any] | None]] = [
        (lambda trace: 1 + by_batches(odin.predict, trace), None),
        (
            lambda trace: 2 * len(trace) * by_batches(moved.predict, trace).double(),
            lambda trace: moved.fit_features(features(trace), trace.labels),
        ),
        (lambda trace: by_batches(dropout.predict, trace), None),
    ]
    return {
        name: Pair(ours, predict, fit)
        for (name, ours), (predict, fit) in zip(own.items(), theirs, strict=True)
    }


def by_batches(run: Callable[[Tensor], Tensor], trace: Trace) -> Tensor:
    with torch.no_grad():  # detectors that need gradients turn them on themselves
        return torch.cat([run(part) for part in torch.split(trace.inputs, 256)])


def in_batches(predict: Callable[[list[Tensor]], Tensor], trace: Trace) -> Tensor:
    """Theirs forms a product of all rows with all rows, so in batches as a network would give them."""
    parts = zip(*(torch.split(rows, 256) for rows in trace.features.values()), strict=True)
    return torch.cat([predict(list(part)).double() for part in parts])


def fit_right_rows(detector: Any, trace: Trace) -> None:
    """They fit on all rows given, assay and the paper on those that are classified right."""
    detector.fit_logits(trace.logits[trace.correct], trace.labels[trace.correct])


def fit_to_the_last_digit(detector: Any, trace: Trace) -> None:
    """The most likely Weibull distribution. Theirs is fitted to distances plus 10,000, in single precision
    if the logits are, and stops at scipy's default tolerance, which moves scores by up to 0.03."""
    exact = partial(optimize.fmin, xtol=1e-7, ftol=1e-12, maxiter=10_000, maxfun=10_000, disp=False)
    with mock.patch.object(stats.exponweib, "fit", partial(stats.exponweib.fit, optimizer=exact)):
        fit_right_rows(detector, Trace(trace.logits.double(), labels=trace.labels))


def set_most_likely_temperature(detector: Any, trace: Trace) -> None:
    """Theirs takes 50 steps of L-BFGS, which may end far off, even at a negative temperature."""

    def cost(temperature: float) -> float:
        return float(nn.functional.cross_entropy(trace.logits.double() / temperature, trace.labels))

    detector.fit_logits(trace.logits, trace.labels)
    best = optimize.minimize_scalar(cost, bounds=(0.01, 100), method="bounded", options={"xatol": 1e-9}).x
    detector.t.data.fill_(best)
