"""The safety-monitor paper's benchmark: 78 of its 79 scenarios, and what goes with them.

    python benchmarks/papers/safety_monitors.py run cifar10     # its 39 scenarios, also for Table I's boxes
    python benchmarks/papers/safety_monitors.py stream gtsrb    # Table VI: one image at a time

Before: lenets.py and safety_guards.py. After: safety_tables.py. Scenarios that were judged are not judged
again. BTSC cannot be had, so its novelty pair is missing.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch
from lenets import DATASETS, Split, add_data_arguments, images_of, network_of
from safety_guards import CALIBRATED, PAPER_GUARDS

import assay
from assay import monitors
from assay.benchmark.measures import multiclass_mcc
from assay.faults.filters import warped
from assay.faults.template import ImageFault

SHARE = {"gtsrb": 12_630 / 64_469, "cifar10": 10_000 / 70_000}
"""Of good inputs: the authors' test images in their benchmark datasets."""
ATTACKED_SHARE = 0.31
"""Of good inputs beside FGSM: what the authors' precision, FPR and FNR imply for both datasets."""
NOVELTY_SHARE = {"gtsrb": 12_630 / (12_630 + 60_000), "cifar10": 10_000 / (10_000 + 51_839)}
ANOMALIES = ("pixel_trap", "row_add_logic", "shifted_pixel")
OTHERS = (
    *("snow", "fog", "brightness", "contrast", "saturate"),
    *("spatter", "gaussian", "shot", "speckle", "impulse"),
    *("defocus_blur", "glass_blur", "zoom_blur", "gaussian_blur", "elastic_transform"),
)
# Table I's grid for OOB, "no clusters" being one box, and the elbow.
GRID = [
    (projection, clusters, gamma)
    for projection in ("simple", "pca", "isomap")
    for clusters in (1, 3, 5, 17, "elbow")
    for gamma in (0.0, 0.1, 0.35)
]


def turned(images: torch.Tensor, _: int, generator: torch.Generator) -> torch.Tensor:
    """By an angle between -30 and +30 degrees, every angle as likely."""
    angles = (torch.rand(len(images), generator=generator) * 2 - 1).mul(math.radians(30)).view(-1, 1, 1)
    height, width = images.shape[-2:]
    x = torch.arange(width) - (width - 1) / 2
    y = (torch.arange(height) - (height - 1) / 2)[:, None]
    right = x * (angles.cos() - 1) - y * angles.sin()
    return warped(images, right, x * angles.sin() + y * (angles.cos() - 1))


ROTATED = ImageFault("rotated", "shift", turned)


def scenarios(name: str, network: assay.Network, options: argparse.Namespace) -> Iterator[assay.Scenario]:
    """The authors' levels: 2 and 5, for anomalies 1 and 3; rotated, FGSM and the novelty once."""
    inputs, labels = images_of(name, "test", options)
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))[: options.rows]
    other = "cifar10" if name == "gtsrb" else "gtsrb"
    unknown = images_of(other, "test", options)[0]
    unknown = unknown[
        torch.randperm(len(unknown), generator=torch.Generator().manual_seed(2))[: options.rows]
    ]
    data, share = (inputs[rows], labels[rows]), SHARE[name]

    def build(**asked: object) -> list[assay.Scenario]:
        return assay.build_scenarios(*data, **({"clean_share": share} | asked))

    yield from build(faults=OTHERS, severities=(2, 5))
    yield from build(faults=ANOMALIES, severities=(1, 3))
    yield from build(faults=[ROTATED], severities=(5,))
    yield from build(faults=["fgsm"], severities=(5,), network=network, clean_share=ATTACKED_SHARE)
    yield from build(faults=[], novelty={f"{name}-{other}": unknown}, clean_share=NOVELTY_SHARE[name])


def guards_of(name: str, network: assay.Network, folder: Path) -> dict[str, assay.Guard]:
    """Those of safety_guards.py, by name; thresholds of one monitor share its scores."""
    found = {
        path.name.removeprefix(f"{name} "): assay.load(path, network=network)
        for path in sorted(folder.glob(f"{name} *"))
    }
    shared: dict[str, monitors.Monitor] = {}
    for title, guard in found.items():
        kind = title.removesuffix(CALIBRATED).split(",")[0]
        guard.monitor = shared.setdefault(kind, guard.monitor)
        remember(guard.monitor)
    return found


def remember(monitor: monitors.Monitor) -> None:
    """Score a Trace once: ALOCC and ODIN have several thresholds, and scoring is nearly all of the time."""
    if "score" in vars(monitor):
        return
    score, last = monitor.score, {}

    def once(trace: assay.Trace) -> torch.Tensor:
        if last.get("trace") is not trace:
            last.update(trace=trace, scores=score(trace))
        return last["scores"]

    monitor.score = once  # type: ignore[method-assign]


def boxes(
    name: str, network: assay.Network, options: argparse.Namespace
) -> dict[str, monitors.ActivationBox]:
    """Table I's grid, fitted; the simple projection takes the two neurons that vary most in training."""
    split = Split.of(name, options)
    train = network.observe((split.inputs[split.learned], split.labels[split.learned]))
    widest = train.features["penultimate"].var(dim=0).argsort(descending=True)[:2].tolist()
    found = {}
    for projection, clusters, gamma in GRID:
        monitor = monitors.ActivationBox(
            clusters=clusters,
            projection=projection,
            gamma=gamma,
            neurons=widest if projection == "simple" else None,
        )
        path = options.work / f"box {name} {projection} {clusters} {gamma}"
        if not path.exists():
            assay.save(monitor.fit(train), path)
        found[f"{projection} {clusters} {gamma}"] = assay.load(path)
    return found


def run(name: str, options: argparse.Namespace) -> None:
    """Every scenario for every guard, with readouts, and for every box of the grid."""
    network = network_of(name, options.networks)
    guards, grid = guards_of(name, network, options.guards), boxes(name, network, options)
    folder = options.work / f"{name}-tables"
    folder.mkdir(parents=True, exist_ok=True)
    for scenario in scenarios(name, network, options):
        path = folder / f"{scenario.name}.csv"
        if path.exists():
            continue
        start = time.perf_counter()
        result = assay.run_benchmark(
            guards, [scenario], readouts=options.work / f"{name}-readouts" / scenario.name, resamples=100
        )
        trace, truth = network.observe(scenario.inputs), scenario.is_fault.numpy()
        alarms = {title: (monitor.score(trace) > 0).numpy() for title, monitor in grid.items()}
        rows = [
            (title, multiclass_mcc(truth, alarm), alarm[~truth].mean()) for title, alarm in alarms.items()
        ]
        pd.DataFrame(rows, columns=["box", "mcc", "false_alarms"]).to_csv(
            folder / f"{scenario.name}.boxes", index=False
        )
        result.table.to_csv(path, index=False)
        print(f"{name}: {scenario.name}: {time.perf_counter() - start:.1f} s", flush=True)


def stream(name: str, options: argparse.Namespace) -> None:
    """Table VI: the paper's three, one image at a time, on its novelty pair."""
    network = network_of(name, options.networks)
    guards = {
        label: assay.load(options.guards / f"{name} {label}", network=network) for label in PAPER_GUARDS
    }
    options.rows = options.streamed
    *_, novelty = scenarios(name, network, options)
    result = assay.run_benchmark(guards, [novelty], batch_size=1, resamples=100)
    result.table.to_csv(options.work / f"stream-{name}.csv", index=False)
    print(result.by_guard()[["guard", "model_seconds", "monitor_seconds"]].to_string(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["run", "stream"])
    parser.add_argument("dataset", choices=list(DATASETS))
    folder = Path("safety-monitors")
    parser.add_argument("--networks", type=Path, default=folder, help="what lenets.py trained")
    parser.add_argument("--guards", type=Path, default=folder, help="what safety_guards.py saved")
    parser.add_argument("--work", type=Path, default=folder, help="what is measured")
    parser.add_argument("--rows", type=int, default=2000, help="test images of a dataset")
    parser.add_argument("--streamed", type=int, default=300, help="stream: novel images")
    add_data_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        {"run": run, "stream": stream}[options.stage](options.dataset, options)
    except FileNotFoundError as error:
        sys.exit(
            f"expected a file at {error.filename}, found none; pass --shared and --data, or prepare first"
        )


if __name__ == "__main__":
    main()
