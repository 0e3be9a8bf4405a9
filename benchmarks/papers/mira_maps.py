"""Figs. 2 to 4: t-SNE maps of the penultimate features of networks, beside their scores."""

from itertools import chain
from typing import Any

import numpy as np
import torch
from mira_study import Subject

COLOURS = (
    "#0072b2",
    "#009e73",
    "#56b4e9",
    "#cc79a7",
    "#e69f00",
    "#7570b3",
    "#66a61e",
    "#a6761d",
    "#999933",
    "#882255",
)
UNKNOWN = "#d55e00"
STRANGERS = 100
"""Unknown inputs shown, of all sets."""


def maps_figure(subjects: list[tuple[Subject, dict[str, Any]]]) -> Any:
    """A panel per network: its test inputs coloured by class, unknown ones as crosses."""
    from matplotlib.figure import Figure

    columns = min(3, len(subjects))
    lines = -(-len(subjects) // columns)
    figure = Figure(figsize=(3.6 * columns, 3.5 * lines), layout="constrained")
    panels = np.array(figure.subplots(lines, columns)).reshape(-1)
    for axes, (subject, row) in zip(panels, subjects, strict=False):
        points, labels = mapped(subject)
        for label in np.unique(labels[labels >= 0]):
            here = labels == label
            axes.scatter(*points[here].T, s=6, color=COLOURS[label % len(COLOURS)], linewidths=0)
        axes.scatter(*points[labels < 0].T, s=8, marker="x", color=UNKNOWN, linewidths=0.6)
        score = next(iter(row["thresholds"].values()))["score"]
        axes.set_title(
            f"{subject.name}: MIRA {score:.2g},\nbest-of AUROC {100 * row['best']:.0f}", fontsize=9
        )
        axes.set(xticks=[], yticks=[])
    for axes in panels[len(subjects) :]:
        axes.set_axis_off()
    return figure


def mapped(subject: Subject) -> tuple[Any, Any]:
    """Points of the plane and labels, -1 for unknown inputs."""
    from sklearn.manifold import TSNE

    network, (inputs, labels) = subject.network(), subject.test()
    unknown = [part[: max(1, STRANGERS // len(subject.unknown()))] for part in subject.unknown().values()]
    strange = torch.cat(unknown) if isinstance(unknown[0], torch.Tensor) else list(chain(*unknown))
    features = [network.observe(part).layer("penultimate") for part in (inputs, strange)]
    points = TSNE(random_state=0, init="pca", perplexity=30).fit_transform(torch.cat(features).numpy())
    return points, np.concatenate([np.asarray(labels), np.full(len(features[1]), -1)])
