"""Figures of MIRA: the curve, the classes, the features, the ranking, the validation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"


def curve_figure(curve: pd.DataFrame, baseline: float, accuracy: float) -> "Figure":
    figure = blank_figure(6.5, 3.4)
    axes = figure.subplots()
    axes.plot(curve["epsilon"], curve["surprisal"], "o-", color=BLUE, markersize=3)
    axes.axhline(baseline, color=BLUE, linestyle=":", label=f"clean inputs ({baseline:.3g})")
    axes.set_xlabel("perturbation size epsilon (units of the inputs)")
    axes.set_ylabel("mean surprisal (nats)", color=BLUE)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    right = axes.twinx()
    right.plot(curve["epsilon"], 100 * curve["accuracy"], "s--", color=ORANGE, markersize=3)
    right.set_ylim(0, 100)
    right.set_ylabel("accuracy (%)", color=ORANGE)
    axes.set_title(f"Surprise of the features as accuracy falls from {accuracy:.1%}", fontsize=10)
    return figure


def class_figure(per_class: pd.DataFrame, score: float) -> "Figure":
    figure = blank_figure(6.5, 1.2 + 0.24 * len(per_class))
    axes = figure.subplots()
    places = np.arange(len(per_class))
    reach = np.stack(
        [
            (per_class["score"] - per_class["lower"]).clip(lower=0),
            (per_class["upper"] - per_class["score"]).clip(lower=0),
        ]
    )
    axes.barh(places, per_class["score"], xerr=reach, color=BLUE, alpha=0.8, ecolor=GREY)
    axes.axvline(score, color=ORANGE, linestyle="--", label="all classes")
    axes.set_yticks(places, [f"class {label}" for label in per_class["label"]])
    axes.invert_yaxis()
    axes.set_xlabel("MIRA score (times the class's own baseline)")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("Which classes are hard to monitor", fontsize=10)
    return figure


def feature_figure(clean: Tensor, perturbed: Tensor, labels: Tensor, correct: Tensor) -> "Figure":
    """t-SNE (van der Maaten and Hinton 2008) of both together, as in the paper's Fig. 2."""
    figure = blank_figure(6.5, 4.6)
    axes = figure.subplots()
    places = _tsne_map(torch.cat([clean, perturbed]))
    before, after = places[: len(clean)], places[len(clean) :]
    known, wrong = labels.numpy(), ~correct.numpy()
    axes.scatter(before[:, 0], before[:, 1], c=known, cmap="viridis", s=12, label="clean (colour: class)")
    axes.scatter(
        after[~wrong, 0],
        after[~wrong, 1],
        facecolors="none",
        edgecolors=GREY,
        s=18,
        label="perturbed, still right",
        linewidths=0.8,
    )
    axes.scatter(
        after[wrong, 0],
        after[wrong, 1],
        marker="x",
        color=ORANGE,
        s=18,
        label="perturbed, now wrong",
        linewidths=1,
    )
    axes.set_xticks([])
    axes.set_yticks([])
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    axes.set_title("Features before and after the smallest perturbation (t-SNE)", fontsize=10)
    return figure


def ranking_figure(table: pd.DataFrame) -> "Figure":
    figure = blank_figure(6.5, 1.2 + 0.3 * len(table))
    axes = figure.subplots()
    places = np.arange(len(table))
    axes.errorbar(
        table["score"],
        places,
        xerr=np.stack([table["score"] - table["lower"], table["upper"] - table["score"]]).clip(min=0),
        fmt="o",
        color=BLUE,
        ecolor=GREY,
        capsize=2,
    )
    axes.set_yticks(places, row_names(table))
    axes.set_ylim(len(table) - 0.5, -0.5)
    if len(table) > 1 and table["score"].min() > 0 and table["score"].max() > 30 * table["score"].min():
        axes.set_xscale("log")
    axes.set_xlabel("MIRA score (times the baseline; higher: failures show more)")
    axes.grid(axis="x", alpha=0.3)
    axes.set_title("Monitorability, with intervals over test inputs", fontsize=10)
    return figure


def agreement_figure(table: pd.DataFrame, words: str) -> "Figure":
    """Score against best-of AUROC, a point per network."""
    figure = blank_figure(5.5, 4.0)
    axes = figure.subplots()
    axes.plot(table["score"], 100 * table["best_auroc"], "o", color=BLUE)
    for name, score, auroc in zip(row_names(table), table["score"], table["best_auroc"], strict=True):
        axes.annotate(name, (score, 100 * auroc), xytext=(4, 3), textcoords="offset points", fontsize=8)
    if table["score"].min() > 0 and table["score"].max() > 30 * table["score"].min():
        axes.set_xscale("log")
    axes.set_xlabel("MIRA score (in-distribution data only)")
    axes.set_ylabel("AUROC of the best monitor,\nmean over unknown sets (%)")
    axes.grid(alpha=0.3)
    axes.set_title(words, fontsize=10)
    return figure


def row_names(table: pd.DataFrame) -> Sequence[str]:
    """The name of the network, of the layer, or of both: whatever distinguishes the rows."""
    one_layer = table["layer"].nunique() == 1
    one_network = table["network"].nunique() == 1
    if one_layer:
        return [str(name) for name in table["network"]]
    if one_network:
        return [str(layer) for layer in table["layer"]]
    return [f"{name}, {layer}" for name, layer in zip(table["network"], table["layer"], strict=True)]


def _tsne_map(features: Tensor) -> np.ndarray:
    from sklearn.manifold import TSNE

    values = features.double().numpy()
    if values.shape[1] <= 2:
        return np.pad(values, ((0, 0), (0, 2 - values.shape[1])))
    perplexity = min(30.0, (len(values) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(values))


def blank_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
