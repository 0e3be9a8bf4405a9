"""Beyond one machine: the same answers from one, two and four workers, what they save, and what a kill costs.

    python benchmarks/scale.py observe                        # ResNet-20 on CIFAR-10, 1, 2 and 4 workers
    python benchmarks/scale.py fit --rows 5e6 --features 512  # on a sharded trace (10 GB of this size)
    python benchmarks/scale.py stream --rows 5e5 5e6 5e7      # 128 features in flat memory
    python benchmarks/scale.py kill                           # a worker and the driver, and a Ray node

Every worker has one thread. Speed-ups are of wall time and mean something on an idle machine only; rows per
second of `stream` are of processor time.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import assay
from assay import Network, ShardedTrace, Trace
from assay.monitors import KNN, KLMatching, Mahalanobis, Monitor, ViM
from assay.outputs import LOGITS

CLASSES = 10
SHARD = 65_536


def shards(rows: int, features: int, size: int = SHARD) -> Iterator[Trace]:
    """Features about ten class means and logits that are linear in them, made as they are asked for."""
    mixing = torch.randn(features, features, generator=torch.Generator().manual_seed(0)) / features**0.5
    means = 2 * torch.randn(CLASSES, features, generator=torch.Generator().manual_seed(1))
    head = torch.randn(features, CLASSES, generator=torch.Generator().manual_seed(2)) / features**0.5
    for number, start in enumerate(range(0, rows, size)):
        generator = torch.Generator().manual_seed(100 + number)
        count = min(size, rows - start)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        values = torch.randn(count, features, generator=generator) @ mixing + means[labels]
        yield Trace(values @ head, {"penultimate": values}, labels, outputs=LOGITS)


def monitors() -> dict[str, Monitor]:
    return {"Mahalanobis": Mahalanobis(), "ViM": ViM(), "KNN": KNN(limit=2000), "KLMatching": KLMatching()}


def compared(name: str, seconds: dict[int, float]) -> None:
    base = seconds[min(seconds)]
    each = ", ".join(f"{workers}: {value:.1f} s ({base / value:.2f}x)" for workers, value in seconds.items())
    print(f"{name}: workers {each}")


def observe(rows: int, workers: list[int]) -> None:
    """The rows must be the same to the last bit; the time includes the start of the workers."""
    from subjects import subject

    found = subject("resnet20-cifar10", 5000)
    network, some = found.network, found.live[0]
    inputs = some.repeat(-(-rows // len(some)), 1, 1, 1)[:rows]
    whole = network.observe(inputs)
    seconds = {}
    for count in workers:
        begun = time.perf_counter()
        found = network.observe(inputs, engine="processes" if count > 1 else "here", workers=count)
        seconds[count] = time.perf_counter() - begun
        assert torch.equal(found.logits, whole.logits)
    compared(f"observe, ResNet-20, {len(whole):,} images", seconds)


def fit(rows: int, features: int, workers: list[int], folder: Path) -> None:
    """The states must give the same scores, to 2e-5 of their value."""
    place = folder / f"trace-{rows}-{features}"
    if not (place / "manifest.jsonl").is_file():
        ShardedTrace.write(shards(rows, features), place)
    sharded = ShardedTrace.open(place)
    some = sharded.shards[0].trace()[:2000]
    for name, monitor in monitors().items():
        seconds, expected = {}, None
        for count in workers:
            begun = time.perf_counter()
            monitor.fit(sharded, engine="processes" if count > 1 else "here", workers=count)
            seconds[count] = time.perf_counter() - begun
            scores = monitor.score(some)
            assert expected is None or torch.allclose(scores, expected, rtol=2e-5, atol=2e-5)
            expected = scores
        compared(f"fit {name}, {rows:,} x {features}", seconds)


def stream(sizes: list[int], features: int) -> None:
    """Fit and score in one process; beside it, one matrix product of the same rows with d x d numbers."""
    print("| rows | monitor | fit, rows/s | score, rows/s | product, rows/s | peak memory, MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for rows in sizes:
        for name in monitors():
            command = [sys.executable, __file__, "stream-one", str(rows), str(features), name]
            print(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True
            )


def stream_one(rows: int, features: int, name: str) -> None:
    """In a process of its own, whose peak memory is that of this run. The rows are made outside the clock."""
    torch.set_num_threads(1)
    clock = dict.fromkeys(("making", "fit", "score", "product"), 0.0)
    monitor = monitors()[name]

    def made() -> Iterator[Trace]:
        source = shards(rows, features)
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
    for trace in shards(rows, features):
        begun = time.process_time()
        monitor.score(trace)
        clock["score"] += time.process_time() - begun
        begun = time.process_time()
        trace.layer("penultimate") @ square
        clock["product"] += time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    speeds = " | ".join(f"{rows / clock[part]:,.0f}" for part in ("fit", "score", "product"))
    print(f"| {rows:.0e} | {name} | {speeds} | {peak:,.0f} |")


class Slow(nn.Module):
    """Takes long enough per batch that a kill hits work."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, rows: Tensor) -> Tensor:
        time.sleep(0.02)
        return self.layers(rows)


def slow_run(folder: str, engine: str) -> None:
    inputs = torch.randn(20_000, 64, generator=torch.Generator().manual_seed(3))
    if engine == "ray":
        import ray

        ray.init(address=os.environ["RAY_ADDRESS"], _node_ip_address="127.0.0.1", log_to_driver=False)
    Network(Slow()).observe_to(folder, inputs, engine=engine, workers=2, shard_rows=1024)


def kill(folder: Path, engines: list[str]) -> None:
    """The driver is killed on the way and started again; then a worker of it, or a node of a Ray cluster."""
    expected = Path(folder, "alone")
    slow_run(str(expected), "here")
    whole = assay.load(expected)
    for engine in engines:
        place, cluster = folder / engine, _ray_cluster() if engine == "ray" else None
        process = multiprocessing.get_context("spawn").Process(target=slow_run, args=(str(place), engine))
        process.start()
        while listed(place) < 4:
            time.sleep(0.1)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        left = listed(place)
        again = multiprocessing.get_context("spawn").Process(target=slow_run, args=(str(place), engine))
        again.start()
        while listed(place) < left + 4:
            time.sleep(0.1)
        lost = _lose(again.pid or 0, cluster)
        again.join()
        found = assay.load(place)
        same = torch.equal(found.logits, whole.logits)
        print(f"{engine}: driver killed after {left} shards, then {lost}; {len(found)} rows, same: {same}")
        if cluster is not None:
            cluster.shutdown()


def listed(place: Path) -> int:
    manifest = place / "manifest.jsonl"
    return max(0, len(manifest.read_text().splitlines()) - 1) if manifest.is_file() else 0


def _ray_cluster() -> Any:
    """Two nodes on this machine, which RAY_ADDRESS names."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    cluster.second = cluster.add_node(**node)
    os.environ["RAY_ADDRESS"] = cluster.address
    return cluster


def _lose(driver: int, cluster: Any) -> str:
    if cluster is not None:
        cluster.remove_node(cluster.second, allow_graceful=False)
        return "a node lost"
    found = subprocess.run(["pgrep", "-P", str(driver)], capture_output=True, text=True).stdout.split()
    grandchildren = [
        child
        for parent in found
        for child in subprocess.run(["pgrep", "-P", parent], capture_output=True, text=True).stdout.split()
    ]
    os.kill(int((grandchildren or found)[-1]), signal.SIGKILL)
    return "a worker killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("observe", "fit", "stream", "kill", "stream-one"):
        part = parts.add_parser(name)
        if name in ("observe", "fit"):
            part.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
        if name in ("fit", "kill"):
            part.add_argument("--folder", type=Path, default=Path("scale"))
        if name == "observe":
            part.add_argument("--rows", type=float, default=20_000)
        elif name == "fit":
            part.add_argument("--rows", type=float, default=5e5)
            part.add_argument("--features", type=int, default=512)
        elif name == "stream":
            part.add_argument("--rows", type=float, nargs="+", default=[5e5, 5e6])
            part.add_argument("--features", type=int, default=128)
        elif name == "kill":
            part.add_argument("--engines", nargs="+", default=["processes", "ray"])
        else:
            part.add_argument("rows", type=int)
            part.add_argument("features", type=int)
            part.add_argument("name")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    match asked.part:
        case "observe":
            observe(int(asked.rows), asked.workers)
        case "fit":
            fit(int(asked.rows), asked.features, asked.workers, asked.folder)
        case "stream":
            stream([int(rows) for rows in asked.rows], asked.features)
        case "stream-one":
            stream_one(asked.rows, asked.features, asked.name)
        case "kill":
            kill(asked.folder, asked.engines)


if __name__ == "__main__":
    main()
