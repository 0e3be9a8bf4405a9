"""`assay merge` of many device files: seconds, CPU and the most memory, against their number.

    python benchmarks/merging.py --files 1000 10000 100000

Each file is a Histogram of ten neurons, about 2 kB. Files are made once, in a folder for each size.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import assay
from assay.reshaping.histogram import Histogram

RUN = """
import resource, sys, time
from assay.cli import main
sys.argv = ["assay", *sys.argv[1:]]
start = time.perf_counter()
try:
    main()
finally:
    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime
    print(f"{time.perf_counter() - start:.1f} s, {cpu:.1f} s of CPU, {own.ru_maxrss / 1024:.0f} MB at most")
"""


def devices(folder: Path, count: int) -> None:
    """Device files in folders of a thousand."""
    bins = assay.Bins(width=0.5, last=19, overflow=True, network="the same on every device")
    rng = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"{number // 1000:03}"
        place.mkdir(exist_ok=True)
        shares = rng.dirichlet(np.ones(20), size=10)
        window = np.stack([rng.multinomial(300, row) for row in shares])
        assay.save(Histogram(bins, window, 0, 300), place / f"device-{number}.safetensors")


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--files", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--engines", nargs="+", default=["here"])
    given = parser.parse_args()
    os.fsync = lambda _: None  # the disk is not what is measured, and making files would take longest
    for count in given.files:
        with tempfile.TemporaryDirectory() as name:
            folder, start = Path(name), time.perf_counter()
            devices(folder, count)
            print(f"{count:,} files made in {time.perf_counter() - start:.0f} s", flush=True)
            for engine in given.engines:
                command = ["merge", str(folder), "--output", str(folder / "fleet"), "--engine", engine]
                ended = subprocess.run(
                    [sys.executable, "-c", RUN, *command], capture_output=True, text=True, check=True
                )
                print(f"{count:,} files, {engine}: {' '.join(ended.stdout.splitlines())}", flush=True)


if __name__ == "__main__":
    main()
