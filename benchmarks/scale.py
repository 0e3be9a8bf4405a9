"""Beyond one machine: the same answers from one, two and four workers, what they save, and what a kill costs.

    python benchmarks/scale.py observe                        # ResNet-20 on CIFAR-10, 1, 2 and 4 workers
    python benchmarks/scale.py fit --rows 5e6 --features 512  # on a sharded trace (10 GB of this size)
    python benchmarks/scale.py kill                           # a worker and the driver, and a Ray node
    python benchmarks/scale.py same                           # all answers on every engine, a Ray node lost

Every worker has one thread. Speed-ups are of wall time and mean something on an idle machine only.
"""

import argparse
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from growth import CLASSES, monitors, shards
from torch import Tensor, nn

import assay
from assay import Network, ShardedTrace
from assay.engine import mapped
from assay.freed_memory import keep_freed_memory
from assay.monitors import Mahalanobis


def compared(name: str, seconds: dict[int, float]) -> None:
    base = seconds[min(seconds)]
    each = ", ".join(f"{workers}: {value:.1f} s ({base / value:.2f}x)" for workers, value in seconds.items())
    print(f"{name}: workers {each}", flush=True)


def engine_of(workers: int, engine: str) -> dict[str, Any]:
    """One worker is this process."""
    return {"engine": engine if workers > 1 else "here", "workers": workers}


def prepared(engine: str, workers: list[int], warm: bool) -> None:
    """A cluster with as many cores as the most workers, started outside the clock, as clusters are; where it
    is to be `warm`, the server of processes as well, as the second call of a program finds it."""
    if warm and engine == "processes":
        list(mapped(_import_all, range(2), engine, workers=2))
    if engine == "ray":
        import ray

        ray.init(
            num_cpus=max(workers), include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False
        )
        list(mapped(_import_all, range(max(workers)), "ray", workers=max(workers)))


def _import_all(_: int) -> None:
    importlib.import_module("assay.monitors.parts.shard_fit")
    time.sleep(1.0)  # so that every worker has one of these jobs


def observe(rows: int, workers: list[int], engine: str, warm: bool) -> None:
    """The rows must be the same to the last bit; unless `warm`, the time includes the start of workers."""
    from subjects import subject

    found = subject("resnet20-cifar10", 5000)
    network, some = found.network, found.live[0]
    inputs = some.repeat(-(-rows // len(some)), 1, 1, 1)[:rows]
    prepared(engine, workers, warm)
    seconds, whole = {}, None
    for count in workers:
        begun = time.perf_counter()
        trace = network.observe(inputs, **engine_of(count, engine))
        seconds[count] = time.perf_counter() - begun
        assert whole is None or torch.equal(trace.logits, whole)
        whole = trace.logits
    compared(f"observe, ResNet-20, {len(inputs):,} images, {engine}", seconds)


def fit(
    rows: int,
    features: int,
    workers: list[int],
    folder: Path,
    engine: str,
    warm: bool,
    names: list[str],
    score: bool,
) -> None:
    """The states must give the same scores, to 2e-5 of their value. All files are read once before."""
    place = folder / f"trace-{rows}-{features}"
    if not (place / "manifest.jsonl").is_file():
        ShardedTrace.write(shards(rows, features), place)
    sharded = ShardedTrace.open(place)
    for shard in sharded.shards:
        shard.file.read_bytes()
    prepared(engine, workers, warm)
    some = sharded.shards[0].trace()[:2000]
    for name in names:
        monitor = monitors()[name]
        seconds, expected = {}, None
        for count in workers:
            begun = time.perf_counter()
            monitor.fit(sharded, **engine_of(count, engine))
            seconds[count] = time.perf_counter() - begun
            found = monitor.score(some)
            assert expected is None or torch.allclose(found, expected, rtol=2e-5, atol=2e-5)
            expected = found
        compared(f"fit {name}, {rows:,} x {features}, {engine}", seconds)
        if score:
            seconds, expected = {}, None
            for count in workers:
                begun = time.perf_counter()
                found = monitor.score(sharded, **engine_of(count, engine))
                seconds[count] = time.perf_counter() - begun
                assert expected is None or torch.equal(found, expected)
                expected = found
            compared(f"score {name}, {rows:,} x {features}, {engine}", seconds)


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
        _connect()
    Network(Slow()).observe_to(folder, inputs, engine=engine, workers=2, shard_rows=1024)


def kill(folder: Path, engines: list[str]) -> None:
    """The driver is killed on the way and started again; then a worker of it, or a node of a Ray cluster."""
    expected = Path(folder, "alone")
    slow_run(str(expected), "here")
    whole = assay.load(expected)
    for engine in engines:
        place, cluster = folder / engine, _ray_cluster() if engine == "ray" else None
        command = [sys.executable, __file__, "slow-run", str(place), engine]
        driver = subprocess.Popen(command)
        while listed(place) < 4:
            time.sleep(0.1)
        driver.kill()
        driver.wait()
        left = listed(place)
        again = subprocess.Popen(command)
        while listed(place) < left + 4:
            time.sleep(0.1)
        lost = _lose(again.pid, cluster)
        again.wait()
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
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # or Ray replaces loopback addresses
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    cluster.second = cluster.add_node(**node)
    os.environ["RAY_ADDRESS"] = cluster.address
    return cluster


def _connect() -> None:
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], _node_ip_address="127.0.0.1", log_to_driver=False)


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


def answers(folder: Path, engine: str, workers: int) -> dict[str, Any]:
    """All that runs on an engine: rows, a fitted state, alarms, counts, an estimate and a benchmark."""
    generator = torch.Generator().manual_seed(5)
    inputs, labels = torch.randn(8_000, 64, generator=generator), torch.arange(8_000) % CLASSES
    network, on = Network(Slow()), {"engine": engine, "workers": workers}
    sharded = network.observe_to(folder / f"{engine}-{workers}", (inputs, labels), shard_rows=512, **on)
    clean, live = sharded[:4_096], sharded[4_096:]
    monitor = Mahalanobis().fit(clean, **on)
    guard = assay.Guard(network, monitor).calibrate(clean.trace())
    faulty = torch.arange(len(live)) % 2 == 0
    scenario = assay.benchmark.Scenario.of("live", "shift", live, live.labels, faulty)
    measured = assay.run_benchmark({"guard": guard}, [scenario], resamples=100, **on).table
    bins = assay.Bins.from_data(clean.shards[0].trace(), width=0.5)
    return {
        "rows": sharded.logits,
        "scores": monitor.score(live, **on),
        "alarms": guard.judge(live.trace()).alarm,
        "counts": torch.as_tensor(assay.Histogram.of(live, bins, **on).counts),
        "estimate": _numbers(assay.estimate_accuracy(clean.trace(), live, **on).to_frame()),
        "benchmark": _numbers(measured[[name for name in measured if "seconds" not in name]]),
    }


def _numbers(frame: Any) -> Tensor:
    return torch.as_tensor(frame.select_dtypes("number").to_numpy(float)).nan_to_num(-1.0)


def same(folder: Path) -> None:
    """Every answer of two and four workers beside that of one; a node of the Ray cluster is lost on the
    way."""
    alone = answers(folder, "here", 1)
    cluster = _ray_cluster()
    _connect()
    import ray

    for engine, workers in (("processes", 2), ("processes", 4), ("ray", 2), ("ray", 4)):
        lost = (engine, workers) == ("ray", 4)
        if lost:
            threading.Thread(target=_lose_on_the_way, args=(folder / "ray-4", cluster)).start()
        found = answers(folder, engine, workers)
        each = ", ".join(f"{name} {_difference(alone[name], found[name])}" for name in alone)
        print(f"{engine}, {workers} workers{', a node lost' if lost else ''}: {each}", flush=True)
    ray.shutdown()
    cluster.shutdown()


def _lose_on_the_way(place: Path, cluster: Any) -> None:
    while listed(place) < 4:
        time.sleep(0.05)
    _lose(0, cluster)


def _difference(one: Tensor, other: Tensor) -> str:
    if torch.equal(one, other):
        return "equal"
    return f"within {float(((one - other).abs() / one.abs().clamp(min=1)).max()):.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    for name in ("observe", "fit", "kill", "same", "slow-run"):
        part = commands.add_parser(name)
        if name in ("observe", "fit"):
            part.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
            part.add_argument("--engine", default="processes")
            part.add_argument("--warm", action="store_true", help="start the workers before the clock")
        if name in ("fit", "kill", "same"):
            part.add_argument("--folder", type=Path, default=Path("scale"))
        if name == "observe":
            part.add_argument("--rows", type=float, default=49_152)
        elif name == "fit":
            part.add_argument("--rows", type=float, default=5e5)
            part.add_argument("--features", type=int, default=512)
            part.add_argument("--monitors", nargs="+", default=list(monitors()), choices=list(monitors()))
            part.add_argument("--score", action="store_true", help="time the scores as well")
        elif name == "kill":
            part.add_argument("--engines", nargs="+", default=["processes", "ray"])
        elif name == "slow-run":
            part.add_argument("folder")
            part.add_argument("engine")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as workers do
    match asked.part:
        case "observe":
            observe(int(asked.rows), asked.workers, asked.engine, asked.warm)
        case "fit":
            options = (asked.engine, asked.warm, asked.monitors, asked.score)
            fit(int(asked.rows), asked.features, asked.workers, asked.folder, *options)
        case "slow-run":
            slow_run(asked.folder, asked.engine)
        case "kill":
            kill(asked.folder, asked.engines)
        case "same":
            same(asked.folder)


if __name__ == "__main__":
    main()
