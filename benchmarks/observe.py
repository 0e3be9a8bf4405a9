"""What `Network.observe` costs beside a plain batched forward: time, and memory beyond the Trace.

    python benchmarks/observe.py

Time: ResNet-20, 4,096 images of 3x32x32, batches of 256, medians of interleaved runs. Memory: a network whose
Trace is large, fed by a DataLoader that does not know its length; the peak is the kernel's high-water mark.
Last, the same pass in a process that keeps freed memory, as commands and workers do, in CPU time.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from networks import resnet20
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import assay
from assay.freed_memory import keep_freed_memory


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def time_ratio(repeats: int) -> None:
    module = resnet20().eval()
    inputs = torch.rand(4096, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = assay.Network(module)

    def plain() -> None:
        with torch.no_grad():
            torch.cat([module(part) for part in torch.split(inputs, 256)])

    plain()
    network.observe(inputs)
    pairs = [(seconds(plain), seconds(lambda: network.observe(inputs))) for _ in range(repeats)]
    alone, observed = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(second / first for first, second in pairs)
    print(f"plain forward {alone:.2f} s, observe {observed:.2f} s, median ratio {ratio:.3f}")


class Stream(IterableDataset[Tensor]):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.full((16,), float(row)) for row in range(self.rows))


def status(field: str) -> float:
    """MiB of VmRSS (now) or VmHWM (the peak since it was last cleared)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def extra_memory() -> None:
    width, rows, batch = 4096, 50_000, 256
    network = assay.Network(nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10)))
    network.observe(DataLoader(Stream(2 * batch), batch_size=batch))
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = status("VmRSS")
    trace = network.observe(DataLoader(Stream(rows), batch_size=batch))
    kept = sum(part.nbytes for part in (trace.logits, *trace.features.values())) / 2**20
    extra = status("VmHWM") - before - kept
    one = batch * width * 4 / 2**20
    print(
        f"Trace {kept:.0f} MiB; peak beyond it {extra:.1f} MiB = {extra / one:.1f} batches of {one:.1f} MiB"
    )


def kept_memory() -> None:
    network = assay.Network(resnet20().eval())
    inputs = torch.rand(4096, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def spent() -> str:
        network.observe(inputs)
        before = resource.getrusage(resource.RUSAGE_SELF)
        network.observe(inputs)
        after = resource.getrusage(resource.RUSAGE_SELF)
        user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        return f"{user:.2f} s and {system:.2f} s of the system, {after.ru_maxrss / 1e3:.0f} MB at most"

    torch.set_num_threads(1)
    print(f"memory returned: {spent()}")
    assert keep_freed_memory()
    print(f"memory kept: {spent()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    time_ratio(arguments.repeats)
    extra_memory()
    kept_memory()


if __name__ == "__main__":
    main()
