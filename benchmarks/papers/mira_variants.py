"""Scores from in-distribution data alone, MIRA's among them, for one network: what could track detection?

Everything here is computed from features with numpy, apart from the package's own code; the variant "mira"
therefore also checks `assay.mira_score`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf, oas
from sklearn.metrics import roc_auc_score
from torch import Tensor

import assay
from assay.faults.partners import shuffled_values
from assay.mira.chi_square import surprisal
from assay.mira.perturbation_range import found_range
from assay.mira.score import prepared_sweep
from assay.mira.settings import MiraSettings
from assay.mira.weights import epsilon_steps, step_weights
from assay.network import perturbable, replaced

Array = NDArray[np.float64]


class Gaussian:
    """Class means and one covariance; `rank` keeps the directions in which the training features vary."""

    def __init__(self, features: Array, labels: Array, estimator: str) -> None:
        self.means = np.stack([features[labels == label].mean(axis=0) for label in np.unique(labels)])
        centred = features - self.means[np.searchsorted(np.unique(labels), labels)]
        covariance = {
            "rank": lambda: centred.T @ centred / len(centred),
            "empirical": lambda: centred.T @ centred / len(centred),
            "ledoit_wolf": lambda: ledoit_wolf(centred, assume_centered=True)[0],
            "oas": lambda: oas(centred, assume_centered=True)[0],
        }[estimator]()
        values, vectors = np.linalg.eigh(covariance)
        if estimator == "empirical" and values[0] < 1e-12 * values.mean():
            values, vectors = np.linalg.eigh(oas(centred, assume_centered=True)[0])
        kept = values > (1e-6 * values[-1] if estimator == "rank" else 0)
        self.axes = vectors[:, kept] / np.sqrt(values[kept])
        self.dimensions = int(kept.sum())

    def squared(self, features: Array) -> Array:
        moved, means = features @ self.axes, self.means @ self.axes
        return np.stack([((moved - mean) ** 2).sum(axis=1) for mean in means]).min(axis=0)


def features_of(trace: assay.Trace) -> Array:
    return trace.layer("penultimate").double().numpy()


def auroc(known: Array, unknown: Array) -> float:
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(truth, np.concatenate([known, unknown])))


def trimmed(values: Array) -> float:
    low, high = np.quantile(values, [0.05, 0.95])
    return float(values[(values >= low) & (values <= high)].mean())


AVERAGES: dict[str, Callable[[Array], float]] = {
    "mean": lambda values: float(values.mean()),
    "median": lambda values: float(np.median(values)),
    "trimmed": trimmed,
    "log": lambda values: float(np.exp(np.log(values + 1e-300).mean())),
}


def swept_variants(
    network: assay.Network, fitted: assay.Trace, train: Any, test: Any, prefix: str, options: dict[str, Any]
) -> dict[str, float]:
    """Every average, form and estimator over one perturbation and range."""
    settings = MiraSettings(**{"steps": 10, "tolerance": 0.01, **options})
    sweep = prepared_sweep(network, train, test, [("penultimate",)], settings)
    low, high = settings.epsilon_range or found_range(sweep, settings)
    epsilons = epsilon_steps(low, high, settings.steps)
    weights = step_weights(epsilons)
    clean = features_of(sweep.observe(0.0))
    moved = [features_of(sweep.observe(float(epsilon))) for epsilon in epsilons]
    results = {f"{prefix}epsilon_min": low}
    for estimator in ("empirical", "rank", "ledoit_wolf", "oas"):
        normal = Gaussian(features_of(fitted), fitted.known_labels.numpy(), estimator)
        before, *after = (normal.squared(rows) for rows in (clean, *moved))
        seen = normal.squared(features_of(fitted))
        for form in ("squared", "literal"):
            power = 1.0 if form == "squared" else 0.5
            start, own = (surprisal(rows**power, normal.dimensions) for rows in (before, seen))
            reached = [surprisal(rows**power, normal.dimensions) for rows in after]
            for name, average in AVERAGES.items():
                level = sum(w * average(rows) for w, rows in zip(weights, reached, strict=True))
                results[f"{prefix}{estimator} {form} {name}"] = level / max(average(start), 1e-300) - 1
            level = sum(w * rows.mean() for w, rows in zip(weights, reached, strict=True))
            results[f"{prefix}{estimator} {form} mean, train baseline"] = level / own.mean() - 1
            results[f"{prefix}{estimator} {form} mean, no baseline"] = level
        ranks = [auroc(before, rows) for rows in after]
        results[f"{prefix}{estimator} AUROC clean against perturbed"] = float(weights @ np.array(ranks))
    return results


def blends(values: Tensor, labels: Tensor, seed: int) -> Tensor:
    """Halfway between two inputs of different classes."""
    generator = torch.Generator().manual_seed(seed)
    other = torch.randperm(len(values), generator=generator)
    for _ in range(20):
        same = labels[other] == labels
        other[same] = torch.randint(len(values), (int(same.sum()),), generator=generator)
    return (values + values[other]) / 2


def noise(values: Tensor, labels: Tensor, seed: int) -> Tensor:
    drawn = torch.randn(values.shape, generator=torch.Generator().manual_seed(seed))
    return drawn * values.std() + values.mean()


def synthetic_variants(
    network: assay.Network, fitted: assay.Trace, test: Any, seed: int = 0
) -> dict[str, float]:
    """Detection of outliers made from the test inputs, best of two monitors; a class left out."""
    known = network.observe(test, keep_inputs=True)
    inputs, labels = known.known_inputs, known.known_labels
    results: dict[str, float] = {"accuracy": float(known.correct.double().mean())}
    results["confidence"] = float(known.probabilities.amax(1).mean())
    monitors = {
        "empirical": assay.monitors.Mahalanobis().fit(fitted),
        "ledoit_wolf": assay.monitors.Mahalanobis(estimator="ledoit_wolf").fit(fitted),
        "energy": assay.monitors.Energy().fit(fitted),
    }
    best = {}
    for name, make in (
        ("blend", blends),
        ("shuffle", lambda values, _, seed: shuffled_values(values, torch.Generator().manual_seed(seed))),
        ("noise", noise),
    ):
        made = network.observe(replaced(inputs, make(perturbable(inputs), labels, seed)))
        values = {
            kind: auroc(monitor.score(known).numpy(), monitor.score(made).numpy())
            for kind, monitor in monitors.items()
        }
        best[name] = max(values.values())
        results |= {f"{name} {kind}": value for kind, value in values.items()} | {f"{name} best": best[name]}
    results["blend, shuffle and noise best"] = float(np.mean(list(best.values())))
    results["blend and shuffle best"] = (best["blend"] + best["shuffle"]) / 2
    return results | class_left_out(fitted, known)


def class_left_out(fitted: assay.Trace, known: assay.Trace) -> dict[str, float]:
    """Each class in turn as the unknown one, in the features as they are: AUROC against the other classes."""
    features, labels = features_of(fitted), fitted.known_labels.numpy()
    tested, theirs = features_of(known), known.known_labels.numpy()
    results = {}
    for estimator in ("rank", "ledoit_wolf"):
        values = []
        for label in np.unique(labels):
            if len(np.unique(labels)) < 3:
                break
            normal = Gaussian(features[labels != label], labels[labels != label], estimator)
            distances = normal.squared(tested)
            values.append(auroc(distances[theirs != label], distances[theirs == label]))
        results[f"class left out {estimator}"] = float(np.mean(values)) if values else float("nan")
    between = Gaussian(features, labels, "ledoit_wolf")
    means = between.means @ between.axes
    gaps = ((means[:, None] - means[None]) ** 2).sum(axis=2)
    results["class separation"] = float(gaps[~np.eye(len(means), dtype=bool)].min())
    return results


def all_variants(
    network: assay.Network,
    train: Any,
    test: Any,
    low: float,
    options: dict[str, Any],
    many: bool,
) -> dict[str, float]:
    """Every variant; with `many` also over other perturbations and ranges."""
    fitted = network.observe(train)
    results = synthetic_variants(network, fitted, test)
    results |= swept_variants(network, fitted, train, test, "", {**options, "epsilon_range": (low, 2 * low)})
    others: dict[str, dict[str, Any]] = {
        "to 30%: ": {"accuracy_threshold": 0.3},
        "l2: ": {"norm": "l2"},
        "random: ": {"perturbation": "random_sign"},
        "to 5 epsilon_min: ": {"epsilon_range": (low, 5 * low)},
    }
    for prefix, changed in others.items() if many else ():
        try:
            results |= swept_variants(network, fitted, train, test, prefix, {**options, **changed})
        except assay.errors.InputError:
            continue  # accuracy never falls that low under this perturbation: the variant has no value
    return results
