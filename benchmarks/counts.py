"""What counts say about accuracy: trials whose truth is known, under label shift and under other shifts.

    python benchmarks/counts.py trials --subject mnist --trials 100
    python benchmarks/counts.py shifts --subject mnist --trials 100
    python benchmarks/counts.py known --subject mnist --trials 100     # the same trials, frequencies given
    python benchmarks/counts.py labels --subject mnist --trials 40     # with labels of 100 inputs
    python benchmarks/counts.py speed
    python benchmarks/counts.py table            # whatever trials and shifts are in the cache

Subjects: mnist, fashion-mnist (the networks and draws of `papers/reshape.py`) and gtsrb (43 classes, a small
CNN with 20 neurons before the output). Method and constants were fixed with `--first-seed 5000`; the reported
trials are those of `--first-seed 1000`, run once. Every trial is written to the cache as it is done, and is
skipped when it is there; `known` and `labels` keep nothing. A small run: `trials --trials 2 --resamples 50`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

import assay
from assay import Bins, Histogram, Network, Trace
from assay.storage import write_text_whole

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "papers")]

DATA = Path(os.environ.get("ASSAY_DATA", ROOT.parent / "data"))
CACHE = Path(os.environ.get("ASSAY_CACHE", DATA / "runs")) / "counts"
SUBJECTS = ("mnist", "fashion-mnist", "gtsrb")
FAULTS = ("gaussian", "shot", "impulse", "gaussian_blur", "defocus_blur", "snow", "fog", "brightness")
GTSRB_TEST, GTSRB_OPERATIONAL = 6_000, 2_000
GAMMA = 2.0
LABELLED = 100


class Pool:
    """Held-out images to draw test sets and operation from, by class, and the network that sees them."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        CACHE.mkdir(parents=True, exist_ok=True)
        if subject == "gtsrb":
            self._gtsrb()
        else:
            import reshape

            pool = reshape.Pool(DATA / subject, CACHE)
            self.network, self.images, self.labels, self.bins = (
                pool.network, pool.images, pool.labels.numpy(), pool.bins,
            )  # fmt: skip
        self.clean = self.network.observe((self.images, torch.from_numpy(self.labels)))
        self.cells, self.predictions = self.bins.cells(self.clean), self.clean.predictions.numpy()

    def _gtsrb(self) -> None:
        from subjects import images

        train, test = images("gtsrb", "train"), images("gtsrb", "test")
        self.network = Network(_trained_gtsrb(*train), batch_size=500)
        self.images, self.labels = test[0], test[1].numpy()
        self.bins = Bins.from_bounds(self.network, low=0.0, high=1.0, width=1.0, shape=(3, 32, 32))

    def drawn(self, trial: int, seed: int, shifted: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the test set and of operation, without replacement; shifted: their classes differ."""
        rng = np.random.default_rng(seed + trial)
        free = np.ones(len(self.labels), bool)
        if self.subject == "gtsrb":
            natural = np.bincount(self.labels).astype(float)
            rare = rng.random(len(natural)) < 0.5
            shares = natural * np.where(rare, 0.25, 1.0), natural * np.where(rare, 1.0, 0.25)
            sizes = GTSRB_TEST, GTSRB_OPERATIONAL
        else:
            import reshape

            jitter = rng.uniform(0.7, 1.3, (2, 10))
            shares = reshape.TEST_SHARES * jitter[0], reshape.OPERATIONAL_SHARES * jitter[1]
            sizes = reshape.SIZES[trial % len(reshape.SIZES)], reshape.OPERATIONAL
        if not shifted:
            shares = shares[0], shares[0]
        test, outside = (_rows(self.labels, *one, free, rng) for one in zip(sizes, shares, strict=True))
        return test, outside

    def estimate(self, test: np.ndarray, operational: Histogram, resamples: int) -> assay.CountsEstimate:
        from assay.reshaping.counts_estimate import counts_estimate

        return counts_estimate(
            self.cells[test].numpy(), self.labels[test], self.predictions[test], operational,
            assay.reshaping.accuracy, level=0.95, resamples=resamples, seed=0,
        )  # fmt: skip


def _rows(
    labels: np.ndarray, count: int, shares: np.ndarray, free: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Like `reshape.Pool.draw`, in the same order of random numbers."""
    wanted = rng.multinomial(count, shares / shares.sum())
    parts = []
    for label, number in enumerate(wanted):
        there = np.flatnonzero(free & (labels == label))
        parts.append(rng.choice(there, min(number, len(there)), replace=False))
    drawn = rng.permutation(np.concatenate(parts))
    free[drawn] = False
    return drawn


def _trained_gtsrb(images: torch.Tensor, labels: torch.Tensor) -> nn.Module:
    path = CACHE / "gtsrb.pt"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(
            *(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten()),
            *(nn.Linear(1152, 64), nn.ReLU(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 43)),
        )
        if path.is_file():
            module.load_state_dict(torch.load(path, weights_only=True))
            return module.eval()
        optimiser = torch.optim.Adam(module.parameters(), 2e-3)
        for _ in range(12):
            for batch in torch.randperm(len(labels)).split(64):
                optimiser.zero_grad()
                nn.functional.cross_entropy(module(images[batch]), labels[batch]).backward()
                optimiser.step()
    torch.save(module.state_dict(), path)
    return module.eval()


def _missing(part: str, subject: str, count: int, first_seed: int) -> Iterator[tuple[int, Path, Pool]]:
    """(trial, path, pool) of every trial that is not in the cache."""
    pool = None
    for trial in range(count):
        path = CACHE / f"{part}-{subject}-{first_seed}-{trial}.json"
        if not path.is_file():
            pool = pool or Pool(subject)
            yield trial, path, pool


def trials(subject: str, count: int, first_seed: int, resamples: int) -> None:
    """Test set and operation differ in their classes only."""
    for trial, path, pool in _missing("trials", subject, count, first_seed):
        test, outside = pool.drawn(trial, first_seed, shifted=True)
        start = time.process_time()
        histogram = Histogram.of_cells(pool.cells[outside], pool.bins)
        estimate = pool.estimate(test, histogram, resamples)
        facts = _facts(estimate, pool.predictions[outside] == pool.labels[outside])
        write_text_whole(path, json.dumps(facts | {"trial": trial, "seconds": time.process_time() - start}))
    print(trials_table(subject, first_seed))


def known(subject: str, count: int, first_seed: int) -> None:
    """The error that is left if the class frequencies of operation were given: nothing is fitted."""
    pool, errors = Pool(subject), []
    right, classes = pool.predictions == pool.labels, int(pool.labels.max()) + 1
    for trial in range(count):
        test, outside = pool.drawn(trial, first_seed, shifted=True)
        ours, there = (np.bincount(pool.labels[rows], minlength=classes) for rows in (test, outside))
        hits = np.bincount(pool.labels[test], right[test], minlength=classes)
        value = there @ (hits / np.maximum(ours, 1)) / there.sum()
        errors.append(abs(value - right[outside].mean()))
    print(f"{subject}, {count} trials of seeds {first_seed}+: error with known class frequencies "
          f"{np.mean(errors):.4f} (largest {np.max(errors):.4f})")  # fmt: skip


def labels(subject: str, count: int, first_seed: int, resamples: int) -> None:
    """Counts with labels of a few inputs, under label shift and under the faults of `shifts`."""
    pool = Pool(subject)
    for shift in ("label shift", "fault"):
        facts = []
        for trial in range(count):
            test, outside = pool.drawn(trial, first_seed, shifted=shift == "label shift")
            home, live = (pool.clean[torch.from_numpy(rows)] for rows in (test, outside))
            if shift == "fault":
                live = pool.network.observe((_with_fault(pool, outside, trial), live.labels))
            found = assay.accuracy.accuracy_from_counts_and_labels(
                home, Histogram.of(live, pool.bins), live[:LABELLED], resamples=resamples, seed=trial
            )  # the rows of operation are in random order
            truth = float(live.correct.double().mean())
            facts.append({
                "error": abs(found.value - truth), "held": found.lower <= truth <= found.upper,
                "half-width": (found.upper - found.lower) / 2, "power": found.power,
                "labels alone": (found.alone[2] - found.alone[1]) / 2,
            })  # fmt: skip
        means = pd.DataFrame(facts).mean().to_string(float_format="{:.4f}".format)
        print(f"{subject}, {shift}, {count} trials of seeds {first_seed}+, {LABELLED} labels\n{means}")


def _with_fault(pool: Pool, rows: np.ndarray, trial: int) -> torch.Tensor:
    fault, severity = _fault(trial)
    return (assay.faults.NOISE | assay.faults.SHIFT)[fault](pool.images[rows], severity, seed=trial)


def _fault(trial: int) -> tuple[str, int]:
    return FAULTS[trial % len(FAULTS)], 1 + trial // len(FAULTS) % 5


def shifts(subject: str, count: int, first_seed: int, resamples: int) -> None:
    """The same classes in both; operation has a fault: noise, blur or weather of severity 1 to 5."""
    for trial, path, pool in _missing("shifts", subject, count, first_seed):
        test, outside = pool.drawn(trial, first_seed, shifted=False)
        inputs = _with_fault(pool, outside, trial)
        trace: Trace = pool.network.observe((inputs, torch.from_numpy(pool.labels[outside])))
        estimate = pool.estimate(test, Histogram.of(trace, pool.bins), resamples)
        facts = _facts(estimate, trace.correct.numpy())
        fault, severity = _fault(trial)
        write_text_whole(path, json.dumps(facts | {"trial": trial, "fault": fault, "severity": severity}))
    print(shifts_table(subject, first_seed))


def _facts(estimate: assay.CountsEstimate, correct: np.ndarray) -> dict[str, object]:
    assert estimate.sensitivity is not None
    lower, upper = estimate.sensitivity.range_at(GAMMA)  # what it would be without the alarm
    return {
        "truth": float(correct.mean()), "value": estimate.value, "lower": estimate.lower,
        "upper": estimate.upper, "unshaped": estimate.unshaped, "p_value": estimate.p_value,
        "gamma_lower": lower, "gamma_upper": upper, "points": estimate.points, "inputs": estimate.inputs,
    }  # fmt: skip


def _read(part: str, subject: str, first_seed: int) -> pd.DataFrame:
    paths = sorted(CACHE.glob(f"{part}-{subject}-{first_seed}-*.json"))
    return pd.DataFrame([json.loads(path.read_text()) for path in paths])


def _held(frame: pd.DataFrame, lower: str = "lower", upper: str = "upper") -> pd.Series:
    return (frame[lower] <= frame["truth"]) & (frame["truth"] <= frame[upper])


def trials_table(subject: str, first_seed: int) -> str:
    frame = _read("trials", subject, first_seed)
    if frame.empty:
        return f"{subject}: no trials"
    error, unshaped = ((frame[name] - frame["truth"]).abs() for name in ("value", "unshaped"))
    noise = (error - unshaped).std() / len(frame) ** 0.5
    width = (frame["upper"] - frame["lower"]).mean() / 2
    small, alarms = ((frame["p_value"] < limit).mean() for limit in (0.05, 0.01))
    return (
        f"{subject}, {len(frame)} trials of seeds {first_seed}+: error {error.mean():.4f} (largest "
        f"{error.max():.4f}), "
        f"unshaped {unshaped.mean():.4f}, difference {(error - unshaped).mean():+.4f} +- {noise:.4f}; "
        f"interval held {_held(frame).mean():.0%}, half-width {width:.4f}; "
        f"gamma 2 held {_held(frame, 'gamma_lower', 'gamma_upper').mean():.0%}; "
        f"p < 0.05 in {small:.0%}, alarm in {alarms:.0%}; "
        f"{frame['seconds'].median():.2f} s each; {frame['points'].min()} to {frame['points'].max()} points"
    )


def shifts_table(subject: str, first_seed: int) -> str:
    frame = _read("shifts", subject, first_seed)
    if frame.empty:
        return f"{subject}: no shifts"
    frame["alarm"] = frame["p_value"] < 0.01
    frame["drop"] = frame["unshaped"] - frame["truth"]
    frame["error"] = (frame["value"] - frame["truth"]).abs()
    frame["interval held"] = _held(frame)
    # With an alarm, the range that `range_at` answers is 0 to 1.
    frame["gamma 2 alone held"] = _held(frame, "gamma_lower", "gamma_upper")
    frame["range held"] = frame["alarm"] | frame["gamma 2 alone held"]
    frame["alarm or interval held"] = frame["alarm"] | frame["interval held"]
    columns = ["drop", "error", "alarm", "interval held", "gamma 2 alone held", "alarm or interval held",
               "range held"]  # fmt: skip
    tables = [
        frame.groupby(name)[columns].mean().to_string(float_format="{:.3f}".format)
        for name in ("severity", "fault")
    ]
    whole = frame[columns].mean().to_string(float_format="{:.3f}".format)
    return f"{subject}, {len(frame)} shifts of seeds {first_seed}+\n{whole}\n" + "\n".join(tables)


def speed() -> None:
    """One device against a test set of 20,000 points, in processor seconds."""
    pool = Pool("mnist")
    test, outside = pool.drawn(3, 1000, shifted=True)
    histogram = Histogram.of_cells(pool.cells[outside], pool.bins)
    start, wall = time.process_time(), time.perf_counter()
    pool.estimate(test, histogram, 500)
    print(f"{len(test)} points, {histogram.total} inputs, 500 resamples: {time.process_time() - start:.2f} "
          f"processor seconds, {time.perf_counter() - wall:.2f} s")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["trials", "shifts", "known", "labels", "speed", "table"])
    parser.add_argument("--subject", choices=SUBJECTS, default="mnist")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    options = parser.parse_args()
    if options.part == "speed":
        speed()
    elif options.part == "known":
        known(options.subject, options.trials, options.first_seed)
    elif options.part == "table":
        for subject in SUBJECTS:
            print(trials_table(subject, options.first_seed))
            print(shifts_table(subject, options.first_seed))
    else:
        run = {"trials": trials, "shifts": shifts, "labels": labels}[options.part]
        run(options.subject, options.trials, options.first_seed, options.resamples)


if __name__ == "__main__":
    main()
