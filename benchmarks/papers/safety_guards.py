"""The safety-monitor paper's three monitors, with its thresholds, and eleven calibrated to 5 % false alarms.

    python benchmarks/papers/safety_guards.py gtsrb --networks FOLDER --work FOLDER    # and cifar10

Fits every monitor on the images the LeNet learned from (lenets.py) and saves a guard for each threshold. What
is there is not fitted again. GTSRB's calibration is over whole tracks, which neither LeNet nor monitor has
seen; that of CIFAR-10, whose images stand alone, over rows.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from lenets import DATASETS, Split, add_data_arguments, network_of

import assay
from assay import monitors

# The paper's choices: ODIN's magnitude and threshold, the clusters and enlargement of OOB (Section IV.C, D).
MAGNITUDE = {"gtsrb": 0.0025, "cifar10": 0.0014}
PRINTED = {"gtsrb": 0.0237, "cifar10": 0.1007}
BOXES = {"gtsrb": (3, 0.1), "cifar10": (5, 0.35)}
PAPER_GUARDS = ("ALOOC", "OOB", "ODIN")
AT_PRINTED = "ODIN, printed threshold"
CALIBRATED = " 5%"


def chosen(name: str, network: assay.Network, epochs: int) -> dict[str, monitors.Monitor]:
    """The monitors, by the names of the tables."""
    clusters, gamma = BOXES[name]
    return {
        "OOB": monitors.ActivationBox(clusters=clusters, projection="isomap", gamma=gamma),
        "ODIN": monitors.ODIN(network, temperature=1000.0, magnitude=MAGNITUDE[name]),
        "MaxSoftmax": monitors.MaxSoftmax(),
        "Energy": monitors.Energy(),
        "Mahalanobis": monitors.Mahalanobis(),
        "KNN": monitors.KNN(),
        "ViM": monitors.ViM(),
        "ReAct": monitors.ReAct(),
        "GaussianInterval": monitors.GaussianInterval(),
        "Box, all neurons": monitors.ActivationBox(clusters=clusters, gamma=gamma),
        # Noise in the units of pixels, about a fifth of their spread.
        "ALOOC": monitors.Reconstruction(
            per_class=True, loss="cross-entropy", noise=0.05, epochs=epochs, limit=1000
        ),
    }


def thresholds(label: str, name: str, monitor: monitors.Monitor, train: assay.Trace) -> dict[str, object]:
    """Table I: the average loss per class, outside every box, the lowest confidence seen in training."""
    if label == "ALOOC":
        return {label: monitor.paper_thresholds_}
    if label == "OOB":
        return {label: 0.0}
    if label == "ODIN":
        blocks = [monitor.score(train[rows : rows + 2000]).max() for rows in range(0, len(train), 2000)]
        # A score is one minus the confidence.
        return {label: float(max(blocks)), AT_PRINTED: 1 - PRINTED[name]}
    return {}


def prepare(name: str, options: argparse.Namespace) -> None:
    network, split = network_of(name, options.networks), Split.of(name, options)
    train, validation = (
        network.observe((split.inputs[rows], split.labels[rows]), keep_inputs=True)
        for rows in (split.learned, split.held)
    )
    right = validation.correct.double().mean()
    print(f"{name}: accuracy {right:.3f} on {len(validation)} images held out", flush=True)
    groups = split.tracks[split.held] if name == "gtsrb" else None
    for label, monitor in chosen(name, network, options.epochs).items():
        path = options.work / f"{name} {label}{CALIBRATED}"
        if path.exists():
            continue
        start = time.perf_counter()
        monitor.fit(train)
        for title, threshold in thresholds(label, name, monitor, train).items():
            assay.save(assay.Guard(network, monitor, threshold), options.work / f"{name} {title}")
        assay.save(assay.Guard(network, monitor).calibrate(validation, 0.05, groups=groups), path)
        print(f"{name}: {label} fitted in {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", choices=list(DATASETS))
    parser.add_argument(
        "--networks", type=Path, default=Path("safety-monitors"), help="what lenets.py trained"
    )
    parser.add_argument("--work", type=Path, default=Path("safety-monitors"), help="where the guards go")
    parser.add_argument("--epochs", type=int, default=12, help="of every ALOCC network (the paper: 200)")
    add_data_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        prepare(options.dataset, options)
    except FileNotFoundError as error:
        sys.exit(
            f"expected a file at {error.filename}, found none; pass --shared and --data, or run lenets.py"
        )


if __name__ == "__main__":
    main()
