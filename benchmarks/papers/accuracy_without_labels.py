"""Which estimate of accuracy without labels should one trust, and when?

    python benchmarks/papers/accuracy_without_labels.py --networks ann cnn resnet20

Every fault template at every severity, label shift and label noise: the mean absolute error of every method,
in points of accuracy, by category. The first rows of the test set are the reference, the next as many are the
operational rows. Gaussian noise and Gaussian blur of the reference rows teach what log VC and nuclear norm
mean ("taught"); these two templates are left out of the test. Without them, noise on the logits stands in.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from pages import markdown
from volatility_networks import CACHE, DATA, kept, load

import assay
from assay import Network, Trace
from assay.faults import ADVERSARIAL, ANOMALY, NOISE, SHIFT, attacked, fgsm_direction, pgd

TEACHERS = ("gaussian", "gaussian_blur")
SECOND = {"ann": "cnn", "cnn": "ann", "resnet20": "vgg", "vgg": "resnet20"}
Rows = Callable[[], tuple[torch.Tensor, torch.Tensor]]
Condition = tuple[str, str, int, Rows]


def conditions(
    network: Network, images: torch.Tensor, labels: torch.Tensor, pgd_steps: int
) -> Iterator[Condition]:
    """(category, name, severity, how to make the rows)."""

    @cache
    def direction(norm: str) -> torch.Tensor:
        return fgsm_direction(network, images, labels, norm)

    def attacked_rows(attack, severity):  # type: ignore[no-untyped-def]
        epsilon = attack.epsilon(severity, images[0].numel())
        if attack.method == "fgsm":
            return attacked(images, direction(attack.norm), epsilon), labels
        if attack.method == "pgd":
            return pgd(network, images, labels, epsilon, attack.norm, steps=pgd_steps), labels
        return attack(images, severity, network=network), labels

    for templates in (NOISE, SHIFT, ANOMALY):
        for name, template in templates.items():
            if name in TEACHERS:
                continue
            for severity in range(1, 6):
                yield template.category, name, severity, partial(_changed, template, images, labels, severity)
    for name, attack in ADVERSARIAL.items():
        for severity in () if attack.method == "pgd" and not pgd_steps else range(1, 6):
            yield "adversarial", name, severity, partial(attacked_rows, attack, severity)
    for severity, share in enumerate((0.4, 0.5, 0.6, 0.75, 0.9), start=1):
        yield "label shift", "label_shift", severity, partial(_shifted, images, labels, share)
    for severity, share in enumerate((0.05, 0.1, 0.2, 0.3, 0.4), start=1):
        yield "label noise", "label_noise", severity, partial(_mislabelled, images, labels, share)


def _changed(template, images, labels, severity):  # type: ignore[no-untyped-def]
    return template(images, severity), labels


def _shifted(images: torch.Tensor, labels: torch.Tensor, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of which the classes 3, 5 and 8, a third of the classes, make up `share`."""
    common = torch.isin(labels, torch.tensor([3, 5, 8]))
    count = int(common.sum())
    rows = torch.cat([common.nonzero()[:, 0], (~common).nonzero()[:, 0][: int(count * (1 - share) / share)]])
    return images[rows], labels[rows]


def _mislabelled(
    images: torch.Tensor, labels: torch.Tensor, share: float
) -> tuple[torch.Tensor, torch.Tensor]:
    wrong = torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < share
    return images, torch.where(wrong, (labels + 1) % 10, labels)


@dataclass
class Bench:
    """One network and its second opinion, with what they did under each condition."""

    name: str
    options: argparse.Namespace

    def __post_init__(self) -> None:
        rows, data, weights = self.options.rows, self.options.data, self.options.weights or self.options.cache
        network, (images, labels) = load(self.name, data, weights, 2 * rows)
        self.networks = {self.name: network, SECOND[self.name]: load(SECOND[self.name], data, weights, 1)[0]}
        self.known, self.live = (images[:rows], labels[:rows]), (images[rows:], labels[rows:])

    def traces(self, key: str, make: Rows) -> list[Trace]:
        """What both networks did on the same rows, which are made only if one of them has not seen them."""
        changed: list[tuple[torch.Tensor, torch.Tensor]] = []

        def once(network: Network) -> Trace:
            changed.extend([] if changed else [make()])
            return network.observe(changed[0])

        key = f"estimates-{self.name}-{key}-{self.options.rows}"
        paths = [
            kept(who, key, self.options.cache, partial(once, network))
            for who, network in self.networks.items()
        ]
        return [assay.load(path, kind="Trace") for path in paths] if self.ready else []

    ready = False
    """Whether all conditions were seen; only then are they read."""

    def estimators(self) -> dict[str, assay.AccuracyEstimator]:
        reference = self.traces("reference", lambda: self.known)
        taught = [
            self.traces(f"{teacher}-{severity}", partial(_changed, NOISE[teacher], *self.known, severity))
            for teacher in TEACHERS
            for severity in range(1, 6)
        ]
        if not self.ready:
            return {}
        window = min(500, self.options.rows // 4)
        known, other = reference
        return {
            "taught": assay.AccuracyEstimator(window=window).fit(known, [pair[0] for pair in taught], other),
            "logit noise": assay.AccuracyEstimator(window=window).fit(known),
        }

    def conditions(self) -> Iterator[tuple[str, str, int, list[Trace]]]:
        network = self.networks[self.name]
        steps = self.options.pgd_steps
        for category, fault, severity, make in conditions(network, *self.live, steps):
            if self.options.only and category not in self.options.only:
                continue
            key = f"live-{fault}-{severity}" + (f"-of-{steps}" if "pgd" in fault else "")
            yield category, fault, severity, self.traces(key, make)


def table(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """A row per condition and method: the estimate and the truth."""
    bench = Bench(name, options)
    bench.estimators()
    list(bench.conditions())
    if options.only:
        return pd.DataFrame()
    bench.ready = True
    estimators = bench.estimators()
    found = []
    for category, fault, severity, (trace, second) in bench.conditions():
        truth = float(trace.correct.double().mean())
        for how, estimator in estimators.items():
            counts = estimator.count(trace, second if how == "taught" else None)
            for one in estimator.estimate(counts).estimates:
                learnt = one.method in ("calibrated log VC", "nuclear norm")
                if how == "taught" or learnt:
                    method = f"{one.method} ({how})" if learnt else one.method
                    inside = one.lower <= truth <= one.upper
                    found.append((category, fault, severity, method, one.value, truth, inside))
    columns = ["category", "fault", "severity", "method", "value", "truth", "inside"]
    return pd.DataFrame(found, columns=columns)


CATEGORIES = ("noise", "shift", "anomaly", "adversarial", "label shift")
NETWORKS = {
    "ann": "ANN, MNIST",
    "cnn": "CNN, MNIST",
    "resnet20": "ResNet-20, CIFAR-10",
    "vgg": "VGG-like, CIFAR-10",
}


def errors(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per method, the best first: mean absolute error in points; "all" leaves label noise out."""
    frame = frame.assign(error=100 * (frame["value"] - frame["truth"]).abs())
    shifted = frame[frame["category"] != "label noise"]
    means = frame.pivot_table(index="method", columns="category", values="error", aggfunc="mean")
    means = means.reindex(columns=[*CATEGORIES, "label noise"])
    means.insert(len(CATEGORIES), "all", shifted.groupby("method")["error"].mean())
    means["worst"] = shifted.groupby("method")["error"].max()
    means["inside"] = 100 * shifted.groupby("method")["inside"].mean()
    return means.sort_values("all")


def facts(frame: pd.DataFrame, rows: int) -> str:
    """One sentence on what was tried."""
    conditions = frame.drop_duplicates(["category", "fault", "severity"])
    truth = conditions["truth"]
    return (
        f"Reference {rows:,} rows, the next {rows:,} under {len(conditions)} conditions, true accuracy "
        f"{truth.min():.2f} to {truth.max():.2f}."
    )


def report(name: str, frame: pd.DataFrame, rows: int) -> None:
    print(f"\n{name}: {facts(frame, rows)}")
    print(errors(frame).round(1).to_string(), flush=True)


def write_tables(frames: dict[str, pd.DataFrame], options: argparse.Namespace) -> None:
    """A file per network, and one with all of them."""
    for name, frame in frames.items():
        found = errors(frame)
        cells = found.round(1).astype(str).assign(worst=found["worst"].round().astype(int))
        cells["inside"] = found["inside"].map("{:.0f} %".format)
        cells = cells.rename(columns={"inside": "interval contains the truth"}).reset_index()
        text = f"{NETWORKS[name]}, second network: {NETWORKS[SECOND[name]]}. {facts(frame, options.rows)}"
        (options.tables / f"{name}.md").write_text(f"{text}\n\n{markdown(cells)}")
    both = {name: errors(frame) for name, frame in frames.items()}
    summary = pd.DataFrame({NETWORKS[name]: found["all"] for name, found in both.items()})
    summary["under label noise"] = pd.DataFrame({n: found["label noise"] for n, found in both.items()}).mean(
        axis=1
    )
    summary = summary.loc[summary.iloc[:, :-1].mean(axis=1).sort_values().index]
    table = markdown(summary.round(1).reset_index())
    (options.tables / "summary.md").write_text(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["ann", "cnn", "resnet20"], choices=list(SECOND))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE, help="what the networks did")
    parser.add_argument(
        "--weights", type=Path, help="where volatility_networks.py left them (default: --cache)"
    )
    parser.add_argument("--tables", type=Path, help="folder for the tables as Markdown")
    parser.add_argument("--rows", type=int, default=2000, help="reference rows, and as many operational ones")
    parser.add_argument("--pgd-steps", type=int, default=5, help="steps of PGD; 0 leaves it out")
    parser.add_argument(
        "--only", nargs="+", help="observe these categories and print no table: a share of the work"
    )
    arguments = parser.parse_args()
    np.set_printoptions(precision=3)
    found = {}
    for chosen in arguments.networks:
        result = table(chosen, arguments)
        if arguments.only:
            continue
        result.to_csv(arguments.cache / f"estimates-{chosen}.csv", index=False)
        report(chosen, result, arguments.rows)
        found[chosen] = result
    if arguments.tables and found:
        write_tables(found, arguments)
