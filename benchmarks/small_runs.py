"""Run every benchmark and every paper script once, small: a check that they all still work, in minutes.

    python benchmarks/small_runs.py --data ../data --shared ../shared/data
    python benchmarks/small_runs.py fleet papers/mira

Prints a line per run: fine or failed, and its seconds; the figures mean nothing at this size. Caches and
figures go to --work. The exit status is the number of runs that failed.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SAFETY_DATA = "--data {data} --shared {shared} --work {work}/safety"
SAFETY = f"{SAFETY_DATA} --networks {{work}}/safety --guards {{work}}/safety"

# Script -> the arguments of its runs, in order; later runs use what earlier ones left in the work folder.
RUNS = {
    "abstraction_digits": ["--digits 9"],
    "abstraction_monitors": ["--rows 430 --repeats 1"],
    "annotation": ["--annotators 2 --labels 40 --kills 1 --pause 0"],
    "accuracy_answer": ["mlp-sensorless --rows 120"],
    "accuracy_methods": ["--rows 1000 --classes 10"],
    "default_guard": [
        "measure mlp-sensorless --rows 200 --folder {work}/guard",
        "table --folder {work}/guard",
    ],
    "faults": [""],
    "few_labels": ["--draws 2"],
    "coming_from": ["--help"],  # the rest needs the other libraries
    "counts": ["trials --trials 2 --resamples 50", "table"],
    "fleet": ["--data {data}/fashion-mnist --cache {work}/fleet --devices 8 --reshaped 1"],
    "growth": ["stream --rows 2e5 --features 16", "part-one benchmark 2000", "part-one traces 20000"],
    "guard_promises": ["stream --streams 2 --rows 200 --clean 600"],
    "install": ["--help"],  # the rest installs some GB
    "language_models": [
        "rare --budget 3000 --seeds 1",
        "speed --model gpt2 --budget 200",
        "compare --budget 1500",
    ],
    "merging": ["--files 20"],
    "monitorability": ["measure --only digits --parts truth panel", "tables"],
    "monitors": ["--only outputs odin --repeats 1"],
    "networks_people_ship": ["magika skl2onnx lightgbm"],
    "observe": ["--repeats 1"],
    "published": ["--help"],  # the rest needs pytorch-ood and the authors' script for CoRP
    "runtime": ["onnx --rounds 1", "watch", "kill --times 1"],
    "sampling": [
        "language --problem markov-core --evaluations 4e3 --seeds 1 --cache {work}",
        "table --cache {work}",
    ],
    "scale": [
        "observe --rows 600 --workers 1 2",
        "fit --rows 2e5 --features 16 --workers 1 2 --folder {work}/scale",
        "kill --engines processes --folder {work}/scale",
    ],
    "service": [
        "rates --networks small --workers 2 --seconds 1",
        "kills --minutes 0.1 --every 5 --clients 2",
        "supervisor --messages 100",
    ],
    "subjects": ["mlp-sensorless --rows 100"],
    "volatility": ["--windows 100 1000 --updates 2000 --rows 20000"],
    "papers/all": ["--status --cache {work}/papers"],
    "papers/volatility_networks": ["ann cnn --epochs 1 --data {data} --cache {work}/volatility"],
    "papers/volatility": ["b --networks ann --rows 1000 --data {data} --cache {work}/volatility"],
    "papers/accuracy_without_labels": [
        "--networks ann --rows 200 --pgd-steps 0 --data {data} --cache {work}/volatility --tables {work}"
    ],
    "papers/mira": [
        "--shared {shared} --cache {work}/mira measure tabular --seeds 0 1 --seconds 1",
        "--shared {shared} --cache {work}/mira --tables {work} maps tabular --seeds 0 1",
        "--cache {work}/mira --tables {work} tables",
    ],
    "papers/omniinput": [
        "stories --budget 2000 --shared {shared} --cache {work} --figures {work}",
        "mnist --networks mlp mlp-aug --budget 3000 --data {data} --cache {work} --figures {work}",
    ],
    "papers/omniinput_languages": [
        "--budget 1500 --data {data} --shared {shared} --cache {work} --tables {work}"
    ],
    "papers/omniinput_precision": [
        "mnist --networks mlp mlp-aug --data {data} --cache {work} --figures {work}",
    ],
    "papers/omniinput_texts": [
        "sst2 --batches 10 --budget 2000 --data {data} --shared {shared} --cache {work} --tables {work}"
    ],
    "papers/omniinput_toy": ["{work}/toy.safetensors --steps 2"],
    "papers/reshape": [
        "experiment --trials 1 --data {data}/mnist --cache {work}/reshape",
        "experiment --trials 1 --data {data}/fashion-mnist --cache {work}/reshape",
        "tables --cache {work}/reshape --tables {work}/reshape",
        "table --points 2000 --solvers assay,highs-simplex --data {data}/mnist --cache {work}/reshape",
    ],
    "papers/reshape_plain": ["--help"],  # run by `reshape table`
    "papers/lenets": ["gtsrb cifar10 --images 3000 --data {data} --shared {shared} --work {work}/safety"],
    "papers/safety_guards": [
        f"gtsrb --images 3000 --epochs 1 --networks {{work}}/safety {SAFETY_DATA}",
        f"cifar10 --images 3000 --epochs 1 --networks {{work}}/safety {SAFETY_DATA}",
    ],
    "papers/safety_monitors": [
        f"run gtsrb --rows 100 --images 3000 {SAFETY}",
        f"run cifar10 --rows 100 --images 3000 {SAFETY}",
        f"stream gtsrb --streamed 20 {SAFETY}",
        f"stream cifar10 --streamed 20 {SAFETY}",
    ],
    "papers/safety_alarms": [
        "--images 3000 --rows 100 --networks {work}/safety --tables {work}/safety --data {data} "
        "--shared {shared}"
    ],
    "papers/safety_published": ["--tables {work}/safety"],
    "papers/safety_tables": [
        "--networks {work}/safety --guards {work}/safety --work {work}/safety --tables {work}/safety"
    ],
}


def ran(script: str, arguments: str, log: Path) -> bool:
    """Whether the run ended with status 0; its output is in the log."""
    command = [sys.executable, str(HERE / f"{script}.py"), *arguments.split()]
    start = time.perf_counter()
    with log.open("w") as out:
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=log.parent).returncode
    verdict = "fine" if status == 0 else f"failed with status {status}, see {log}"
    print(f"{script} {arguments}: {verdict} ({time.perf_counter() - start:.0f} s)", flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("scripts", nargs="*", help=f"some of {', '.join(RUNS)}; default all")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASSAY_DATA", ROOT / "data")))
    parser.add_argument("--shared", type=Path, default=ROOT / "shared" / "data")
    parser.add_argument("--work", type=Path, default=Path("small-runs"), help="folder for logs and caches")
    options = parser.parse_args()
    if unknown := set(options.scripts) - set(RUNS):
        parser.error(f"expected scripts among {', '.join(RUNS)}, got {', '.join(sorted(unknown))}")
    folders = {name: getattr(options, name).resolve() for name in ("data", "shared", "work")}
    folders["work"].mkdir(parents=True, exist_ok=True)
    failed = 0
    for script in options.scripts or RUNS:
        for number, arguments in enumerate(RUNS[script]):
            log = folders["work"] / f"{script.replace('/', '-')}-{number}.log"
            failed += not ran(script, arguments.format(**folders), log)
    return failed


if __name__ == "__main__":
    sys.exit(main())
