"""Monitors of newer papers beside the detectors of others: the same rows in, scores in the same units out.

    python benchmarks/published.py --peer ../ood --corp ../ood-kernel-pca/CoP_CoRP_c10.py

writes the answers of pytorch-ood, and of the authors' script for CoRP, on 12 small rows to
tests/monitors/published_scores.json, with which the tests compare. `monitors.py --only published` compares,
and measures, on many rows.
"""

import argparse
import json
import runpy
import sys
import tempfile
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import optimize, stats
from torch import Tensor, nn

from assay import Trace, monitors

ANSWERS = Path(__file__).parent.parent / "tests" / "monitors" / "published_scores.json"
LAYERS = ("penultimate", "half")
GAMMA, EXPLAINED = 2.0, 0.8
FEW, MANY = 32, 1024
"""Frequencies of CoRP for the answers, and for measuring."""


@dataclass(frozen=True)
class Pair:
    """A monitor and the detector of another library that should score alike."""

    ours: monitors.Monitor
    predict: Callable[[Trace], Tensor] | None
    """Their scores, in the units of ours."""
    fit: Callable[[Trace], Any] | None = None
    refit: Callable[[Trace], Any] | None = None
    """Their fit with its last digits, where they stop before; used to compare scores, not times."""
    slow: bool = False
    """Whether theirs takes seconds."""


def rectified(features: Tensor, head: nn.Linear, labels: Tensor | None = None) -> Trace:
    """As after a ReLU, which several of these monitors are made for."""
    rows = features.relu()
    with torch.no_grad():
        return Trace(head(rows), {"penultimate": rows, "half": rows[:, ::2]}, labels)


def pairs(peer: Any, head: nn.Linear, rows: int) -> dict[str, Pair]:
    """Every monitor with its detector; `rows` is how many both are fitted on."""
    weight, bias = head.weight.detach(), head.bias.detach()

    def logits(maps: Tensor) -> Tensor:
        return maps.flatten(1) @ weight.T + bias

    def maps(trace: Trace) -> Tensor:
        return features(trace)[:, :, None, None]

    def shaped(detector: Any) -> Callable[[Trace], Tensor]:
        return lambda trace: detector.predict_feature_maps(maps(trace))

    def by_features(ours: monitors.Monitor, detector: Any) -> Pair:
        return Pair(
            ours,
            lambda trace: detector.predict_features(features(trace)),
            lambda trace: detector.fit_features(features(trace), trace.labels),
        )

    own = alone()
    if peer is None:
        return {name: Pair(ours, None) for name, ours in own.items()}
    gradient = peer.GradNorm(head, param_filter=lambda name: name == "weight")
    unknown = peer.OpenMax(None, tailsize=20, alpha=10)
    layered = peer.MultiMahalanobis([nn.Identity()] * len(LAYERS))
    found = {
        f"ASH-{kind}": Pair(own[f"ASH-{kind}"], shaped(peer.ASH(None, logits, f"ash-{kind.lower()}", share)))
        for kind, share in (("P", 0.6), ("B", 0.65), ("S", 0.9))
    }
    return found | {
        "SCALE": Pair(own["SCALE"], shaped(peer.SCALE(None, logits, 0.85))),
        "DICE": by_features(own["DICE"], peer.DICE(None, weight, bias, 0.9)),
        "GradNorm": Pair(own["GradNorm"], lambda trace: gradient.predict(features(trace)), slow=True),
        "OpenMax": Pair(
            own["OpenMax"],
            lambda trace: torch.logit(unknown.predict_logits(trace.logits)),
            partial(fit_right_rows, unknown),
            partial(fit_to_the_last_digit, unknown),
            slow=True,
        ),
        "FDBD": by_features(own["FDBD"], peer.fDBD(None, head)),
        "NCI": by_features(own["NCI"], peer.NCI(None, head, 1e-4)),
        "MultiLayerMahalanobis": Pair(
            own["MultiLayerMahalanobis"],
            # They take half the squared distance, and do not divide the covariance by the number of rows.
            lambda trace: 2 * rows * in_batches(layered.predict_structured, trace),
            lambda trace: layered.fit_structured(list(trace.features.values()), trace.labels),
            slow=True,
        ),
        "CoRP": Pair(own["CoRP"], None),
    }


def alone() -> dict[str, monitors.Monitor]:
    return {
        "ASH-P": monitors.ASH(variant="P", percentile=60),
        "ASH-B": monitors.ASH(variant="B", percentile=65),
        "ASH-S": monitors.ASH(),
        "SCALE": monitors.SCALE(),
        "DICE": monitors.DICE(),
        "GradNorm": monitors.GradNorm(),
        "OpenMax": monitors.OpenMax(),
        "FDBD": monitors.FDBD(),
        "NCI": monitors.NCI(),
        "MultiLayerMahalanobis": monitors.MultiLayerMahalanobis(layers=LAYERS, weights=[1, 1]),
        "CoRP": monitors.CoRP(frequencies=MANY, gamma=GAMMA, explained=EXPLAINED),
    }


def features(trace: Trace) -> Tensor:
    return trace.layer("penultimate")


def fit_right_rows(detector: Any, trace: Trace) -> None:
    """They fit on all rows given, assay and the paper on those that are classified right."""
    detector.fit_logits(trace.logits[trace.correct], trace.labels[trace.correct])


def fit_to_the_last_digit(detector: Any, trace: Trace) -> None:
    """The most likely Weibull distribution. Theirs is fitted to distances plus 10,000, in single precision
    if the logits are, and stops at scipy's default tolerance, which moves scores by up to 0.03."""
    exact = partial(optimize.fmin, xtol=1e-7, ftol=1e-12, maxiter=10_000, maxfun=10_000, disp=False)
    with mock.patch.object(stats.exponweib, "fit", partial(stats.exponweib.fit, optimizer=exact)):
        fit_right_rows(detector, Trace(trace.logits.double(), labels=trace.labels))


def in_batches(predict: Callable[[list[Tensor]], Tensor], trace: Trace) -> Tensor:
    """Theirs forms a product of all rows with all rows, so in batches as a network would give them."""
    parts = zip(*(torch.split(rows, 256) for rows in trace.features.values()), strict=True)
    return torch.cat([predict(list(part)).double() for part in parts])


def corp_by_its_authors(script: Path, training: Trace, unseen: Trace, frequencies: int) -> dict[str, Tensor]:
    """Frequencies, phases and scores of CoP_CoRP_c10.py of fanghenshaometeor/ood-kernel-pca."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "CIFAR10", "R18", "ce")
        cache.mkdir(parents=True)
        for name, trace in (("train_in", training), ("val_in", unseen), ("SVHN_out", unseen)):
            np.save(cache / f"{name}.npy", features(trace).numpy().T)
        tools = types.ModuleType("utils")  # the script's own imports torchvision
        tools.setup_seed, tools.Logger = np.random.seed, lambda filename, stream: stream
        measures = types.ModuleType("metrics")
        measures.cal_metric = measures.print_all_results = lambda *_: None
        options = ["--cache_dir", folder, "--logs_dir", folder, "--out_datasets", "SVHN", "--method", "CoRP"]
        options += ["--M", str(frequencies), "--gamma", str(GAMMA), "--exp_var_ratio", str(EXPLAINED)]
        with (
            mock.patch.dict(sys.modules, utils=tools, metrics=measures),
            mock.patch.object(sys, "argv", [str(script), *options]),
            mock.patch("builtins.print"),
        ):
            names = runpy.run_path(str(script))
    return {
        "frequencies": torch.from_numpy(names["w"].T),
        "phases": torch.from_numpy(names["u"]),
        "scores": -torch.from_numpy(names["scores_in"]),
    }


def corp_with(frequencies: Tensor, phases: Tensor) -> monitors.CoRP:
    """CoRP with the random numbers of another."""
    monitor = monitors.CoRP(frequencies=len(phases), gamma=GAMMA, explained=EXPLAINED)
    monitor._random_map = lambda: (frequencies.float().contiguous(), phases.float())
    return monitor


def write_answers(peer: Any, script: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(6, 3)
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 6, generator=generator))
        head.bias.copy_(2 - head.weight.sum(dim=1))  # every class is predicted about equally often
    training, unseen = (
        rectified(spread * torch.randn(rows, 6, generator=generator) + 1, head)
        for rows, spread in ((60, 1.0), (12, 2.0))
    )
    labels = training.predictions.clone()
    labels[::10] = (labels[::10] + 1) % 3
    training = Trace(training.logits, training.features, labels)
    answers: dict[str, Any] = {"labels": labels.tolist()}
    for name, trace in (("training", training), ("unseen", unseen)):
        answers[name] = {"features": features(trace).tolist(), "logits": trace.logits.tolist()}
    answers["scores"] = {}
    for name, pair in pairs(peer, head, len(training)).items():
        if fit := pair.refit or pair.fit:
            fit(training)
        if pair.predict:
            answers["scores"][name] = pair.predict(unseen).tolist()
    corp = corp_by_its_authors(script, training, unseen, FEW)
    answers["corp"] = {name: values.tolist() for name, values in corp.items()}
    ANSWERS.write_text(json.dumps(answers) + "\n")


def main() -> None:
    from monitors import peer_detectors

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, required=True, help="folder with pytorch-ood")
    parser.add_argument("--corp", type=Path, required=True, help="the authors' CoP_CoRP_c10.py")
    arguments = parser.parse_args()
    for path in (arguments.peer / "pytorch_ood", arguments.corp):
        if not path.exists():
            parser.error(f"expected {path}, got nothing there; install or fetch it first")
    write_answers(peer_detectors(arguments.peer), arguments.corp)


if __name__ == "__main__":
    main()
