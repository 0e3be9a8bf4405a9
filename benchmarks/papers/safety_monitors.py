"""The safety-monitor benchmark paper's set-up on its own data: Tables II to VII and the rank diagram.

    python benchmarks/papers/safety_monitors.py prepare cifar10   # trains a LeNet, fits and saves the guards
    python benchmarks/papers/safety_monitors.py prepare gtsrb
    python benchmarks/papers/safety_monitors.py run cifar10       # its 41 scenarios; resumes
    python benchmarks/papers/safety_monitors.py run gtsrb
    python benchmarks/papers/safety_monitors.py tables            # beside the paper's

Data: GTSRB in --shared (gtsrb/gtsrb32.npz), CIFAR-10 in --data (cifar10/*.png, brought by get.sh); both
default to the folders beside the repository, or to $ASSAY_DATA. Everything it makes goes to --work.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn

import assay
from assay import monitors

ROOT = Path(__file__).resolve().parents[3]
DATASETS = {"gtsrb": 43, "cifar10": 10}
EPOCHS = {"gtsrb": 20, "cifar10": 12}
# The paper's choices: ODIN's magnitude, and the clusters and enlargement of OOB (Section IV.C, D).
MAGNITUDE = {"gtsrb": 0.0025, "cifar10": 0.0014}
BOXES = {"gtsrb": (3, 0.1), "cifar10": (5, 0.35)}
PAPER_GUARDS = ("ALOOC", "OOB", "ODIN")

# (variation, guard) -> MCC, FPR, FNR, Pr, Re, F1 as printed: rates of the class in distribution.
PAPER_TABLES = {
    ("cifar10", "cifar10-gtsrb"): {
        "ALOOC": (0.02, 0.63, 0.34, 0.18, 0.66, 0.47),
        "OOB": (0.11, 0.72, 0.16, 0.20, 0.84, 0.41),
        "ODIN": (0.23, 0.61, 0.10, 0.24, 0.90, 0.52),
    },
    ("gtsrb", "gtsrb-cifar10"): {
        "ALOOC": (0.05, 0.56, 0.37, 0.81, 0.63, 0.63),
        "OOB": (0.15, 0.79, 0.09, 0.82, 0.91, 0.74),
        "ODIN": (0.07, 1.00, 0.02, 0.17, 0.98, 0.06),
    },
    ("cifar10", "fgsm"): {
        "ALOOC": (-0.23, 0.89, 0.29, 0.28, 0.71, 0.25),
        "OOB": (-0.13, 0.92, 0.16, 0.31, 0.84, 0.24),
        "ODIN": (0.06, 0.14, 0.81, 0.37, 0.19, 0.62),
    },
    ("gtsrb", "fgsm"): {
        "ALOOC": (0.19, 0.22, 0.59, 0.44, 0.41, 0.66),
        "OOB": (-0.01, 1.00, 0.00, 0.31, 1.00, 0.14),
        "ODIN": (0.11, 0.92, 0.02, 0.34, 0.98, 0.26),
    },
    ("cifar10", "rotated"): {
        "ALOOC": (0.00, 0.00, 0.29, 1.00, 0.71, 0.83),
        "OOB": (0.02, 1.00, 0.00, 0.14, 1.00, 0.04),
        "ODIN": (-0.10, 0.32, 0.81, 0.09, 0.19, 0.66),
    },
    ("cifar10", "snow (5)"): {
        "ALOOC": (-0.01, 0.42, 0.59, 0.14, 0.41, 0.62),
        "OOB": (0.00, 1.00, 0.00, 0.14, 1.00, 0.04),
        "ODIN": (0.14, 0.08, 0.81, 0.29, 0.19, 0.80),
    },
    ("cifar10", "fog (5)"): {
        "ALOOC": (0.47, 0.03, 0.59, 0.68, 0.41, 0.88),
        "OOB": (0.00, 1.00, 0.00, 0.14, 1.00, 0.04),
        "ODIN": (-0.01, 0.21, 0.81, 0.13, 0.19, 0.73),
    },
    ("gtsrb", "rotated"): {
        "ALOOC": (0.00, 0.00, 0.55, 1.00, 0.45, 0.62),
        "OOB": (0.09, 0.75, 0.16, 0.21, 0.84, 0.38),
        "ODIN": (-0.12, 1.00, 0.02, 0.19, 0.98, 0.06),
    },
    ("gtsrb", "snow (5)"): {
        "ALOOC": (0.81, 0.00, 0.29, 1.00, 0.71, 0.94),
        "OOB": (0.01, 0.83, 0.16, 0.20, 0.84, 0.29),
        "ODIN": (0.16, 0.85, 0.02, 0.22, 0.98, 0.28),
    },
    ("gtsrb", "fog (5)"): {
        "ALOOC": (-0.28, 0.93, 0.29, 0.16, 0.71, 0.15),
        "OOB": (0.00, 0.84, 0.16, 0.20, 0.84, 0.28),
        "ODIN": (0.00, 0.98, 0.02, 0.20, 0.98, 0.10),
    },
}
PAPER_V = {"gtsrb": (0.96, 0.51, 0.64, 0.50), "cifar10": (0.74, 0.53, 0.61, 0.64)}
PAPER_COST = {"ALOOC": (0.0070, 0.2217, 98.9), "OOB": (0.0021, 0.0529, 6.4), "ODIN": (0.0007, 0.0246, 1.5)}


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


def network_of(name: str, options: argparse.Namespace) -> assay.Network:
    module = lenet(DATASETS[name])
    module.load_state_dict(torch.load(options.work / f"{name}.pt", weights_only=True))
    return assay.Network(module, batch_size=500)


def prepare(name: str, options: argparse.Namespace) -> None:
    """Train, fit every monitor on nine tenths of the training data, calibrate on the last."""
    options.work.mkdir(parents=True, exist_ok=True)
    inputs, labels = images_of(name, "train", options)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[: options.images]
    held, learned = order[: len(order) // 10], order[len(order) // 10 :]
    start = time.perf_counter()
    if not (options.work / f"{name}.pt").exists():
        module = trained(name, inputs[learned], labels[learned])
        torch.save(module.state_dict(), options.work / f"{name}.pt")
        print(f"{name}: trained in {time.perf_counter() - start:.0f} s", flush=True)
    network = network_of(name, options)
    train = network.observe((inputs[learned], labels[learned]), keep_inputs=True)
    validation = network.observe((inputs[held], labels[held]), keep_inputs=True)
    print(f"{name}: accuracy on held-out training data {validation.correct.double().mean():.3f}", flush=True)
    clusters, gamma = BOXES[name]
    chosen: dict[str, monitors.Monitor] = {
        "ALOOC": monitors.Reconstruction(per_class=True, epochs=options.epochs, limit=1000),
        "OOB": monitors.ActivationBox(clusters=clusters, projection="isomap", gamma=gamma),
        "ODIN": monitors.ODIN(network, temperature=1000.0, magnitude=MAGNITUDE[name]),
        "MaxSoftmax": monitors.MaxSoftmax(),
        "Energy": monitors.Energy(),
        "Mahalanobis": monitors.Mahalanobis(),
        "KNN": monitors.KNN(),
        "ViM": monitors.ViM(),
        "ReAct": monitors.ReAct(),
        "GaussianInterval": monitors.GaussianInterval(),
        "Box": monitors.ActivationBox(clusters=clusters, gamma=gamma),
    }
    for label, monitor in chosen.items():
        if (options.work / f"{name} {label} 5%").exists():
            continue
        start = time.perf_counter()
        monitor.fit(train)
        assay.save(assay.Guard(network, monitor).calibrate(validation), options.work / f"{name} {label} 5%")
        if label in PAPER_GUARDS:
            threshold = _paper_threshold(monitor, train)
            assay.save(assay.Guard(network, monitor, threshold), options.work / f"{name} {label}")
        print(f"{name}: {label} fitted in {time.perf_counter() - start:.0f} s", flush=True)


def _paper_threshold(monitor: monitors.Monitor, train: assay.Trace) -> object:
    """Table I: the average loss per class, outside every box, the lowest confidence seen in training."""
    if isinstance(monitor, monitors.Reconstruction):
        return monitor.paper_thresholds_
    if isinstance(monitor, monitors.ActivationBox):
        return 0.0
    return float(max(monitor.score(train[rows : rows + 2000]).max() for rows in range(0, len(train), 2000)))


def run(name: str, options: argparse.Namespace) -> None:
    """All scenarios of one dataset, for the paper's guards and for those calibrated to 5 % false alarms."""
    network = network_of(name, options)
    inputs, labels = images_of(name, "test", options)
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))[: options.rows]
    other = "cifar10" if name == "gtsrb" else "gtsrb"
    unknown = images_of(other, "test", options)[0][: options.rows]
    scenarios = assay.build_scenarios(
        inputs[rows], labels[rows], network=network, novelty={f"{name}-{other}": unknown}
    )
    guards = {
        path.name.removeprefix(f"{name} "): assay.load(path, network=network)
        for path in sorted(options.work.glob(f"{name} *"))
    }
    start, parts = time.perf_counter(), []
    for scenario in scenarios:
        assert len(scenario.inputs)  # made here, so that making and judging are timed apart
        made = time.perf_counter() - start
        result = assay.run_benchmark(guards, [scenario], checkpoint=options.work / f"cells-{name}")
        parts.append(result.table)
        spent = time.perf_counter() - start
        print(f"{name}: {scenario.name}: {made:.1f} s made, {spent - made:.1f} s judged", flush=True)
        start = time.perf_counter()
    assay.save(assay.BenchmarkResult(pd.concat(parts, ignore_index=True)), options.work / f"result-{name}")


def tables(options: argparse.Namespace) -> None:
    results = {name: assay.load(options.work / f"result-{name}") for name in DATASETS}
    for (name, variation), guards in PAPER_TABLES.items():
        table = results[name].table.set_index(["scenario", "guard"])
        found = variation if "(" in variation or variation.count("-") else f"{variation} (5)"
        for guard, printed in guards.items():
            row = table.loc[(found, guard)]
            theirs = _of_faults(*printed)
            names = ("mcc", "fpr", "fnr", "precision", "recall", "weighted_f1")
            ours = " | ".join(f"{row[f'specific_{name}']:.2f}{theirs.get(name, '')}" for name in names)
            print(f"| {name} | {found} | {guard} | {ours} | {row['specific_auroc']:.2f} |")
    for name, printed in PAPER_V.items():
        facts = results[name].by_guard().set_index("guard").loc[list(PAPER_GUARDS)]
        alone = facts["clean_model_mcc"].iloc[0]
        print(f"| {name} | ML alone | {alone:.2f} ({printed[0]:.2f}) | |")
        for guard, before in zip(PAPER_GUARDS, printed[1:], strict=True):
            row = facts.loc[guard]
            change = row["clean_system_change"]
            print(f"| {name} | ML + {guard} | {row['clean_system_mcc']:.2f} ({before:.2f}) | {change:+.0%} |")
    for guard, (model, monitor, size) in PAPER_COST.items():
        row = results["gtsrb"].by_guard().set_index("guard").loc[guard]
        print(
            f"| {guard} | {row['model_seconds']:.6f} ({model}) | {row['monitor_seconds']:.6f} ({monitor}) | "
            f"{row['model_bytes'] / 1e6:.2f} | {row['monitor_bytes'] / 1e6:.2f} ({size}) |"
        )
    _ranks(results, options)


def _of_faults(
    mcc: float, fpr: float, fnr: float, precision: float, recall: float, f1: float
) -> dict[str, str]:
    """What the paper prints, as rates of faults, in brackets; its precision is that of the other class."""
    turned = {"mcc": mcc, "fpr": fnr, "fnr": fpr, "recall": 1 - fpr, "weighted_f1": f1}
    return {name: f" ({value:.2f})" for name, value in turned.items()}


def _ranks(results: dict[str, assay.BenchmarkResult], options: argparse.Namespace) -> None:
    both = pd.concat(
        [
            result.table.assign(scenario=name + " " + result.table["scenario"])
            for name, result in results.items()
        ],
        ignore_index=True,
    )
    at_five = both[both["guard"].str.endswith("5%")]
    for title, part in (("paper", both[both["guard"].isin(PAPER_GUARDS)]), ("at 5 %", at_five)):
        result = assay.BenchmarkResult(part)
        ranked = result.ranking()
        if options.figures:
            name = "monitor-ranks-paper" if title == "paper" else "monitor-ranks"
            figure = ranked.plot()
            figure.savefig(options.figures / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        print(f"\n{title}: Friedman p = {ranked.p_value:.3g}, CD = {ranked.critical_difference:.2f}")
        print(ranked.to_frame().to_string(index=False))
        print(result.by_category().round(2).to_string(index=False))
        print(result.summary())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["prepare", "run", "tables"])
    parser.add_argument("dataset", nargs="?", choices=list(DATASETS))
    home = Path(os.environ["ASSAY_DATA"]) if "ASSAY_DATA" in os.environ else None
    parser.add_argument("--shared", type=Path, default=home or ROOT / "shared/data")
    parser.add_argument("--data", type=Path, default=home or ROOT / "data")
    parser.add_argument("--work", type=Path, default=Path("safety-monitors"))
    parser.add_argument("--images", type=int, help="training images used, for a quick try (default: all)")
    parser.add_argument("--rows", type=int, default=2000, help="test images per dataset")
    parser.add_argument("--epochs", type=int, default=10, help="of every ALOCC network (the paper: 200)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--figures", type=Path, help="where `tables` draws the rank diagrams")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.stage != "tables" and options.dataset is None:
        parser.error("prepare and run need a dataset")
    try:
        if options.stage == "tables":
            tables(options)
        else:
            {"prepare": prepare, "run": run}[options.stage](options.dataset, options)
    except FileNotFoundError as error:
        sys.exit(f"expected a file at {error.filename}, found none; pass --shared and --data, or prepare")
    except assay.errors.StorageError as error:
        sys.exit(f"{error}; run both datasets first")


if __name__ == "__main__":
    main()
