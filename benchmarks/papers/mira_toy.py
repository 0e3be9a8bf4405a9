"""The figure that explains monitorability (MIRA, Fig. 1 and Appendix A).

Two classes in the plane are known and a third cluster is not. Net1 has three fully connected layers of two
neurons each, Net2 has two. Both classify every known point correctly; they differ in where they put the
unknown ones.

    python benchmarks/papers/mira.py toy
"""

from typing import TYPE_CHECKING

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import assay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNT = 400
SPREAD = 0.5
BLUE, GREEN, ORANGE = "#0072b2", "#009e73", "#d55e00"


def known_points(seed: int) -> tuple[Tensor, Tensor]:
    labels = torch.arange(COUNT) % 2
    centres = torch.tensor([[-2.0, 0.0], [2.0, 0.0]])
    return centres[labels] + SPREAD * _normal(seed), labels


def unknown_points(seed: int) -> Tensor:
    return torch.tensor([0.0, 4.0]) + SPREAD * _normal(seed)


def toy_network(layers: int, seed: int) -> assay.Network:
    """Fully connected layers of two neurons, ReLU between them, trained on the known points."""
    inputs, labels = known_points(seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for _ in range(layers - 1):
            parts += [nn.Linear(2, 2), nn.ReLU()]
        module = nn.Sequential(*parts, nn.Linear(2, 2))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(module(inputs), labels))
        optimiser.step()
    return assay.Network(module.eval(), batch_size=4096)


def two_networks(seed: int = 2) -> dict[str, assay.Network]:
    return {"Net1": toy_network(3, seed), "Net2": toy_network(2, seed)}


def detection(network: assay.Network) -> float:
    """AUROC of the Mahalanobis monitor between unseen known points and unknown ones."""
    monitor = assay.monitors.Mahalanobis().fit(network.observe(known_points(seed=0)))
    scores = [monitor.score(network.observe(part)) for part in (known_points(1)[0], unknown_points(2))]
    return float(roc_auc_score([0] * COUNT + [1] * COUNT, torch.cat(scores).numpy()))


def toy_figure(networks: dict[str, assay.Network]) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    (inputs, labels), strange = known_points(seed=1), unknown_points(seed=2)
    _scatter(panels[0], inputs, labels, strange)
    panels[0].set_title("the data", fontsize=10)
    panels[0].legend(frameon=False, fontsize=8, loc="upper left")
    for axes, (name, network) in zip(panels[1:], networks.items(), strict=True):
        known, unknown = network.observe((inputs, labels)), network.observe(strange)
        score = assay.mira_score(network, known_points(seed=0), (inputs, labels))
        _scatter(axes, known.layer("penultimate"), labels, unknown.layer("penultimate"))
        axes.set_title(
            f"{name}: accuracy {float(known.correct.double().mean()):.0%}, MIRA {score.score:.2f},\n"
            f"unknown points found with AUROC {detection(network):.2f}",
            fontsize=10,
        )
        axes.set_xlabel("first penultimate neuron")
        axes.set_ylabel("second penultimate neuron")
    return figure


def seeds_table(seeds: int) -> str:
    """Both networks for other seeds: what the figure leaves out."""
    lines = ["| seed | Net1 MIRA | Net1 AUROC | Net2 MIRA | Net2 AUROC |", "| --- | --- | --- | --- | --- |"]
    for seed in range(seeds):
        cells = []
        for network in two_networks(seed).values():
            test = known_points(seed=1)
            right = float(network.observe(test).correct.double().mean())
            if right < 1:
                cells += [f"accuracy {right:.0%}", "-"]
                continue
            score = assay.mira_score(network, known_points(seed=0), test).score
            cells += [f"{score:.2f}", f"{detection(network):.2f}"]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _normal(seed: int) -> Tensor:
    return torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(seed))


def _scatter(axes, points: Tensor, labels: Tensor, strange: Tensor) -> None:  # type: ignore[no-untyped-def]
    for label, colour in ((0, BLUE), (1, GREEN)):
        axes.scatter(*points[labels == label].T, s=8, color=colour, label=f"known class {label}")
    axes.scatter(*strange.T, s=10, marker="x", color=ORANGE, label="unknown", linewidths=0.8)
