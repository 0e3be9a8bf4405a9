"""What others answer on a few rows, for tests to compare with.

    python benchmarks/published.py --peer ../ood --corp ../ood-kernel-pca/CoP_CoRP_c10.py \\
        --nusa ../OpenOOD/openood/postprocessors/nusa_postprocessor.py

writes the answers on 12 small rows of pytorch-ood 0.4.0, of its authors' script for CoRP
(fanghenshaometeor/ood-kernel-pca) and of OpenOOD with NuSA (felixsh/OpenOOD) to
tests/monitors/published_scores.json. `monitors.py` compares, and measures, on many rows.
"""

import argparse
import importlib.util
import json
import runpy
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from peer import features, pairs, peer_detectors, rectified
from torch import Tensor, nn

from assay import Trace, monitors

ANSWERS = Path(__file__).parent.parent / "tests" / "monitors" / "published_scores.json"
GAMMA, EXPLAINED = 2.0, 0.8
FREQUENCIES = 32


def corp_by_its_authors(script: Path, training: Trace, unseen: Trace, frequencies: int) -> dict[str, Tensor]:
    """Frequencies, phases and scores of CoP_CoRP_c10.py."""
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


def nusa_by_openood(script: Path, head: nn.Linear, unseen: Trace) -> Tensor:
    """Scores of nusa_postprocessor.py, with the sign of ours."""
    parent = types.ModuleType("openood.base_postprocessor")
    parent.BasePostprocessor = type(
        "BasePostprocessor", (), {"config": mock.Mock(), "__init__": lambda self, config: None}
    )
    spec = importlib.util.spec_from_file_location("openood.nusa_postprocessor", script)
    module = importlib.util.module_from_spec(spec)
    network = types.SimpleNamespace(
        get_fc=lambda: (head.weight.detach().numpy(), head.bias.detach().numpy()),
        forward=lambda data, return_feature: (data.logits, features(data)),
    )
    with (
        mock.patch.dict(sys.modules, {parent.__name__: parent}),
        mock.patch.object(Tensor, "cuda", lambda tensor: tensor),
        mock.patch("builtins.print"),
    ):
        spec.loader.exec_module(module)
        detector = module.NuSAPostprocessor(None)
        detector.setup(network, None, None)
        return -detector.postprocess(network, unseen)[1]


def write_answers(peer: Any, corp: Path, nusa: Path) -> None:
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
        answers["scores"][name] = pair.predict(unseen).tolist()
    answers["scores"]["NuSA"] = nusa_by_openood(nusa, head, unseen).tolist()
    by_authors = corp_by_its_authors(corp, training, unseen, FREQUENCIES)
    answers["corp"] = {name: values.tolist() for name, values in by_authors.items()}
    ANSWERS.write_text(json.dumps(answers) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, required=True, help="folder with pytorch-ood")
    parser.add_argument("--corp", type=Path, required=True, help="the authors' CoP_CoRP_c10.py")
    parser.add_argument("--nusa", type=Path, required=True, help="nusa_postprocessor.py for OpenOOD")
    arguments = parser.parse_args()
    for path in (arguments.peer / "pytorch_ood", arguments.corp, arguments.nusa):
        if not path.exists():
            parser.error(f"expected {path}, got nothing there; install or fetch it first")
    write_answers(peer_detectors(arguments.peer), arguments.corp, arguments.nusa)


if __name__ == "__main__":
    main()
