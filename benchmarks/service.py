"""The service with several workers: its rate, what batches bring, and whether a kill loses a count.

    python benchmarks/service.py rates                 1, 2 and 4 workers, batches off and on, beside forward
    python benchmarks/service.py kills --minutes 10    a worker killed every minute under load
    python benchmarks/service.py supervisor            what counting costs it, against features and classes
    python benchmarks/service.py ray                   two replicas on Ray Serve, one killed under load

The command itself serves (`assay serve`, one thread per worker, everything watched); clients are in this
process, over loopback, and share the machine with it. Rates on a busy machine say little, so the CPU seconds
of a request, over all processes of the service, are beside them.
"""

import argparse
import asyncio
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import runtime
import torch
from prometheus_client.parser import text_string_to_metric_families
from torch import nn

import assay
from assay.monitors import Mahalanobis
from assay.web.tally import Seen, Tally

HERE = Path(__file__).resolve().parent
NETWORKS = {"small": runtime.small, "resnet": runtime.resnet}
REQUEST = (
    "POST /v2/models/guard/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    "Content-Length: {}\r\n\r\n"
)


class Command:
    """`assay serve` of a saved guard, with its processes."""

    def __init__(self, folder: Path, network: str, *options: str) -> None:
        places = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
        files = [
            f"{network}.safetensors",
            f"runtime:{network}",
            "--reference",
            f"{network}-clean.safetensors",
        ]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from assay.cli import main; main()",
                "serve",
                *files,
                "--port",
                "0",
                *options,
            ],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().partition("127.0.0.1:")[2].partition("/")[0])

    def metrics(self) -> dict[str, float]:
        """Summed over labels."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=600) as page:
            families = text_string_to_metric_families(page.read().decode())
        found: dict[str, float] = {}
        for family in families:
            for sample in family.samples:
                name = sample.name + (sample.labels.get("status", "") and "_" + sample.labels["status"])
                found[name] = found.get(name, 0.0) + sample.value
        return found

    def wait_for(self, workers: int) -> None:
        while self.metrics()["assay_workers"] < workers:
            time.sleep(0.2)

    def processes(self) -> list[int]:
        found = [self.process.pid]
        for process in found:
            children = Path(f"/proc/{process}/task/{process}/children")
            found += [int(child) for child in children.read_text().split()] if children.exists() else []
        return found

    def workers(self) -> list[int]:
        """Of several: the only ones with a process group of their own."""
        return [process for process in self.processes()[1:] if os.getpgid(process) == process]

    def cpu_seconds(self) -> float:
        ticks = 0
        for process in self.processes():
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


async def ask_until(
    port: int, content: bytes, until: float, latencies: list[float], broken: list[int]
) -> None:
    """One client, who asks again as soon as there is an answer, and connects again when it was cut off."""
    request = REQUEST.format(len(content)).encode() + content
    while time.perf_counter() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while time.perf_counter() < until:
                start = time.perf_counter()
                writer.write(request)
                status = (await reader.readuntil(b"\r\n")).split()[1]
                headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(re.search(r"content-length: (\d+)", headers).group(1)))
                if status == b"200":
                    latencies.append(time.perf_counter() - start)
                else:
                    broken.append(int(status))
            writer.close()
        except (OSError, asyncio.IncompleteReadError):
            broken.append(0)


async def load(port: int, clients: int, seconds: float) -> tuple[list[float], int]:
    """Latencies of what was answered, and how many requests were cut off or refused."""
    latencies: list[float] = []
    broken: list[int] = []
    content, until = runtime.body(1), time.perf_counter() + seconds
    await asyncio.gather(*(ask_until(port, content, until, latencies, broken) for _ in range(clients)))
    return latencies, len(broken)


def saved(folder: Path, name: str) -> assay.Network:
    """The network; its guard and clean Trace are in the folder."""
    network = assay.Network(NETWORKS[name]())
    clean = network.observe((runtime.images(1500, 5), torch.arange(1500) % runtime.CLASSES))
    assay.save(runtime.guard_of(network, Mahalanobis()), folder / f"{name}.safetensors")
    assay.save(clean, folder / f"{name}-clean.safetensors")
    return network


def plain_forward(network: assay.Network, batch: int, seconds: float) -> float:
    """Milliseconds of CPU for one image in the bare module."""
    torch.set_num_threads(1)
    inputs, images, start = runtime.images(batch), 0, time.process_time()
    with torch.inference_mode():
        while time.process_time() - start < seconds:
            network.module(inputs)
            images += batch
    return (time.process_time() - start) / images * 1e3


def rate_figures(
    names: list[str], seconds: float, clients: int, counts: list[int], waits: list[float | None]
) -> None:
    folder = Path(tempfile.mkdtemp())
    for name in names:
        network = saved(folder, name)
        alone, together = plain_forward(network, 1, seconds / 4), plain_forward(network, 16, seconds / 4)
        print(f"{name}: plain forward {alone:.2f} ms of CPU an image alone, {together:.2f} in batches of 16")
        for wait in waits:
            for workers in counts:
                options = [] if wait is None else ["--batch-wait-ms", str(wait)]
                served = Command(folder, name, "--workers", str(workers), *options)
                try:
                    served.wait_for(workers)
                    asyncio.run(load(served.port, clients, seconds / 4))
                    before, passes = served.cpu_seconds(), served.metrics()["assay_model_seconds_count"]
                    latencies, _ = asyncio.run(load(served.port, clients, seconds))
                    cost = (served.cpu_seconds() - before) / len(latencies)
                    passes = served.metrics()["assay_model_seconds_count"] - passes
                finally:
                    served.stop()
                print(
                    f"{name}, {workers} workers, batches {'off' if wait is None else f'{wait:g} ms'}: "
                    f"{len(latencies) / seconds:5.0f} a second, median {np.median(latencies) * 1e3:.0f} ms, "
                    f"99th percentile {np.quantile(latencies, 0.99) * 1e3:.0f} ms, {cost * 1e3:.2f} ms of "
                    f"CPU a request, {len(latencies) / passes:.1f} requests a pass",
                    flush=True,
                )


def kill_figures(minutes: float, every: float, clients: int) -> None:
    """What clients received against what was counted, while workers are killed in turn."""
    folder = Path(tempfile.mkdtemp())
    saved(folder, "small")
    served = Command(folder, "small", "--workers", "2", "--state", "counts", "--every", "10")
    answered = broken = kills = 0
    try:
        served.wait_for(2)
        end = time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            latencies, cut = asyncio.run(_load_and_kill(served, clients, every))
            answered, broken, kills = answered + len(latencies), broken + cut, kills + 1
            found = served.metrics()
            counted = int(found["assay_predictions_total"])
            print(
                f"kill {kills}: {answered:,} answered, {counted:,} counted, {broken} cut off, "
                f"{int(found['assay_worker_restarts_total'])} restarts; "
                f"lost {max(0, answered - counted)}, counted without an answer {counted - answered}",
                flush=True,
            )
    finally:
        served.stop()
    record = assay.load(folder / "counts")
    same = record.predictions == record.histogram.total == record.drift.rows_ == counted
    print(f"on disk {record.predictions:,}, the same in histogram and drift watch: {same}")


async def _load_and_kill(served: Command, clients: int, seconds: float) -> tuple[list[float], int]:
    loading = asyncio.create_task(load(served.port, clients, seconds))
    await asyncio.sleep(seconds / 2)
    os.kill(served.workers()[0], signal.SIGKILL)
    return await loading


def everything_watched(features: int, classes: int) -> assay.Watch:
    """All that `assay serve --reference` watches, on a network with these sizes."""
    torch.manual_seed(0)
    network = assay.Network(nn.Sequential(nn.Linear(16, features), nn.ReLU(), nn.Linear(features, classes)))
    rows = torch.randn(2000, 16, generator=torch.Generator().manual_seed(1))
    clean = network.observe((rows, torch.arange(2000) % classes))
    guard = assay.Guard(network, Mahalanobis().fit(clean[:1000])).calibrate(clean[1000:])
    return assay.Watch(
        guard,
        assay.Bins.from_data(clean, width=1.0),
        assay.VolatilityWatch(1000).calibrate(clean),
        drift=assay.DriftWatch().calibrate(guard.judge(clean).alarm),
        estimator=assay.AccuracyEstimator(window=1000).fit(clean),
    )


def supervisor_figures(messages: int) -> None:
    """CPU of what the supervisor does with a pass of so many requests, and the bytes of its message."""
    torch.set_num_threads(1)
    print("| features | classes | requests in a pass | bytes | CPU a request, us | a page of /metrics, ms |")
    print("| --- | --- | --- | --- | --- | --- |")
    for features, classes in ((64, 10), (640, 10), (64, 100), (64, 1000)):
        watch = everything_watched(features, classes)
        for rows in (1, 16):
            tally = Tally(watch, {})
            answer = watch.guard.answer(torch.randn(rows, 16))
            seen = pickle.dumps(("add", Seen.of(answer, tally.layers)), pickle.HIGHEST_PROTOCOL)
            request = pickle.dumps(("add_request", 200, 0.003), pickle.HIGHEST_PROTOCOL)
            begun = time.process_time()
            for _ in range(max(1, messages // rows)):
                for message in (seen, *rows * (request,)):
                    name, *arguments = pickle.loads(message)
                    getattr(tally, name)(*arguments)
            watch.state_now()  # rows that wait to be counted
            cost = (time.process_time() - begun) / (max(1, messages // rows) * rows)
            begun = time.process_time()
            for _ in range(20):
                tally.text()
            page = (time.process_time() - begun) / 20
            print(
                f"| {features} | {classes} | {rows} | {len(seen):,} | {cost * 1e6:.0f} | {page * 1e3:.1f} |",
                flush=True,
            )


def ray_watch() -> assay.Watch:
    network = assay.Network(runtime.small())
    clean = network.observe(runtime.images(300, 5))
    return assay.Watch(runtime.guard_of(network, Mahalanobis()), assay.Bins.from_data(clean, width=0.05))


def ray_figures(seconds: float, clients: int) -> None:
    """Ray Serve with the same service: what clients received against what the actor counted."""
    import ray
    from ray import serve

    from assay.web.ray_serve import guard_application

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.cloudpickle.register_pickle_by_value(sys.modules[ray_watch.__module__])
    port = 8765
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(guard_application(ray_watch, replicas=2), name="guard")
        latencies, broken = asyncio.run(_load_and_kill_replica(port, clients, seconds))
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as page:
            text = page.read().decode()
        counted = sum(float(number) for number in re.findall(r"assay_predictions_total{.*} (.*)", text))
        print(
            f"Ray Serve, 2 replicas, one killed: {len(latencies):,} answered, {counted:,.0f} counted, "
            f"{broken} cut off or refused; {len(latencies) / seconds:.0f} a second, 99th percentile "
            f"{np.quantile(latencies, 0.99) * 1e3:.0f} ms"
        )
    finally:
        serve.shutdown()
        ray.shutdown()


async def _load_and_kill_replica(port: int, clients: int, seconds: float) -> tuple[list[float], int]:
    import ray
    from ray.util import list_named_actors

    loading = asyncio.create_task(load(port, clients, seconds))
    await asyncio.sleep(seconds / 2)
    replicas = [actor for actor in list_named_actors(all_namespaces=True) if "REPLICA" in actor["name"]]
    ray.kill(ray.get_actor(**replicas[0]), no_restart=False)
    return await loading


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", choices=("rates", "kills", "supervisor", "ray"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument(
        "--batch-waits", nargs="+", default=["off", "0", "5"], help="milliseconds, or off for no batches"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of load for each figure of rates")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=10.0, help="of load for kills")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two kills")
    parser.add_argument("--messages", type=int, default=6000, help="requests for each figure of supervisor")
    given = parser.parse_args()
    if given.figures == "rates":
        waits = [None if wait == "off" else float(wait) for wait in given.batch_waits]
        rate_figures(given.networks, given.seconds, given.clients, given.workers, waits)
    elif given.figures == "kills":
        kill_figures(given.minutes, given.every, given.clients)
    elif given.figures == "supervisor":
        supervisor_figures(given.messages)
    else:
        ray_figures(given.seconds, given.clients)


if __name__ == "__main__":
    main()
