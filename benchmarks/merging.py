"""`assay merge` of many device files: seconds, CPU and the most memory, against their number.

    python benchmarks/merging.py --files 1000 10000 100000

Each file is a Histogram of ten neurons, about 2 kB. Files are made once, in a folder for each size. The sum
must be that of all that was counted, the same from a list of the files in another order, and refused where
one of them comes again under another name.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import assay
from assay.reshaping.histogram import Histogram
from assay.storage import stored_digest

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


def devices(folder: Path, count: int) -> Histogram:
    """Device files in folders of a thousand; the sum of them."""
    bins = assay.Bins(width=0.5, last=19, overflow=True, network="the same on every device")
    rng = np.random.default_rng(0)
    total = np.zeros((10, 20), int)
    for number in range(count):
        place = folder / f"{number // 1000:03}"
        place.mkdir(exist_ok=True)
        shares = rng.dirichlet(np.ones(20), size=10)
        window = np.stack([rng.multinomial(300, row) for row in shares])
        total += window
        assay.save(Histogram(bins, window, 0, 300), place / f"device-{number}.safetensors")
    return Histogram(bins, total, 0, 300 * count)


def merged(files: str, output: Path, engine: str) -> str:
    """What the command said, its seconds and its memory."""
    command = [sys.executable, "-c", RUN, "merge", files, "--output", str(output), "--engine", engine]
    ended = subprocess.run(command, capture_output=True, text=True)
    return " ".join((ended.stdout + ended.stderr).splitlines())


def another_order(folder: Path) -> str:
    names = [str(path) for path in folder.rglob("*.safetensors")]
    random.Random(0).shuffle(names)
    names_file = folder.with_suffix(".txt")
    names_file.write_text("\n".join(names))
    return f"@{names_file}"


def measured(folder: Path, count: int, engines: list[str]) -> None:
    begun = time.perf_counter()
    expected = devices(folder, count)
    print(f"{count:,} files made in {time.perf_counter() - begun:.0f} s", flush=True)
    first, second = folder.with_suffix(".sum"), folder.with_suffix(".again")
    for engine in engines:
        print(f"{count:,} files, {engine}: {merged(str(folder), first, engine)}", flush=True)
        assert np.array_equal(assay.load(first).counts, expected.counts)
    merged(another_order(folder), second, engines[-1])
    same = stored_digest(first) == stored_digest(second)
    print(f"{count:,} files in another order, the same sum: {same}", flush=True)
    shutil.copy(folder / "000" / "device-7.safetensors", folder / "copy.safetensors")
    print(f"{count:,} files and a copy: {merged(str(folder), second, 'here')}", flush=True)


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--files", nargs="+", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--engines", nargs="+", default=["here"])
    given = parser.parse_args()
    os.fsync = lambda _: None  # the disk is not what is measured, and making files would take longest
    for count in given.files:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "devices"
            folder.mkdir()
            measured(folder, count, given.engines)


if __name__ == "__main__":
    main()
