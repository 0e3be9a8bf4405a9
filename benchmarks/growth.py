"""How cost grows with rows, features and classes, in one process of one thread.

    python benchmarks/growth.py stream --rows 5e5 5e6 5e7   # fit and score 128 features in flat memory
    python benchmarks/growth.py sizes                       # fit and score against features and classes
    python benchmarks/growth.py parts                       # observe, traces and benchmark against rows

Seconds are of processor time, so that a busy machine changes them little; each line is of a process of its
own, whose peak memory is beside it.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

import assay
from assay import Network, ShardedTrace, Trace
from assay.monitors import KNN, Energy, KLMatching, Mahalanobis, Monitor, ViM
from assay.outputs import LOGITS

CLASSES = 10
SHARD = 65_536
MOST_NEIGHBOURS = 5_000_000
"""Rows that KNN scores at most: more would take a quarter of an hour and say the same."""


def shards(rows: int, features: int, classes: int = CLASSES, size: int = SHARD) -> Iterator[Trace]:
    """Features about class means and logits that are linear in them, made as they are asked for.

    A row is the sum of one row each of two tables. They are moved against each other from shard to shard, so
    that no pair comes twice: as normal about its class as if drawn anew, and made many times as fast.
    """
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(features, features, generator=generator) / (2 * features) ** 0.5
    head = torch.randn(features, classes, generator=generator) / features**0.5
    labels = torch.randint(classes, (size,), generator=generator)
    means = 2 * torch.randn(classes, features, generator=generator)
    first, second = (torch.randn(size, features, generator=generator) @ mixing for _ in range(2))
    first += means[labels]
    for number, start in enumerate(range(0, rows, size)):
        count, moved = min(size, rows - start), number % size
        values, whole = torch.empty(count, features), min(count, size - moved)
        torch.add(first[:whole], second[moved : moved + whole], out=values[:whole])
        torch.add(first[whole:count], second[: count - whole], out=values[whole:])
        yield Trace(values @ head, {"penultimate": values}, labels[:count], outputs=LOGITS)


def monitors() -> dict[str, Monitor]:
    return {"Mahalanobis": Mahalanobis(), "ViM": ViM(), "KNN": KNN(limit=2000), "KLMatching": KLMatching()}


def stream(sizes: list[int], features: list[int], classes: list[int], names: list[str]) -> None:
    """Fit and score in one process; beside it, one matrix product of the same rows with d x d numbers."""
    head = ("rows", "features", "classes", "monitor", "fit, rows/s", "score, rows/s", "of rows")
    print(f"| {' | '.join(head)} | product, rows/s | peak memory, MB |")
    print("| " + (len(head) + 2) * "--- | ")
    for rows, width, labels in product(sizes, features, classes):
        for name in names:
            command = [sys.executable, __file__, "stream-one", str(rows), str(width), str(labels), name]
            print(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True
            )


def stream_one(rows: int, features: int, classes: int, name: str) -> None:
    """In a process of its own, whose peak memory is that of this run. The rows are made outside the clock."""
    torch.set_num_threads(1)
    clock = dict.fromkeys(("making", "fit", "score", "product"), 0.0)
    monitor = monitors()[name]

    def made() -> Iterator[Trace]:
        source = shards(rows, features, classes)
        while True:
            begun = time.process_time()
            trace = next(source, None)
            clock["making"] += time.process_time() - begun
            if trace is None:
                return
            yield trace

    begun = time.process_time()
    monitor.fit(made())
    clock["fit"] = time.process_time() - begun - clock["making"]
    square = torch.randn(features, features)
    scored = min(rows, MOST_NEIGHBOURS) if name == "KNN" else rows
    multiplied = 0
    for number, trace in enumerate(shards(scored, features, classes)):
        begun = time.process_time()
        monitor.score(trace)
        clock["score"] += time.process_time() - begun
        if number % 10 == 0:  # often enough to meet the same neighbours on the machine
            begun = time.process_time()
            trace.layer("penultimate") @ square
            clock["product"] += time.process_time() - begun
            multiplied += len(trace)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    speeds = (rows / clock["fit"], scored / clock["score"], multiplied / clock["product"])
    fitted, judged, product_speed = (f"{speed:,.0f}" for speed in speeds)
    print(
        f"| {rows:.0e} | {features} | {classes} | {name} | {fitted} | {judged} | {scored:.0e} "
        f"| {product_speed} | {peak:,.0f} |"
    )


SIZES = {"observe": (100, 1000, 10_000), "traces": (10**5, 10**6, 10**7), "benchmark": (10**4, 10**5, 10**6)}
"""Rows over two decades, as many as take seconds."""


def parts(names: list[str]) -> None:
    """Seconds of processor time and peak memory, each size in a process of its own."""
    for name in names:
        for rows in SIZES[name]:
            command = [sys.executable, __file__, "part-one", name, str(rows)]
            print(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True
            )


def part_one(name: str, rows: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        clock = {"observe": observed_cost, "traces": traces_cost, "benchmark": benchmark_cost}[name](
            rows, Path(place)
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = ", ".join(f"{step} {seconds:.3g} s" for step, seconds in clock.items())
    print(f"{name}, {rows:,} rows: {spent}; {peak:,.0f} MB at most")


def timed(function: Callable[[], Any]) -> float:
    begun = time.process_time()
    function()
    return time.process_time() - begun


def observed_cost(rows: int, folder: Path) -> dict[str, float]:
    """ResNet-20 into a folder of shards, of images that are made as they go; beside it, the plain module."""
    from networks import resnet20

    network, batch = Network(resnet20().eval()), torch.rand(100, 3, 32, 32)
    batches = lambda: (batch for _ in range(rows // 100))  # noqa: E731

    def plain() -> None:
        with torch.inference_mode():
            for images in batches():
                network.module(images)

    plain()
    observe_to = partial(network.observe_to, folder / "trace", batches(), shard_rows=2000)
    return {"plain forward": timed(plain), "observe_to": timed(observe_to)}


def traces_cost(rows: int, folder: Path) -> dict[str, float]:
    """16 features and ten logits; shards of 65,536 rows."""
    made = list(shards(min(rows, SHARD), 16))
    count = -(-rows // len(made[0]))
    write = timed(lambda: ShardedTrace.write((made[0] for _ in range(count)), folder / "trace"))
    opened = timed(lambda: ShardedTrace.open(folder / "trace"))
    sharded = ShardedTrace.open(folder / "trace")
    read = timed(lambda: [trace.layer("penultimate").sum() for trace in sharded])
    some = torch.linspace(0, len(sharded) - 1, 100).long()
    return {"write": write, "open": opened, "read": read, "100 rows": timed(lambda: sharded[some])}


def benchmark_cost(rows: int, folder: Path) -> dict[str, float]:
    """Two guards on recorded rows of 128 features."""
    sharded = ShardedTrace.write(shards(rows, 128), folder / "trace")
    network = Network(nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)))
    clean = next(shards(10_000, 128))
    guards = {
        name: assay.Guard(network, monitor.fit(clean)).calibrate(clean)
        for name, monitor in (("maha", Mahalanobis()), ("energy", Energy()))
    }
    judge = timed(lambda: [guard.judge(trace) for guard in guards.values() for trace in sharded])
    faulty = torch.arange(len(sharded)) % 2 == 0
    scenario = assay.benchmark.Scenario.of("recorded", "shift", sharded, sharded.labels, faulty)
    return {"judging": judge, "run_benchmark": timed(lambda: assay.run_benchmark(guards, [scenario]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    asked_stream, asked_sizes, asked_parts = map(commands.add_parser, ("stream", "sizes", "parts"))
    asked_stream.add_argument("--rows", type=float, nargs="+", default=[5e5, 5e6])
    asked_stream.add_argument("--features", type=int, default=128)
    for part in (asked_stream, asked_sizes):
        part.add_argument("--monitors", nargs="+", default=list(monitors()), choices=list(monitors()))
    asked_parts.add_argument("names", nargs="*", default=list(SIZES))
    one_stream, one_part = map(commands.add_parser, ("stream-one", "part-one"))
    for argument in ("rows", "features", "classes"):
        one_stream.add_argument(argument, type=int)
    one_stream.add_argument("name")
    one_part.add_argument("name")
    one_part.add_argument("rows", type=int)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    match asked.part:
        case "stream":
            stream([int(rows) for rows in asked.rows], [asked.features], [CLASSES], asked.monitors)
        case "sizes":
            stream([2 * SHARD], [10, 100, 1000], [CLASSES], asked.monitors)
            stream([2 * SHARD], [128], [100, 1000], asked.monitors)
        case "parts":
            parts(asked.names)
        case "stream-one":
            stream_one(asked.rows, asked.features, asked.classes, asked.name)
        case "part-one":
            part_one(asked.name, asked.rows)


if __name__ == "__main__":
    main()
