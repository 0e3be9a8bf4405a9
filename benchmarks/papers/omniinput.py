"""OmniInput's experiments that fit a laptop: the toy and its enumeration, stories260K, MNIST 0/1 networks.

    python benchmarks/papers/omniinput.py toy      # Fig. 2: density and per-bin precision, largest error
    python benchmarks/papers/omniinput.py stories  # 512^25 inputs of a real language model
    python benchmarks/papers/omniinput.py mnist    # 256^784 inputs of the classifiers of appendix E

What takes long is cached or checkpointed in --cache (outside the repository) and goes on from there.
Figures are written to --figures. Not part of the test suite.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import assay

sys.path.insert(0, str(Path(__file__).parent))
import omniinput_models as models
import omniinput_toy as toys
from omniinput_options import run
from pages import markdown
from table_files import write_table

SQUASH = {"cnn": 15.0, "res": 6.0}  # networks whose logit jumps along a ladder of the logit itself


def toy(asked: argparse.Namespace) -> None:
    """Density and per-bin precision r(z) (sum divisible by 30), sampled and enumerated (Fig. 2)."""
    model = toys.toy_model()
    outputs = toys.toy_enumeration(model, asked.cache).numpy()
    total = np.exp(-outputs.astype(np.float64)).sum()
    edges = np.arange(np.floor(outputs.min()), outputs.max() + 0.5, 0.5)
    counts = np.histogram(outputs, edges)[0]
    filled = np.flatnonzero(counts >= 1000)
    edges, counts = edges[filled[0] : filled[-1] + 2], counts[filled[0] : filled[-1] + 1]
    exact = np.log(counts / len(outputs))
    digits = np.arange(10**8, dtype=np.int64)
    sums = sum((digits // 10**place % 10).astype(np.int16) for place in range(8))
    good = np.histogram(outputs[sums % 30 == 0], edges)[0] / counts
    started = time.monotonic()
    lm = toys.toy_language_model(model)
    dist = assay.sample_outputs(lm, bins=edges, budget=asked.budget, seed=0, keep=200, ensembles=8)
    seconds = time.monotonic() - started
    error = np.abs(dist.log_density - exact)
    precision = np.array([sampled_precision(dist, index) for index in range(len(exact))])
    off = np.abs(precision - good)
    text = (
        f"The likelihoods of all 10^8 inputs add up to {total:.5f} (exact: 1). "
        f"{dist.diagnostics['evaluations']:,} evaluations ({seconds:.0f} s) give the log density of "
        f"{len(exact)} bins with a largest error of {np.nanmax(error):.3f} nats; "
        f"{np.mean(error <= 2 * dist.error):.0%} of the bins are within two of the stated errors. The "
        f"precision r(z) is off by {np.nanmax(off):.3f} at most and {np.nanmean(off):.4f} on average. "
        f"{converged(dist)}\n\n![density and precision of the toy, sampled and enumerated]"
        "(../images/omniinput-toy.png)\n"
    )
    write_table(asked.figures, "toy", text)
    figure(asked, dist, exact, precision, good)


def converged(dist: assay.OutputDistribution) -> str:
    return "Converged." if dist.converged else f"Not converged: {'; '.join(map(str, dist.reasons))}."


def sampled_precision(dist: assay.OutputDistribution, index: int) -> float:
    """r(z): the weighted share of a bin's samples whose digits add up to a multiple of 30."""
    inputs = dist.samples(index)
    return (
        float(dist.weights(index) @ (inputs.sum(dim=1) % 30 == 0).double().numpy()) if len(inputs) else np.nan
    )


def figure(asked, dist, exact, precision, good) -> None:
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 4), layout="constrained")
    axes = drawn.add_subplot()
    axes.plot(dist.centres, exact / np.log(10), color="#000000", label="density, enumerated")
    axes.errorbar(
        dist.centres,
        dist.log_density / np.log(10),
        2 * dist.error / np.log(10),
        fmt=".",
        color="#0072B2",
        label="density, sampled, ± 2 standard errors",
    )
    axes.set_xlabel("negative log-likelihood (nats)")
    axes.set_ylabel("log10 of the share of all 10^8 inputs")
    right = axes.twinx()
    right.plot(dist.centres, good, color="#D55E00", alpha=0.6, label="precision r(z), enumerated")
    right.plot(dist.centres, precision, "x", color="#D55E00", label="precision r(z), sampled")
    right.set_ylabel("precision r(z)")
    drawn.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    drawn.savefig(asked.figures / "omniinput-toy.png", dpi=120)


def stories(asked: argparse.Namespace) -> None:
    """Negative log-likelihood of stories260K over all 512^25 token sequences, with a sample of every bin."""
    model, pieces = models.stories260k(asked.shared / "stories260K")
    lm = assay.CausalLM.from_huggingface(model, length=25, start=1)
    edges = np.arange(10.0, 260.1, 5.0)
    dist = assay.sample_outputs(
        lm,
        bins=edges,
        budget=asked.budget,
        seed=0,
        ensembles=4,
        decode=lambda row: "".join(pieces[token] for token in row),
        checkpoint=asked.cache / "stories.checkpoint",
    )
    report(asked, dist, "omniinput-stories")
    found = dist.diagnostics
    below = np.exp(dist.log_density[:1] + dist.space.log_size)[0]
    rows = [
        {"nats per token": f"{edges[index] / 25:.1f}", "input": dist.texts(int(index))[0].strip()}
        for index in np.flatnonzero(dist.visited)[::4]
    ]
    for row in rows:
        row["input"] = " ".join(row["input"].replace("|", " ").split())
    text = (
        f"{converged(dist)} {dist.summary()} {found['evaluations']:,} evaluations, {found['seconds']:.0f} s, "
        f"{found['share_outside_model']:.0%} of them outside the forward. About {below:,.0f} sequences lie "
        f"below {edges[1] / 25:.1f} nats per token (in natural logarithms {np.log(below):.2f} ± "
        f"{dist.error[0]:.2f}).\n\n{markdown(pd.DataFrame(rows))}\n\n"
        "![log density of stories260K](../images/omniinput-stories-density.png)\n"
    )
    write_table(asked.figures, "stories", text)


def mnist(asked: argparse.Namespace) -> None:
    """Logit of "1" over all 256^784 images, for the classifiers of appendix E."""
    folder = asked.data / "mnist"
    images, labels = models.mnist_zero_one(folder, "test")
    noise = torch.randint(256, (500, 28, 28), generator=torch.Generator().manual_seed(0))
    for name in asked.networks:
        backbone, _, noisy = name.partition("-")
        net = models.trained_mnist(backbone, folder, asked.cache, bool(noisy))
        with torch.no_grad():
            logits, of_noise = net(images), net(noise)
        correct = ((logits > 0) == (labels == 1)).float().mean()
        print(
            f"\n{name}: test accuracy {correct:.2%}, test logits {logits.min():.1f} to {logits.max():.1f}, ",
            end="",
        )
        print(f"logits of uniform noise {of_noise.mean():.2f} ± {of_noise.std():.2f}")
        dist = assay.sample_outputs(
            net,
            assay.InputSpace((28, 28), 256),
            bins=np.linspace(float(logits.min()), float(logits.max()), asked.bins + 1),
            budget=asked.budget,
            seconds=asked.seconds,
            seed=0,
            kernel="tilted" if backbone == "mlp" else ["tilted", "hamiltonian"],  # an MLP is nearly linear
            squash=(float(of_noise.mean()), SQUASH[name]) if name in SQUASH else None,
            checkpoint=asked.cache / f"mnist-{name}.checkpoint",
        )
        report(asked, dist, f"omniinput-mnist-{name}")
    if asked.tables:
        (asked.tables / "networks.md").write_text(_networks(asked), encoding="utf-8")


PAPER_ACCURACY = {
    "mlp": "99.95 %",
    "mlp-aug": "99.91 %",
    "cnn": "97.87 %",
    "cnn-aug": "99.33 %",
    "res": "left out",
    "res-aug": "99.95 %",
}


def _networks(asked: argparse.Namespace) -> str:
    """A row per network that was sampled so far."""
    images, labels = models.mnist_zero_one(asked.data / "mnist", "test")
    rows = []
    for name, printed in PAPER_ACCURACY.items():
        path = asked.cache / f"omniinput-mnist-{name}.safetensors"
        if not path.exists():
            continue
        backbone, _, noisy = name.partition("-")
        net = models.trained_mnist(backbone, asked.data / "mnist", asked.cache, bool(noisy))
        with torch.no_grad():
            correct = float(((net(images) > 0) == (labels == 1)).float().mean())
        known = {
            "network": f"{name.upper()}-MNIST-0/1",
            "test accuracy (paper)": f"{correct:.2%} ({printed})",
        }
        rows.append(known | _sampled(assay.load(path)))
    return markdown(pd.DataFrame(rows))


def _sampled(dist: assay.OutputDistribution) -> dict[str, str]:
    """What a row of the table says about a distribution."""
    seen = dist.visited
    span = (dist.log_density[seen].max() - dist.log_density[seen].min()) / np.log(10)
    error = dist.error[seen]
    carried = [1 / float((dist.weights(int(bin)) ** 2).sum()) for bin in np.flatnonzero(seen)]
    return {
        "bins visited": f"{seen.sum()} of {len(seen)}",
        "orders of magnitude": f"{span:.0f}",
        "standard error, median and worst bin": f"{np.median(error):.2f}, {error.max():.2f} nats",
        "kept inputs that carry a bin, median and least": f"{np.median(carried):.0f}, {min(carried):.0f}",
        "evaluations": f"{dist.diagnostics['evaluations']:,}",
        "converged": "**yes**" if dist.converged else f"no: {'; '.join(map(str, dist.reasons[:2]))}",
    }


def report(asked: argparse.Namespace, dist: assay.OutputDistribution, name: str) -> None:
    print(dist.summary())
    found = dist.diagnostics
    print(f"{found['evaluations']:,} evaluations in {found['seconds']:.0f} s, ", end="")
    print(f"{found['share_outside_model']:.1%} of the time outside the forward")
    print(dist.to_frame().to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    assay.save(dist, asked.cache / f"{name}.safetensors")
    for part, drawn in zip(("density", "inputs"), dist.figures(), strict=True):
        drawn.savefig(asked.figures / f"{name}-{part}.png", dpi=120)


if __name__ == "__main__":
    run(__doc__.splitlines()[0], {"toy": toy, "stories": stories, "mnist": mnist})
