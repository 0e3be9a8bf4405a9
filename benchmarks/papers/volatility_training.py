"""The volatility paper on training: Table II, Figure 6, and its outlook (early stopping, a regulariser)."""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from volatility_networks import BATCH, RECIPES, ann, load, read, trained
from volatility_tables import PAPER_TRAINING, note

import assay
from assay import Network, Trace
from assay.faults import NOISE, SHIFT, attacked, fgsm_direction
from assay.volatility import TrainingRecord
from assay.volatility.certainty import OFFSET, central, margins
from assay.volatility.comparison import window_log_vcs

Options = argparse.Namespace
PAPER_EPOCHS = {"ann": 30, "cnn": 20, "vgg": 100}


def accuracies(name: str, options: Options) -> None:
    """Table II: accuracy on the training and validation rows, and on the test rows."""
    if name == "resnet20":
        return
    known = trained(name, options.weights)
    network, test = load(name, options.data, options.weights, 10_000)
    images, labels = read(RECIPES[name].dataset, options.data, "train")
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[known["held"]] = True
    pairs = {
        "training": (images[~held], labels[~held]),
        "validation": (images[held], labels[held]),
        "test": test,
    }
    found = {part: float(network.observe(rows).correct.double().mean()) for part, rows in pairs.items()}
    print(f"accuracies {name}: {found}", flush=True)
    note(
        options,
        f"accuracies-{name}",
        found | {"epochs": len(known["trajectory"]), "paper_epochs": PAPER_EPOCHS[name]},
    )


def _accuracy(trace: Trace) -> float:
    return float(trace.correct.double().mean())


def _recorded(trajectory: list[Tensor], labels: Tensor) -> TrainingRecord:
    record = TrainingRecord(sets=10, size=1000)
    for number, logits in enumerate(trajectory, start=1):
        record.record(number, Trace(logits, labels=labels))
    return record


def trajectory(name: str, options: Options) -> None:
    """Figure 6 from the validation logits kept while training; what stopping on log VC would have done."""
    if name == "resnet20":
        return
    known = trained(name, options.weights)
    record = _recorded(known["trajectory"], known["labels"])
    whole = _recorded([*known["early"], *known["trajectory"]], known["labels"])
    frame = whole.to_frame()
    below = frame[frame["accuracy"] <= 0.5]
    found = {
        "epochs": len(known["trajectory"]),
        "above": record.correlation(0.5),
        "above_all": whole.correlation(0.5),
        "below": below["accuracy"].corr(below["log_vc"]),
        "points_below": len(below),
        "lowest": below["accuracy"].min(),
        "highest_below": below["accuracy"].max(),
        "first": frame["log_vc"][:10].mean(),
        "last": frame["log_vc"][-10:].mean(),
    }
    print(f"trajectory {name} (paper {PAPER_TRAINING}): {found}", flush=True)
    note(options, f"trajectory-{name}", found)
    _would_have_stopped(record, known)
    if options.tables:
        options.tables.mkdir(parents=True, exist_ok=True)
        whole.plot().savefig(options.tables / f"volatility-training-{name}.png", dpi=90)


def _would_have_stopped(record: TrainingRecord, known: dict) -> None:
    means = record.to_frame().groupby("epoch")[["accuracy", "log_vc"]].mean()
    losses = [float(cross_entropy(logits, known["labels"])) for logits in known["trajectory"]]
    for patience in (1, 3):
        for what, values in (("log VC", means["log_vc"].to_numpy()), ("loss", np.array(losses))):
            stop, best = _stopped(values, patience)
            reached = means["accuracy"].iloc[best]
            print(
                f"  early stopping on {what}, patience {patience}: stops after epoch {stop + 1}, keeps epoch "
                f"{best + 1} with accuracy {reached:.4f} (best of all epochs {means['accuracy'].max():.4f})"
            )


def _stopped(values: np.ndarray, patience: int) -> tuple[int, int]:
    """(the epoch at which one stops, the best epoch until then), counted from 0."""
    for epoch in range(len(values)):
        best = int(values[: epoch + 1].argmin())
        if epoch - best >= patience:
            return epoch, best
    return len(values) - 1, int(values.argmin())


def stopping(name: str, options: Options) -> None:
    """Does stopping on log VC pay where training overfits: 2,000 MNIST rows, with or without wrong labels?"""
    images, labels = read("mnist", options.data, "train")
    test_images, test_labels = read("mnist", options.data, "test")
    generator = torch.Generator().manual_seed(0)
    table = []
    for wrong in options.wrong:
        reached: dict[str, list[float]] = {}
        for seed in range(3):
            rows = torch.randperm(len(labels), generator=generator)
            train, held = rows[:2000], rows[2000:4000]
            noisy = mislabelled(labels[train], wrong)
            measures = {"stopped on log VC": [], "on validation loss": []}
            tested = []
            for module in _epochs(images[train], noisy, seed, epochs=20):
                trace = Network(module).observe((images[held], labels[held]))
                measures["stopped on log VC"].append(
                    float(window_log_vcs(margins(trace.probabilities.numpy()), 1000).mean())
                )
                measures["on validation loss"].append(float(cross_entropy(trace.logits, trace.known_labels)))
                tested.append(_accuracy(Network(module).observe((test_images[:3000], test_labels[:3000]))))
            for what, values in measures.items():
                _, best = _stopped(np.array(values), patience=5)
                reached.setdefault(what, []).append(tested[best])
            reached.setdefault("not stopped", []).append(tested[-1])
            reached.setdefault("best epoch in hindsight", []).append(max(tested))
        means = {what: f"{np.mean(values):.3f}" for what, values in reached.items()}
        print(f"stopping, {wrong:.0%} wrong labels, patience 5, 3 seeds: {means}", flush=True)
        table.append({"wrong training labels": f"{wrong:.0%}"} | means)
    note(options, f"stopping-{name}", table)


def _epochs(images: torch.Tensor, labels: torch.Tensor, seed: int, epochs: int) -> Iterator[torch.nn.Module]:
    """The ANN of Table I after each epoch."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = ann()
        optimiser = torch.optim.Adam(module.parameters(), lr=0.001)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(32):
                optimiser.zero_grad()
                cross_entropy(module(images[rows]), labels[rows]).backward()
                optimiser.step()
            yield module


def mislabelled(labels: torch.Tensor, share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(labels), generator=generator) < share
    return torch.where(wrong, (labels + 1) % 10, labels)


Penalty = Callable[[Tensor], Tensor]


def batch_vc(logits: Tensor) -> Tensor:
    """Eq. 7 of a batch, with gradients through the margins (their order is taken as given)."""
    best = logits.double().softmax(dim=1).topk(2, dim=1).values
    ordered = (best[:, 0] - best[:, 1]).sort().values
    first, last = central(len(ordered))
    inner = ordered[first - 1 : last + 1]
    return (inner[1:].clamp(min=1e-12) / (inner[:-1] + OFFSET)).log().square().sum() / (0.6 * len(ordered))


PENALTIES: dict[str, tuple[float, Penalty]] = {
    "none (control)": (0.0, batch_vc),
    "10 x VC": (10.0, batch_vc),
    "0.003 x log VC": (0.003, lambda logits: batch_vc(logits).log()),
    "0.01 x log VC": (0.01, lambda logits: batch_vc(logits).log()),
    "0.03 x log VC": (0.03, lambda logits: batch_vc(logits).log()),
    "0.1 x log VC": (0.1, lambda logits: batch_vc(logits).log()),
}
"""Strengths and forms, fixed before any of them was tried. VC of a batch of 128 is near 0.001 to 0.01."""
REGULARISED_ROWS, REGULARISED_EPOCHS, REGULARISED_SEEDS = 10_000, 10, 3
CHANGED_ROWS, SEVERITY = 2000, 3


def regulariser(name: str, options: Options) -> None:
    """VC as a part of the loss (the paper's outlook), on the ANN: chosen on validation rows, told on test."""
    images, labels = read("mnist", options.data, "train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    held, rows = order[:CHANGED_ROWS], order[6000 : 6000 + REGULARISED_ROWS]
    validation = _changed(images[held], labels[held])
    test_images, test_labels = read("mnist", options.data, "test")
    test = _changed(test_images[:CHANGED_ROWS], test_labels[:CHANGED_ROWS])
    found = {}
    for title, (strength, penalty) in PENALTIES.items():
        runs = []
        for seed in range(REGULARISED_SEEDS):
            network = Network(_regularised(images[rows], labels[rows], strength, penalty, seed), layers=())
            known = _fared(network, validation, labels[held])
            runs.append([known["choice"], *_fared(network, test, test_labels[:CHANGED_ROWS]).values()])
        found[title] = np.array(runs)
        print(f"regulariser {title}: {found[title].mean(axis=0).round(4).tolist()}", flush=True)
    note(options, f"regulariser-{name}", _regulariser_table(found))


def _regulariser_table(found: dict[str, np.ndarray]) -> list[dict[str, str]]:
    chosen = max(found, key=lambda title: found[title][:, 0].mean())
    columns = {
        "validation: mean of clean and changed": 0,
        "test: clean": 2,
        "20 changes of severity 3": 3,
        "FGSM, ε = 0.03": 4,
        "log VC of 2,000 clean rows": 5,
    }
    return [
        {"added to the loss": title + (" (chosen)" if title == chosen else "")}
        | {
            column: f"{runs[:, place].mean():.{2 if place == 5 else 4}f} "
            f"± {runs[:, place].std(ddof=1):.{2 if place == 5 else 4}f}"
            for column, place in columns.items()
        }
        for title, runs in found.items()
    ]


def _changed(images: Tensor, labels: Tensor) -> list[Tensor]:
    """Clean images, then under every noise and shift of the library."""
    return [images, *(fault(images, SEVERITY) for fault in (NOISE | SHIFT).values())]


def _fared(network: Network, sets: list[Tensor], labels: Tensor) -> dict[str, float]:
    traces = [network.observe((images, labels)) for images in sets]
    reached = [_accuracy(trace) for trace in traces]
    moved = attacked(sets[0], fgsm_direction(network, sets[0], labels), 0.03)
    changed = float(np.mean(reached[1:]))
    return {
        "choice": (reached[0] + changed) / 2,
        "clean": reached[0],
        "changed": changed,
        "fgsm": _accuracy(network.observe((moved, labels))),
        "log_vc": float(np.log(assay.volatility_in_certainty(traces[0]))),
    }


def _regularised(images: Tensor, labels: Tensor, strength: float, penalty: Penalty, seed: int) -> nn.Module:
    """The ANN of Table I, with fewer rows and epochs: there is more to gain."""
    torch.manual_seed(seed)
    module = ann()
    optimiser = torch.optim.Adam(module.parameters(), lr=0.001)
    for _ in range(REGULARISED_EPOCHS):
        for rows in torch.randperm(len(labels)).split(BATCH)[:-1]:  # a short batch has another VC
            logits = module(images[rows])
            loss = cross_entropy(logits, labels[rows], label_smoothing=0.1)
            if strength:
                loss = loss + strength * penalty(logits)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return module.eval()
