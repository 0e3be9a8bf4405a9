"""How well monitors see a digit the network never saw.

    python benchmarks/abstraction_digits.py
    python benchmarks/abstraction_digits.py --monitors features --network small_cnn --digits 9

By default abstraction, reconstruction, uncertainty and combined monitors; with `--monitors features` those
that read the 64 features before the last layer, which are too few for some. `--network small_cnn` is the
demo's, with a second convolution and without the dropout that MonteCarloDropout needs.

For each digit left out: a small CNN is trained on the other nine of scikit-learn's digits (1,100 rows), and
every monitor, fitted on the same rows, ranks the remaining known rows against the left-out digit (AUROC, the
chance that an unknown one scores higher). "inside" is the share of known and unknown rows that score 0, for
monitors whose paper raises the alarm above that.
"""

import argparse

import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from assay import Network, monitors
from assay.demo.networks import small_cnn
from assay.monitors import ActivationBox, AnyOf, GaussianInterval, MaxSoftmax, Reconstruction, Standardised

FITTED, EPOCHS = 1100, 25


def dropout_cnn(classes: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, classes)),
    )


NETWORKS = {"dropout_cnn": dropout_cnn, "small_cnn": small_cnn}


def trained(name: str, inputs: Tensor, labels: Tensor, seed: int) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = NETWORKS[name](9)
        optimizer = torch.optim.Adam(module.parameters(), 1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(inputs)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(inputs[rows]), labels[rows]).backward()
                optimizer.step()
    return Network(module)


def abstractions(network: Network, second: Network) -> dict[str, monitors.Monitor]:
    return {
        "MaxSoftmax (for comparison)": MaxSoftmax(),
        "ActivationBox": ActivationBox(),
        "ActivationBox, elbow, gamma 0.35": ActivationBox(clusters="elbow", gamma=0.35),
        "ActivationBox, pca": ActivationBox(projection="pca"),
        "ActivationBox, isomap": ActivationBox(projection="isomap"),
        "ActivationPattern": monitors.ActivationPattern(),
        "GaussianInterval": GaussianInterval(),
        "GaussianInterval, excess": GaussianInterval(measure="excess"),
        "Reconstruction": Reconstruction(),
        "Reconstruction, discriminator": Reconstruction(measure="discriminator"),
        "Reconstruction, per class, 60 epochs": Reconstruction(per_class=True, epochs=60, batch_size=32),
        "MonteCarloDropout": monitors.MonteCarloDropout(network),
        "EnsembleDisagreement of 2": monitors.EnsembleDisagreement([network, second]),
        "TemperatureScaled MaxSoftmax": monitors.TemperatureScaled(MaxSoftmax()),
        "AnyOf box, interval, softmax": AnyOf([ActivationBox(), GaussianInterval(), MaxSoftmax()]),
        "Standardised, the same": Standardised([ActivationBox(), GaussianInterval(), MaxSoftmax()]),
    }


def feature_monitors(network: Network, second: Network) -> dict[str, monitors.Monitor]:
    return {
        "Energy (for comparison)": monitors.Energy(),
        "Mahalanobis": monitors.Mahalanobis(),
        "KNN": monitors.KNN(),
        "ViM": monitors.ViM(),
        "ReAct": monitors.ReAct(),
        "ASH-P": monitors.ASH(variant="P", percentile=65),
        "ASH-B": monitors.ASH(variant="B", percentile=65),
        "ASH-S": monitors.ASH(),
        "SCALE": monitors.SCALE(),
        "DICE": monitors.DICE(),
        "GradNorm": monitors.GradNorm(),
        "FDBD": monitors.FDBD(),
        "NCI": monitors.NCI(),
        "OpenMax": monitors.OpenMax(),
        "CoRP": monitors.CoRP(),
        "NuSA": monitors.NuSA(),
    }


MEASURED = {"abstractions": abstractions, "features": feature_monitors}


def left_out(digit: int, seed: int, architecture: str, which: str) -> pd.DataFrame:
    """A row per monitor: AUROC, and the shares of known and unknown rows with score 0."""
    data, target = load_digits(return_X_y=True)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    images, digits = (
        torch.from_numpy(data).float().view(-1, 1, 8, 8)[order] / 16,
        torch.from_numpy(target)[order],
    )
    known = digits != digit
    inputs, labels = images[known], (digits - (digits > digit).long())[known]
    fitted = inputs[:FITTED], labels[:FITTED]
    network, second = (trained(architecture, *fitted, number) for number in (seed, seed + 1))
    training = network.observe(fitted, keep_inputs=True)
    normal, unknown = (network.observe(part, keep_inputs=True) for part in (inputs[FITTED:], images[~known]))
    found = []
    for name, monitor in MEASURED[which](network, second).items():
        monitor.fit(training)
        scores = [monitor.score(trace) for trace in (normal, unknown)]
        fault = torch.cat([torch.zeros(len(normal)), torch.ones(len(unknown))])
        inside = [float((part == 0).double().mean()) for part in scores]
        found.append((name, float(roc_auc_score(fault, torch.cat(scores))), *inside))
    return pd.DataFrame(found, columns=["monitor", "auroc", "known inside", "unknown inside"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--monitors", choices=MEASURED, default="abstractions")
    parser.add_argument("--network", choices=NETWORKS, default="dropout_cnn")
    parser.add_argument("--digits", type=int, nargs="+", default=[3, 5, 8])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    frames = [left_out(digit, options.seed, options.network, options.monitors) for digit in options.digits]
    table = pd.concat(frames).groupby("monitor", sort=False).mean()
    print("| monitor | AUROC | known inside | unknown inside |\n| --- | --- | --- | --- |")
    for name, row in table.iterrows():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in row) + " |")


if __name__ == "__main__":
    main()
