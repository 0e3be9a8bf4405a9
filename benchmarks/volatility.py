"""Speed and memory of the metric and the watch.

    OMP_NUM_THREADS=1 python benchmarks/volatility.py

The metric is compared with partition plus sort of the same data in numpy; the watch is timed at windows of
1,000 and 100,000, in batches and row by row. An update is one row that enters the window and one that leaves
it; row by row, each update also checks its row and returns a state. CPU time of one thread, the best of
several runs, so that a busy machine matters little.
"""

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

import assay
from assay.volatility.rolling import RollingVolatility


def best(run: Callable[[], object], times: int = 5) -> float:
    """CPU seconds of the fastest of several runs."""
    found = []
    for _ in range(times):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found)


def metric(count: int) -> None:
    rows = np.random.default_rng(0).dirichlet(np.full(10, 0.3), size=count)

    def plain() -> None:
        top = np.partition(rows, 8, axis=1)
        np.sort(top[:, -1] - top[:, -2])

    ours, theirs = best(lambda: assay.volatility_in_certainty(rows)), best(plain)
    print(
        f"metric, {count:,} x 10: {ours:.3f} s; numpy partition plus sort {theirs:.3f} s; "
        f"ratio {ours / theirs:.2f}"
    )


def watch(window: int, batch: int, updates: int, times: int = 3) -> float:
    generator = np.random.default_rng(0)
    reference = generator.dirichlet(np.full(10, 0.3), size=2 * window)
    watched = assay.VolatilityWatch(window).calibrate(reference, resamples=20)
    watched.update(reference[:window])
    rows = generator.dirichlet(np.full(10, 0.3), size=updates)
    parts = list(rows) if batch == 1 else [rows[start : start + batch] for start in range(0, updates, batch)]

    def run() -> None:
        for part in parts:
            watched.update(part)

    seconds = best(run, times)
    print(f"watch, window {window:,}, batches of {batch:,}: {updates / seconds:,.0f} updates a second")
    return updates / seconds


def memory(window: int) -> None:
    """Bytes of the rolling window alone; the watch also keeps the reference's margins, 8 bytes per row."""
    margins = np.random.default_rng(0).uniform(size=2 * window)
    tracemalloc.start()
    rolling = RollingVolatility(window)
    rolling.extend(margins.tolist())
    used = tracemalloc.get_traced_memory()[0] - sys.getsizeof(0)
    tracemalloc.stop()
    print(f"memory, window {window:,}: {used / window:.0f} bytes per row, {used / 1e6:.2f} MB")


def whole_memory(window: int) -> None:
    """Bytes of a calibrated watch with ten windows of reference, and what a further 200,000 rows add."""
    generator = np.random.default_rng(0)
    rows = generator.dirichlet(np.full(10, 0.3), size=10 * window)
    tracemalloc.start()
    watched = assay.VolatilityWatch(window).calibrate(rows)
    watched.update(rows)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200_000 // len(rows)):
        watched.update(rows)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(
        f"memory of the whole watch, window {window:,}, reference {len(rows):,}: {before / 1e6:.2f} MB; "
        f"after 200,000 rows more {after / 1e6:.2f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--windows", type=int, nargs=2, default=[1_000, 100_000], help="a short and a long one"
    )
    parser.add_argument("--updates", type=int, default=100_000, help="rows per run in batches")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the metric")
    options = parser.parse_args()
    short, long = options.windows
    metric(options.rows)
    rates = [watch(window, 10_000, options.updates) for window in options.windows]
    print(f"watch, window {long:,} against {short:,}: {rates[0] / rates[1]:.2f} times slower")
    rates = [watch(window, 1, 2_000, times=20) for window in options.windows]
    print(f"row by row, window {long:,} against {short:,}: {rates[0] / rates[1]:.2f} times slower")
    for window in options.windows:
        memory(window)
    whole_memory(short)


if __name__ == "__main__":
    main()
