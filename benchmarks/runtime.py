"""The guard in operation: what it costs as an ONNX graph, as a service, and on a Ray cluster.

    python benchmarks/runtime.py onnx              latency of the exported guard over the plain network
    python benchmarks/runtime.py watch             what Watch adds to a guard's call
    python benchmarks/runtime.py service           requests per second and 99th percentile, 1, 16, 64 clients
    python benchmarks/runtime.py load --minutes 10 memory of the service under load
    python benchmarks/runtime.py kill              kill -9 under load, several times over
    python benchmarks/runtime.py ray               two local workers against one process

Figures are printed as they come. Servers and clients run on this machine, over loopback, one thread each.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import assay
from assay import monitors
from assay.monitors import Energy, MaxLogit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
SIDE, CLASSES = 32, 10


class Nothing(MaxLogit):
    """No monitor: a score that costs nothing."""

    def _score(self, trace: assay.Trace) -> torch.Tensor:
        return torch.zeros(len(trace), dtype=torch.float64)


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def resnet() -> nn.Module:
    from networks import resnet20

    torch.manual_seed(0)
    return resnet20().eval()


def small() -> nn.Module:
    """The network of the service's figures: small, so that what is around it shows."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    ).eval()  # fmt: skip


def guard_of(network: assay.Network, monitor: monitors.Monitor) -> assay.Guard:
    inputs = images(400, 1)
    trace = network.observe(inputs)
    return assay.Guard(network, monitor.fit(trace[:300])).calibrate(trace[300:], 0.05)


def onnx_figures() -> None:
    """The median over rounds of the ratio of medians, both sessions measured in turn."""
    import onnxruntime

    folder = Path(tempfile.mkdtemp())
    for name, build in (("resnet20", resnet), ("small CNN", small)):
        network = assay.Network(build())
        plain = folder / "plain.onnx"
        _export_plain(network, plain)
        for monitor in (Energy(), monitors.Mahalanobis(), monitors.ActivationBox()):
            path = folder / "guard.onnx"
            guard_of(network, monitor).export(path)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            sessions = [
                onnxruntime.InferenceSession(str(one), options, providers=["CPUExecutionProvider"])
                for one in (plain, path)
            ]
            sizes = [one.stat().st_size for one in (plain, path)]
            for batch in (1, 64):
                feeds = {"inputs": images(batch).numpy()}
                ratios, times = _ratios(sessions, feeds, rounds=15, calls=40 if batch == 1 else 3)
                print(
                    f"{name:10} {type(monitor).__name__:14} batch {batch:3}: plain {times[0] * 1e6:8.0f} us, "
                    f"guard {times[1] * 1e6:8.0f} us, ratio {np.median(ratios):.3f} "
                    f"(quartiles {np.quantile(ratios, 0.25):.3f} to {np.quantile(ratios, 0.75):.3f}); "
                    f"{sizes[0]:,} and {sizes[1]:,} bytes",
                    flush=True,
                )


def _export_plain(network: assay.Network, path: Path) -> None:
    import onnx

    onnx.save(network.graph(images(2), ()).model, str(path))


def _ratios(sessions: list, feeds: dict, rounds: int, calls: int) -> tuple[np.ndarray, list[float]]:
    for session in sessions:
        for _ in range(5):
            session.run(None, feeds)
    medians = np.empty((rounds, 2))
    for number in range(rounds):
        for place, session in enumerate(sessions):
            latencies = []
            for _ in range(calls):
                start = time.thread_time()  # of the one thread it runs on, whatever else the machine does
                session.run(None, feeds)
                latencies.append(time.thread_time() - start)
            medians[number, place] = np.median(latencies)
    return medians[:, 1] / medians[:, 0], [float(np.median(medians[:, place])) for place in range(2)]


def watch_figures() -> None:
    """Microseconds that a Watch with everything adds to a guard's call."""
    network = assay.Network(small())
    guard = guard_of(network, Energy())
    clean = network.observe((images(1500, 5), torch.arange(1500) % CLASSES))
    for batch in (1, 64):
        inputs = images(batch)
        watched = assay.Watch(
            guard,
            assay.Bins.from_data(clean, width=0.05, network=network),
            assay.VolatilityWatch(1000).calibrate(clean),
            drift=assay.DriftWatch().calibrate(guard.judge(clean).alarm),
            estimator=assay.AccuracyEstimator().fit(clean),
        )
        times = {}
        for name, call in (("guard", guard), ("watch", watched), ("guard again", guard)):
            start, calls = time.process_time(), 2000 // (1 if batch == 1 else 10)
            for _ in range(calls):
                call(inputs)
            times[name] = (time.process_time() - start) / calls
        plain = (times["guard"] + times["guard again"]) / 2
        print(
            f"batch {batch:3}: guard {plain * 1e6:.0f} us, watched {times['watch'] * 1e6:.0f} us of CPU: "
            f"{(times['watch'] / plain - 1):.1%} more",
            flush=True,
        )


class Served:
    """`assay serve` of one of the guards, in a process of its own."""

    def __init__(self, folder: Path, monitor: str, *options: str) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__)), "serve", str(folder), monitor, *options]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.match(r"assay: http://127\.0\.0\.1:(\d+)/", line)
        if found is None:
            raise SystemExit(f"the service did not start: {line}")
        self.port = int(found.group(1))

    @property
    def resident(self) -> int:
        """Kilobytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1))

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.communicate()


def serve(folder: Path, monitor: str, options: list[str]) -> None:
    """In the server's process: a guard with everything watched, or a network with nothing."""
    torch.set_num_threads(1)
    from assay.web import limits, listening, supervisor, worker_process

    network = assay.Network(small())
    if monitor == "nothing":
        watch = assay.Watch(assay.Guard(network, Nothing().fit(network.observe(images(2))), 1.0))
    else:
        guard = guard_of(network, getattr(monitors, monitor)())
        clean = network.observe((images(1500, 5), torch.arange(1500) % CLASSES))
        watch = assay.Watch(
            guard,
            assay.Bins.from_data(clean, width=0.05, network=network),
            assay.VolatilityWatch(1000).calibrate(clean),
            drift=assay.DriftWatch().calibrate(guard.judge(clean).alarm),
            estimator=assay.AccuracyEstimator().fit(clean),
        )
    state = folder / "counts" if "--state" in options else None
    bounds = limits.Limits(waiting=128, seconds=10.0)
    plan = worker_process.WorkerPlan.of(watch, Nothing, "guard", bounds, None, (), workers=1)
    place, drain = listening.listening_socket("127.0.0.1", 0), listening.Drain()
    supervisor.serve_guard(watch, plan, place, workers=1, state=state, every=1.0, drain=drain)


def body(rows: int, seed: int = 0) -> bytes:
    data = images(rows, seed)
    entry = {"name": "x", "shape": list(data.shape), "datatype": "FP32"}
    values = [round(value, 4) for value in data.flatten().tolist()]
    return json.dumps({"inputs": [entry | {"data": values}]}).encode()


async def _client(port: int, content: bytes, until: float, latencies: list[float], statuses: dict) -> None:
    """One connection that asks, waits, asks again."""
    head = (
        "POST /v2/models/guard/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(head.encode() + content)
        status = (await reader.readuntil(b"\r\n")).split()[1].decode()
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(re.search(r"content-length: (\d+)", headers).group(1)))
        latencies.append(time.perf_counter() - start)
        statuses[status] = statuses.get(status, 0) + 1
    writer.close()


async def _load(port: int, clients: int, seconds: float, rows: int = 1) -> tuple[list[float], dict]:
    latencies: list[float] = []
    statuses: dict = {}
    content, until = body(rows), time.perf_counter() + seconds
    await asyncio.gather(*(_client(port, content, until, latencies, statuses) for _ in range(clients)))
    return latencies, statuses


def service_figures(seconds: float, rounds: int) -> None:
    """All services in turn, so that other work on the machine affects all alike.

    The server computes in one process, so that on an idle machine its throughput is one over the CPU seconds
    of a request; those are also known where the machine is not idle.
    """
    folder = Path(tempfile.mkdtemp())
    served = {name: Served(folder, name) for name in ("nothing", "Energy", "Mahalanobis")}
    try:
        for rows, clients in ((1, 1), (1, 16), (1, 64), (8, 16)):
            rates, slow, costs = ({name: [] for name in served} for _ in range(3))
            for _ in range(rounds):
                for name, one in served.items():
                    before = one.cpu_seconds
                    latencies, _ = asyncio.run(_load(one.port, clients, seconds, rows))
                    rates[name].append(len(latencies) / seconds)
                    slow[name].append(float(np.quantile(latencies, 0.99)))
                    costs[name].append((one.cpu_seconds - before) / len(latencies))
            for name in served:
                share = np.median(np.array(rates[name]) / np.array(rates["nothing"]))
                cost = np.median(costs[name])
                print(
                    f"{rows:3} rows, {clients:2} clients, {name:11}: {np.median(rates[name]):5.0f} a second "
                    f"({share:.2f} of no monitor), 99th percentile {np.median(slow[name]) * 1e3:6.1f} ms; "
                    f"{cost * 1e3:.2f} ms of CPU a request ({np.median(costs['nothing']) / cost:.2f})",
                    flush=True,
                )
    finally:
        for one in served.values():
            one.stop()


def load_figures(minutes: float) -> None:
    folder = Path(tempfile.mkdtemp())
    served = Served(folder, "Mahalanobis", "--state")
    try:
        asyncio.run(_load(served.port, 16, 20))
        first, answered = served.resident, 0
        print(f"after 20 s: {first:,} kB", flush=True)
        for number in range(int(minutes)):
            latencies, statuses = asyncio.run(_load(served.port, 16, 60))
            answered += len(latencies)
            print(
                f"minute {number + 1}: {served.resident:,} kB, {len(latencies)} answered {statuses}",
                flush=True,
            )
        print(f"{answered:,} requests; memory grew by {served.resident - first:,} kB")
    finally:
        served.stop()
    print(f"counts on disk: {assay.load(folder / 'counts').predictions:,}")


def kill_figures(times: int) -> None:
    """Under load from 8 clients, writing every second: how many answered predictions the file misses."""
    folder = Path(tempfile.mkdtemp())
    before = 0
    for number in range(times):
        seconds = 4.3 + 0.17 * number
        answered = asyncio.run(_killed(Served(folder, "Energy", "--state"), seconds))
        record = assay.load(folder / "counts")
        lost = before + answered - record.predictions
        print(
            f"kill {number + 1}: {answered} answered, {record.predictions - before} on disk, {lost} lost "
            f"({lost / answered * seconds:.2f} s of load); file whole: "
            f"{record.histogram.total == record.predictions}",
            flush=True,
        )
        before = record.predictions


async def _killed(served: Served, seconds: float) -> int:
    """Requests answered before the service was killed."""
    latencies: list[float] = []
    content, until = body(1), time.perf_counter() + 60
    clients = [asyncio.create_task(_client(served.port, content, until, latencies, {})) for _ in range(8)]
    await asyncio.sleep(seconds)
    served.stop(signal.SIGKILL)
    await asyncio.gather(*clients, return_exceptions=True)
    return len(latencies)


def ising(inputs: torch.Tensor) -> torch.Tensor:
    """A model that takes its time: the energy of a ring of spins, and a few products beside it."""
    spins = 2 * inputs.float() - 1
    wide = torch.tanh(spins @ torch.ones(spins.shape[1], 1024)) @ torch.ones(1024, 512)
    return -(spins * spins.roll(1, dims=1)).sum(dim=1) + 0 * wide.sum(dim=1)


def ray_figures() -> None:
    import ray

    torch.set_num_threads(1)
    start = time.perf_counter()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    print(f"starting Ray on this machine: {time.perf_counter() - start:.1f} s")
    from assay.engine import mapped

    for name in ("first", "second"):
        start = time.perf_counter()
        list(mapped(abs, range(8), "ray"))
        print(f"8 empty jobs, {name} time: {time.perf_counter() - start:.2f} s")
    network = assay.Network(resnet())
    chosen = {"energy": Energy(), "maha": monitors.Mahalanobis(), "box": monitors.ActivationBox()}
    guards = {name: guard_of(network, monitor) for name, monitor in chosen.items()}
    labels = torch.arange(1500) % CLASSES
    scenarios = [
        assay.benchmark.Scenario.of(f"noise {k}", "noise", images(1500, k), labels, torch.arange(1500) % 2)
        for k in range(8)
    ]
    space = assay.InputSpace((40,), 2)
    jobs = {
        "benchmark": lambda engine: assay.run_benchmark(guards, scenarios, engine=engine),
        "sampling": lambda engine: assay.sample_outputs(
            ising, space, bins=np.arange(-42, 44, 4.0), budget=1_200_000, ladders=4, engine=engine
        ),
    }
    for name, job in jobs.items():
        seconds = {}
        for engine in ("here", "processes", "ray"):
            start = time.perf_counter()
            job(engine)
            seconds[engine] = time.perf_counter() - start
        others = ", ".join(
            f"{engine} {spent:.1f} s ({seconds['here'] / spent:.2f} times as fast)"
            for engine, spent in seconds.items()
        )
        print(f"{name}: {others}", flush=True)
    ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["onnx", "watch", "service", "load", "kill", "ray", "serve"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=5, help="per measurement of the service")
    parser.add_argument("--rounds", type=int, default=5, help="of the service's measurements")
    parser.add_argument("--times", type=int, default=5, help="how often the service is killed")
    options, unknown = parser.parse_known_args()
    torch.set_num_threads(1)
    if options.what == "serve":
        serve(Path(options.rest[0]), options.rest[1], unknown)
        return
    load = os.getloadavg()[0]
    print(f"assay {assay.__version__}, torch {torch.__version__}, load {load:.1f} on {os.cpu_count()} cores")
    {
        "onnx": onnx_figures,
        "watch": watch_figures,
        "service": lambda: service_figures(options.seconds, options.rounds),
        "load": lambda: load_figures(options.minutes),
        "kill": lambda: kill_figures(options.times),
        "ray": ray_figures,
    }[options.what]()
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
