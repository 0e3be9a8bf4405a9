"""What abstraction, reconstruction and dropout monitors cost, beside Tables VI and VII of the benchmark.

    python benchmarks/abstraction_monitors.py

The paper's setting: GTSRB's 43 classes, 3 x 32 x 32 images, a LeNet with 128 neurons in the last hidden
layer. Rows are synthetic (cost does not depend on what they show), two threads. Times are the least of
several runs of `score`, which is what a Guard adds to the network's own pass. Reconstruction trains for one
epoch.
"""

import argparse
import time

import torch
from torch import nn

from assay import Network, Trace, monitors

CLASSES, NEURONS = 43, 128
PAPER = {"ActivationBox isomap": (52.9, 6.4), "Reconstruction per class": (221.7, 98.9)}
"""OOB and ALOOC there: milliseconds per image (Table VI) and megabytes (Table VII)."""


def lenet() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            *(
                nn.Conv2d(3, 6, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ),
            *(nn.Flatten(), nn.Linear(400, NEURONS), nn.ReLU(), nn.Dropout(0.5), nn.Linear(NEURONS, CLASSES)),
        )


def rows(count: int, seed: int) -> Trace:
    """Images, features around a centre per class, and logits that say the class."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, NEURONS, generator=torch.Generator().manual_seed(7))
    features = (centres[classes] + torch.randn(count, NEURONS, generator=generator) / 2).relu()
    logits = 9 * nn.functional.one_hot(classes, CLASSES).float()
    images = torch.rand(count, 3, 32, 32, generator=generator)
    return Trace(logits, {"penultimate": features}, classes, images)


def measured(network: Network) -> dict[str, monitors.Monitor]:
    return {
        "ActivationBox": monitors.ActivationBox(),
        "ActivationBox pca": monitors.ActivationBox(projection="pca"),
        "ActivationBox isomap": monitors.ActivationBox(projection="isomap"),
        "ActivationPattern": monitors.ActivationPattern(),
        "GaussianInterval": monitors.GaussianInterval(),
        "Reconstruction": monitors.Reconstruction(epochs=1),
        "Reconstruction per class": monitors.Reconstruction(per_class=True, epochs=1),
        "MonteCarloDropout": monitors.MonteCarloDropout(network),
        "AnyOf of box and interval": monitors.AnyOf([monitors.ActivationBox(), monitors.GaussianInterval()]),
    }


def least_seconds(monitor: monitors.Monitor, trace: Trace, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        monitor.score(trace)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4300, help="rows fitted")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(2)
    network = Network(lenet())
    training, batch = rows(options.rows, seed=0), rows(256, seed=1)
    print("| monitor | fit, s | score 256, ms | score 1, ms | bytes | paper: 1 image, ms | paper: MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, monitor in measured(network).items():
        start = time.perf_counter()
        monitor.fit(training)
        fit = time.perf_counter() - start
        many, one = (least_seconds(monitor, trace, options.repeats) * 1e3 for trace in (batch, batch[0]))
        paper = PAPER.get(name, ("-", "-"))
        print(
            f"| {name} | {fit:.1f} | {many:.2f} | {one:.2f} | {monitor.nbytes:,} | {paper[0]} | {paper[1]} |"
        )


if __name__ == "__main__":
    main()
