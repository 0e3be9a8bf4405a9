"""OmniInput's precision and recall: the toy against enumeration, MNIST networks.

    python benchmarks/papers/omniinput_precision.py toy          # Eqs. 3, 4 against all 10^8 inputs
    python benchmarks/papers/omniinput_precision.py traditional  # Tables 1 to 3: fixed test sets
    python benchmarks/papers/omniinput_precision.py mnist        # Figs. 4 and 5, by a judge in code

`mnist` reads the distributions that `omniinput.py mnist` leaves in --cache. What takes long is cached there;
figures are written to --figures. Not part of the test suite.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import assay

sys.path.insert(0, str(Path(__file__).parent))
import omniinput_models as models
import omniinput_toy as toys
from omniinput_judge import OnesJudge, mnist_images
from omniinput_options import run
from pages import markdown
from table_files import write_table


def toy(asked: argparse.Namespace) -> None:
    """Sampled curves, from all kept inputs and from 50 per bin, beside the enumerated one."""
    model = toys.toy_model()
    outputs = toys.toy_enumeration(model, asked.cache).numpy()
    edges, counts, good = _counted(outputs, asked.cache / "toy-counts.npz")
    with np.errstate(divide="ignore"):
        exact_recall = np.log(np.cumsum(good) / 10**8)
    exact = np.cumsum(good) / np.cumsum(counts)
    path = asked.cache / f"toy-{asked.budget}.safetensors"
    if not path.exists():
        lm = toys.toy_language_model(model)
        assay.save(assay.sample_outputs(lm, bins=edges, budget=asked.budget, seed=0, keep=200), path)
    dist = assay.load(path)
    curves = {"all kept inputs": assay.precision_recall(dist, divisible_by_30)}
    items = assay.choose_items(dist, 50)
    labels = items.to_frame().assign(score=divisible_by_30(items.inputs).numpy(), annotator="rule")
    curves["50 per bin"] = assay.precision_recall(dist, labels)
    rows = [_beside(name, curve, exact, exact_recall) for name, curve in curves.items()]
    figure = curves["50 per bin"].plot()
    known = np.isfinite(exact_recall)
    figure.axes[0].plot(
        exact_recall[known] / math.log(10),
        exact[known],
        "--",
        color="black",
        label="all 10^8 inputs enumerated",
    )
    figure.axes[0].legend(frameon=False)
    figure.savefig(asked.figures / "omniinput-toy-precision.png", dpi=120)
    settled = assay.precision_convergence(dist, divisible_by_30)
    write_table(
        asked.figures,
        "toy-precision",
        f"{markdown(pd.DataFrame(rows))}\n\n{dist.summary()} {settled.summary()}\n\n"
        "![precision over log-recall of the toy, sampled and enumerated]"
        "(../images/omniinput-toy-precision.png)\n",
    )


def divisible_by_30(inputs: Tensor) -> Tensor:
    return (inputs.sum(dim=1) % 30 == 0).double()


def _counted(outputs: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half-nat edges over bins of at least 1,000 inputs; how many those hold, and how many right ones."""
    if not path.exists():
        low = math.floor(outputs.min())
        place = ((outputs - low) * 2).astype(np.int32)
        sums = np.zeros(1, dtype=np.uint8)
        for _ in range(8):
            sums = np.add.outer(sums, np.arange(10, dtype=np.uint8)).ravel()
        counts, good = np.bincount(place), np.bincount(place[sums % 30 == 0], minlength=place.max() + 1)
        filled = np.flatnonzero(counts >= 1000)
        inside = slice(filled[0], filled[-1] + 1)
        edges = low + np.arange(filled[0], filled[-1] + 2) / 2
        np.savez(path, edges=edges, counts=counts[inside], good=good[inside])
    found = np.load(path)
    return found["edges"], found["counts"], found["good"]


def _beside(
    name: str, curve: assay.PrecisionRecall, exact: np.ndarray, exact_recall: np.ndarray
) -> dict[str, str]:
    frame, at = curve.to_frame(), curve.bins
    exact, exact_recall = exact[at], exact_recall[at]
    known = np.isfinite(exact_recall)
    inside = (frame["precision_lower"] <= exact) & (exact <= frame["precision_upper"])
    covered = (frame["log_recall_lower"] <= exact_recall) & (exact_recall <= frame["log_recall_upper"])
    apart = np.abs(frame["log_recall"] - exact_recall)[known]
    true_area = np.trapezoid(exact[known], exact_recall[known])
    low, high = curve.aupr_interval
    return {
        "judged": f"{name}, {curve.items.sum():,} inputs",
        "largest error of precision": f"{np.abs(frame['precision'] - exact).max():.4f}",
        "thresholds whose 95 % interval contains the exact precision": f"{inside.mean():.0%}",
        "largest error of log-recall": f"{apart.max():.3f} nats",
        "contains the exact recall": f"{covered[known].mean():.0%}",
        f"area (95 % interval); exact {true_area:.3f}": f"{curve.aupr:.3f} ({low:.3f} to {high:.3f})",
    }


MEASURES = ("AUPR", "AUROC", "FPR95")


def traditional(asked: argparse.Namespace) -> None:
    """AUPR, AUROC and FPR95 of each network with the ones of the test set against several negatives."""
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    images, labels = mnist_images(asked, "test")
    positive = images[labels == 1]
    fashion = assay.data.read_idx(asked.data / "fashion-mnist", split="test")[0][:, 0] * 255
    noise = torch.randint(256, (5000, 28, 28), generator=torch.Generator().manual_seed(0)).float()
    negatives = {
        "0 (in-dist)": images[labels == 0],
        "digits 2 to 9": images[labels > 1],
        "Fashion-MNIST": fashion,
        "inverted 0": 255 - images[labels == 0],
        "uniform noise": noise,
    }
    rows = []
    for name in asked.networks:
        net = _network(asked, name)
        with torch.no_grad():
            sure = net(positive).numpy()
            for negative, inputs in negatives.items():
                scores = np.concatenate([sure, torch.cat([net(part) for part in inputs.split(2000)]).numpy()])
                truth = np.arange(len(scores)) < len(sure)
                false_rate, true_rate, _ = roc_curve(truth, scores)
                rows.append(
                    {
                        "network": name.upper(),
                        "negative": negative,
                        "AUPR": 100 * average_precision_score(truth, scores),
                        "AUROC": 100 * roc_auc_score(truth, scores),
                        "FPR95": 100 * false_rate[np.searchsorted(true_rate, 0.95)],
                    }
                )
    table = pd.DataFrame(rows)
    table["cell"] = [f"{a:.2f} / {b:.2f} / {c:.2f}" for a, b, c in table[list(MEASURES)].to_numpy()]
    wide = table.pivot(index="network", columns="negative", values="cell").loc[
        table["network"].unique(), list(negatives)
    ]
    wide = (
        wide.rename_axis(columns=None)
        .reset_index()
        .rename(columns={"network": " / ".join(MEASURES) + " (%)"})
    )
    print(wide.to_string(index=False))
    if asked.tables:
        (asked.tables / "traditional.md").write_text(markdown(wide), encoding="utf-8")


def _network(asked: argparse.Namespace, name: str) -> nn.Module:
    backbone, _, noisy = name.partition("-")
    return models.trained_mnist(backbone, asked.data / "mnist", asked.cache, bool(noisy))


def mnist(asked: argparse.Namespace) -> None:
    """Precision and recall of the networks that were sampled, by the stand-in judge (Figs. 4 and 5)."""
    paths = {name: asked.cache / f"omniinput-mnist-{name}.safetensors" for name in asked.networks}
    sampled = {name: path for name, path in paths.items() if path.exists()}
    if not sampled:
        raise SystemExit(f"expected distributions in {asked.cache}, found none; run omniinput.py mnist first")
    judge = OnesJudge(asked)
    known = judge.described(asked)
    curves, rows, settled = {}, [], []
    for name, path in sampled.items():
        dist = assay.load(path)
        items = assay.choose_items(dist, 50, confident="high")
        labels = items.to_frame().assign(score=judge(items.inputs).numpy(), annotator="stand-in")
        curve = assay.precision_recall(dist, labels.assign(row=labels["item"]), confident="high")
        curves[name] = curve
        rows.append(_judged(name, dist, curve, items))
        steps = assay.precision_convergence(dist, judge, confident="high").to_frame()
        settled.append({"network": name.upper()} | _settled(steps))
        print(f"\n{name}: {curve.summary()}\n{curve.to_frame().head(12).to_string(index=False)}", flush=True)
        curve.figures()[-1].savefig(asked.figures / f"omniinput-mnist-{name}-judged.png", dpi=90)
    _most_confident(curves).savefig(asked.figures / "omniinput-mnist-confident.png", dpi=80)
    scores = [{"shown": what, "mean score": f"{score:.3f}"} for what, score in known.items()]
    tables = {
        "judge": pd.DataFrame(scores),
        "mnist": pd.DataFrame(rows),
        "convergence": pd.DataFrame(settled),
    }
    if len(curves) > 1:
        compared = assay.compare_precision_recall(curves)
        print(compared.to_frame().to_string(index=False, float_format="%.4g"))
        compared.plot().savefig(asked.figures / "omniinput-mnist-precision.png", dpi=120)
        tables["compared"] = _compared(compared.to_frame())
    if asked.tables:
        for block, frame in tables.items():
            (asked.tables / f"{block}.md").write_text(markdown(frame), encoding="utf-8")


def _compared(frame: pd.DataFrame) -> pd.DataFrame:
    """The area of each network over that of another, where there are recalls that both reach."""
    frame = frame.dropna(subset="ratio")
    ends = frame[["log_recall_from", "log_recall_to"]].to_numpy() / math.log(10)
    areas = frame[["ratio", "ratio_lower", "ratio_upper"]].to_numpy()
    return pd.DataFrame(
        {
            "network": frame["model"].str.upper(),
            "beside": frame["reference"].str.upper(),
            "recalls that both reach": [f"10^{least:.0f} to 10^{most:.0f}" for least, most in ends],
            "its area over the other's (95 % interval)": [
                f"{ratio:.3g} ({low:.3g} to {high:.3g})" for ratio, low, high in areas
            ],
        }
    )


def _settled(steps: pd.DataFrame) -> dict[str, str]:
    """A row of Fig. 5: how far precision is from that of all kept inputs, by how many are judged per bin."""
    return {
        f"{per_bin:.0f} per bin": f"{mean:.4f}, {largest:.3f}"
        for per_bin, mean, largest in steps[["per_bin", "mean_difference", "largest_difference"]].to_numpy()
    }


def _judged(
    name: str, dist: assay.OutputDistribution, curve: assay.PrecisionRecall, items: assay.AnnotationItems
) -> dict[str, str]:
    """A row of Fig. 4 in words."""
    frame, (low, high) = curve.to_frame(), curve.aupr_interval
    best = frame.loc[frame["r"].idxmax()]
    distinct = [int((items.bins == bin).sum()) for bin in curve.bins]
    top = frame.iloc[0]
    sure = f"({top['precision_lower']:.3f} to {top['precision_upper']:.3f})"
    return {
        "network": name.upper(),
        "precision where it is most confident (95 % interval)": f"{top['precision']:.3f} {sure}",
        "best bin: r(z), logit": f"{best['r']:.3f}, {best['threshold']:.1f}",
        "area (95 % interval)": f"{curve.aupr:.2f} ({low:.2f} to {high:.2f})",
        "distinct inputs judged per bin, median and least": f"{np.median(distinct):.0f}, {min(distinct)}",
        "sampling converged": "yes" if dist.converged else "no",
    }


def _most_confident(curves: dict[str, assay.PrecisionRecall]):
    """Judged inputs of each network's most confident bins, with their scores: a row per network (Fig. 10)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.85 * len(curves)), layout="constrained")
    grid = figure.subplots(len(curves), 8, squeeze=False)
    for axes in grid.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_frame_on(False)
    for row, (name, curve) in enumerate(curves.items()):
        order = np.concatenate([np.flatnonzero(curve.examples.bins == bin) for bin in curve.bins[:3]])[:8]
        for axes, place in zip(grid[row], order, strict=False):
            axes.imshow(curve.examples.inputs[int(place)].numpy(), cmap="gray", vmin=0, vmax=255)
            axes.set_xlabel(f"{curve.example_scores[place]:.2f}", fontsize=6, labelpad=1)
        grid[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure


if __name__ == "__main__":
    run(__doc__.splitlines()[0], {"toy": toy, "traditional": traditional, "mnist": mnist})
