"""The reshaping paper's experiment, and how the solver's time grows.

    python benchmarks/papers/reshape.py experiment --data ../data/mnist --trials 20
    python benchmarks/papers/reshape.py tables --tables FOLDER   # of both datasets' experiments, as Markdown
    python benchmarks/papers/reshape.py table --ortools ../h/ortools-venv/bin/python
    python benchmarks/papers/reshape.py growth
    python benchmarks/papers/reshape.py bounds

Every part writes its results into the cache folder (`--cache`) as it goes, and skips what is already there.
Without `--data` the folder is $ASSAY_DATA/mnist, or ../data/mnist beside the repository. A small run:
`experiment --trials 1`, `growth --largest 10000`, or `table --points 2000 --solvers assay,highs-simplex`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from reshape_tables import write_tables
from torch import Tensor, nn

import assay
from assay import Bins, Histogram, Network, Trace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
TRAINED, NEURONS, OPERATIONAL, EPSILON = 25_000, 20, 5_300, 0.01
# The paper's shift: 7, 8 and 9 are about a fifth each of the test set, 1 to 5 rare; in operation the reverse.
TEST_SHARES = np.array([10, 5, 5, 5, 5, 5, 5, 20, 20, 20], float)
OPERATIONAL_SHARES = np.array([13, 13, 13, 13, 13, 13, 13, 3, 3, 3], float)
SIZES = (7_000, 10_000, 14_000, 20_000)
RELAXATIONS = ("highs-simplex", "highs-ipm", "highs-hipo", "clarabel")
GROWTH = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)


def default_data() -> Path:
    return Path(os.environ.get("ASSAY_DATA", ROOT.parent / "data")) / "mnist"


class Pool:
    """A trained network with 20 neurons before its output, and held-out images to draw from by class."""

    def __init__(self, folder: Path, cache: Path) -> None:
        train, test = (assay.data.read_idx(folder, split=split) for split in ("train", "test"))
        order = torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(0))
        chosen, held_out = order[:TRAINED], order[TRAINED:]
        self.network = Network(_trained(train[0][chosen], train[1][chosen], cache / f"{folder.name}.pt"))
        self.images = torch.cat([train[0][held_out], test[0]])
        self.labels = torch.cat([train[1][held_out], test[1]])
        self.bins = Bins.from_bounds(self.network, low=0.0, high=1.0, width=1.0)

    def draw(self, count: int, shares: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Row numbers without replacement; what was drawn is no longer free."""
        wanted = rng.multinomial(count, shares / shares.sum())
        rows = []
        for label, number in enumerate(wanted):
            there = np.flatnonzero(free & (self.labels.numpy() == label))
            rows.append(rng.choice(there, min(number, len(there)), replace=False))
        drawn = rng.permutation(np.concatenate(rows))
        free[drawn] = False
        return drawn

    def observe(self, rows: np.ndarray) -> Trace:
        return self.network.observe((self.images[rows], self.labels[rows]))

    def augmented(self, count: int, shares: np.ndarray, seed: int) -> Trace:
        """Any number of points: held-out images drawn with replacement, moved by a pixel and with noise."""
        rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(seed)
        by_class = [np.flatnonzero(self.labels.numpy() == label) for label in range(10)]
        parts = []
        for start in range(0, count, 20_000):
            labels = rng.choice(10, min(20_000, count - start), p=shares / shares.sum())
            rows = np.array([rng.choice(by_class[label]) for label in labels])
            moved = self.images[rows]
            for number, part in enumerate(np.array_split(np.arange(len(rows)), 9)):
                moved[part] = torch.roll(moved[part], (number // 3 - 1, number % 3 - 1), (2, 3))
            noisy = (moved + 0.05 * torch.randn(moved.shape, generator=generator)).clamp(0, 1)
            parts.append(self.network.observe((noisy, self.labels[rows])))
        return Trace.concatenate(parts)


def _trained(images: Tensor, labels: Tensor, path: Path) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 128),
            nn.ReLU(),
            nn.Linear(128, NEURONS),
            nn.ReLU(),
            nn.Linear(NEURONS, 10),
        )
    if path.is_file():
        module.load_state_dict(torch.load(path, weights_only=True))
        return module
    optimiser = torch.optim.Adam(module.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for batch in torch.randperm(len(labels), generator=generator).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(images[batch]), labels[batch]).backward()
            optimiser.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(module.state_dict(), path)
    return module


def experiment(pool: Pool, name: str, trials: int, cache: Path) -> None:
    """Figs. 3, 4a, 4b, and the error of every estimate of the operational accuracy."""
    cache.mkdir(parents=True, exist_ok=True)
    rows = []
    for trial in range(trials):
        path = cache / f"{name}-trial-{trial}.json"
        if not path.is_file():
            path.write_text(json.dumps(_trial(pool, name, trial, cache)))
        rows.append(json.loads(path.read_text()))
        print(json.dumps(rows[-1]), flush=True)
    frame = pd.DataFrame(rows)
    frame.to_csv(cache / f"{name}-trials.csv", index=False)
    done = frame[frame["kept"] > 0]
    assay.ReshapingTrials(done).plot().savefig(cache / f"{name}-figure-4b.png", dpi=120)
    print(f"\n{name}: {len(done)} of {len(frame)} trials had a similar subset")


def _trial(pool: Pool, name: str, trial: int, cache: Path) -> dict[str, float]:
    rng = np.random.default_rng(1000 + trial)
    free = np.ones(len(pool.labels), bool)
    jitter = rng.uniform(0.7, 1.3, (2, 10))
    test = pool.observe(pool.draw(SIZES[trial % len(SIZES)], TEST_SHARES * jitter[0], free, rng))
    outside = pool.observe(pool.draw(OPERATIONAL, OPERATIONAL_SHARES * jitter[1], free, rng))
    operational = Histogram.of(outside, pool.bins)
    truth = float(outside.correct.double().mean())
    facts = {"trial": trial, "points": len(test), "truth": truth, "kept": 0.0}
    facts |= _label_free(test, outside)
    try:
        result = assay.reshape(test, operational, EPSILON, network=pool.network)
    except assay.CannotMatchError as error:
        return facts | {"smallest_epsilon": error.smallest_epsilon, "least_epsilon": error.least_epsilon}
    estimate = result.estimate(assay.accuracy)
    facts |= assay.ReshapingTrials.of([(result, outside.labels)]).to_frame().iloc[0].to_dict()
    if trial == 0:
        result.plot().savefig(cache / f"{name}-figure-3.png", dpi=120)
        result.plot_classes(outside.labels).savefig(cache / f"{name}-figure-4a.png", dpi=120)
    return facts | {
        "estimate_whole test set": estimate.unshaped,
        "estimate_label shift": estimate.counts.value,
        "estimate_kept points": estimate.kept_value,
        "estimate_entropy balancing": estimate.weighted,
        "effective_size": estimate.effective_size,
        "shift_lower": estimate.counts.lower,
        "shift_upper": estimate.counts.upper,
        "lower": estimate.kept_lower,
        "upper": estimate.kept_upper,
        "range_lower": estimate.range_lower,
        "range_upper": estimate.range_upper,
    }


def _label_free(test: Trace, outside: Trace) -> dict[str, float]:
    """The label-free estimates, which see every operational prediction and not only counts."""
    frame = assay.estimate_accuracy(test, Trace(outside.logits)).to_frame()
    return {f"estimate_label-free {row.method}": float(row.value) for row in frame.itertuples()}


def instance(pool: Pool, points: int, cache: Path) -> tuple[Trace, Histogram]:
    """A test set of any size, and operation from images the network has not seen in that form."""
    path = cache / f"instance-{points}.safetensors"
    if not path.is_file():
        assay.save(pool.augmented(points, TEST_SHARES, 2), path)
    outside = pool.augmented(OPERATIONAL, OPERATIONAL_SHARES, 1)
    return assay.load(path), Histogram.of(outside, pool.bins)


def drawn(pool: Pool, points: int) -> tuple[Trace, Histogram]:
    """Held-out images as they are, as in the experiment."""
    rng = np.random.default_rng(1)
    free = np.ones(len(pool.labels), bool)
    test = pool.observe(pool.draw(points, TEST_SHARES, free, rng))
    outside = pool.observe(pool.draw(OPERATIONAL, OPERATIONAL_SHARES, free, rng))
    return test, Histogram.of(outside, pool.bins)


def growth(pool: Pool, cache: Path, largest: int) -> None:
    """Time, gap and memory from 10,000 to a million points, on one core."""
    for points in (size for size in GROWTH if size <= largest):
        path = cache / f"growth-{points}.json"
        if not path.is_file():
            test, operational = instance(pool, points, cache)
            start = cpu_seconds()
            result = assay.reshape(test, operational, EPSILON, time_limit=900.0)
            child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            facts = {
                "points": points,
                "seconds": result.seconds,
                "cpu_seconds": cpu_seconds() - start,
                "kept": result.number_kept,
                "bound": result.bound,
                "gap": result.gap,
                "solver_gigabytes": child,
                "own_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            }
            path.write_text(json.dumps(facts))
        print(path.read_text(), flush=True)


def table(
    pool: Pool,
    cache: Path,
    points: int,
    solvers: list[str],
    ortools: str | None,
    others: str | None,
    limit: float,
) -> None:
    """Ours beside HiGHS' relaxation and the plain program of Eq. 8 in HiGHS and in SCIP (OR-Tools)."""
    test, operational = drawn(pool, points)
    plain = cache / f"plain-{points}.npz"
    bins = operational.bins.cells(test).numpy()
    np.savez(plain, bins=bins, counts=operational.counts, total=operational.total, epsilon=EPSILON)
    if "assay" in solvers:
        start = cpu_seconds()
        result = assay.reshape(test, operational, EPSILON)
        facts = {"solver": "assay", "seconds": result.seconds, "cpu_seconds": cpu_seconds() - start}
        print(json.dumps(facts | {"kept": result.number_kept, "bound": result.bound}), flush=True)
    script = str(Path(__file__).with_name("reshape_plain.py"))
    for solver in (name for name in solvers if name in RELAXATIONS):
        python = others if others and solver in ("highs-hipo", "clarabel") else sys.executable
        subprocess.run([python, script, str(plain), solver, "--limit", str(limit)], check=True)
    runs = [
        [python, script, str(plain), solver, "--limit", str(limit)]
        for solver, python in (("highs-milp", sys.executable), ("scip", ortools))
        if solver in solvers and python
    ]
    for run in [subprocess.Popen(command) for command in runs]:  # one core each
        run.wait()


def cpu_seconds() -> float:
    """Processor time of this process and its children, which other jobs on the machine do not distort."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def bounds() -> None:
    """Interval propagation on a ResNet-20 over one forward pass of one image, on one thread."""
    from networks import resnet20

    torch.set_num_threads(1)
    network = Network(resnet20())
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def seconds(action) -> float:  # type: ignore[no-untyped-def]
        action()
        times = []
        for _ in range(15):
            start = time.perf_counter()
            action()
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    with torch.no_grad():
        forward = seconds(lambda: network.module(image))
    propagation = seconds(lambda: assay.neuron_bounds(network, ["penultimate"], shape=(3, 32, 32)))
    low, high = assay.neuron_bounds(network, ["penultimate"], shape=(3, 32, 32))["penultimate"]
    print(f"forward {forward:.4f} s, bounds {propagation:.4f} s, {propagation / forward:.1f} times")
    print(f"penultimate bounds: {float(low.min()):.3g} to {float(high.max()):.3g}")
    histogram_cost(network)


def histogram_cost(network: Network) -> None:
    """The time to count a batch, and that of the forward pass before it."""
    images = torch.rand(256, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    trace = network.observe(images)
    bins = Bins.from_data(trace, width=0.05)
    times = {}
    for name, action in {
        "observe 256 images": lambda: network.observe(images),
        "count them": lambda: Histogram.of(trace, bins),
    }.items():
        samples = []
        for _ in range(7):
            start = time.perf_counter()
            action()
            samples.append(time.perf_counter() - start)
        times[name] = float(np.median(samples))
    print({name: f"{value * 1000:.2f} ms" for name, value in times.items()})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["experiment", "tables", "table", "growth", "bounds"])
    parser.add_argument("--data", type=Path, default=default_data(), help="folder with the IDX files")
    parser.add_argument("--cache", type=Path, default=Path("reshape-cache"), help="folder for results")
    parser.add_argument("--tables", type=Path, default=Path("reshape-tables"), help="tables: where to")
    parser.add_argument("--trials", type=int, default=20, help="experiment: number of trials")
    parser.add_argument("--points", type=int, default=20_000, help="table: number of test points")
    parser.add_argument("--largest", type=int, default=GROWTH[-1], help="growth: most test points")
    parser.add_argument("--solvers", default="assay,highs-simplex,highs-ipm,highs-milp,scip", help="table")
    parser.add_argument("--limit", type=float, default=300.0, help="table: seconds per solver")
    parser.add_argument("--others", help="table: a python that has clarabel and highspy-extras (HiPO)")
    parser.add_argument("--ortools", help="table: a python that has ortools, in its own environment")
    options = parser.parse_args()
    if options.part == "bounds":
        bounds()
        return
    if options.part == "tables":
        options.tables.mkdir(parents=True, exist_ok=True)
        write_tables(options.cache, options.tables)
        return
    if not options.data.is_dir():
        parser.error(f"expected the IDX files of MNIST in {options.data}; pass --data, or set ASSAY_DATA")
    options.cache.mkdir(parents=True, exist_ok=True)
    pool = Pool(options.data, options.cache)
    if options.part == "experiment":
        experiment(pool, options.data.name, options.trials, options.cache)
    elif options.part == "growth":
        growth(pool, options.cache, options.largest)
    else:
        solvers = options.solvers.split(",")
        table(pool, options.cache, options.points, solvers, options.ortools, options.others, options.limit)


if __name__ == "__main__":
    main()
