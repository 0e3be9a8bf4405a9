"""MIRA's tables on this machine, and what tracks detection better.

    python benchmarks/papers/mira.py toy                  # Fig. 1, to docs/images
    python benchmarks/papers/mira.py measure tabular      # one network after the other, kept in --cache
    python benchmarks/papers/mira.py measure vision
    python benchmarks/papers/mira.py measure text
    python benchmarks/papers/mira.py tables               # Tables 1, 2, 3 and 8 and the study, from the cache
    python benchmarks/papers/mira.py speed                # against plain forwards and a naive implementation

`measure` stops after --seconds and goes on where it stopped when called again.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import pandas as pd
import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import mira_speed  # noqa: E402
import mira_tables  # noqa: E402
import mira_toy  # noqa: E402
from mira_study import measured  # noqa: E402
from mira_subjects import tabular_subjects, text_subjects, vision_subjects  # noqa: E402

ROOT = HERE.parents[1]
DATA = os.environ.get("ASSAY_DATA")


def measure(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    subjects = {
        "tabular": lambda: tabular_subjects(arguments.shared, arguments.cache, range(*arguments.seeds)),
        "vision": lambda: vision_subjects(arguments.shared, arguments.data, arguments.cache),
        "text": lambda: text_subjects(arguments.shared, arguments.data, arguments.cache),
    }[arguments.modality]()
    for subject in subjects:
        if arguments.only and arguments.only != subject.name:
            continue
        if time.perf_counter() - start > arguments.seconds:
            print("time is up; call again to go on")
            return
        row = measured(subject, arguments.cache)
        score = row["thresholds"][str(subject.thresholds[0])]["score"]
        print(
            f"{subject.group} {subject.name}: accuracy {row['accuracy']:.3f}, MIRA {score:.4g}, "
            f"best-of AUROC {row['best empirical']:.4f}",
            flush=True,
        )


def toy(arguments: argparse.Namespace) -> None:
    figure = mira_toy.toy_figure(mira_toy.two_networks())
    figure.savefig(ROOT / "docs" / "images" / "monitorability.svg", metadata={"Date": None})
    print(mira_toy.seeds_table(8))


def tables(arguments: argparse.Namespace) -> None:
    rows = mira_tables.loaded(arguments.cache)
    if not rows:
        sys.exit(f"nothing measured yet in {arguments.cache}; run measure first")
    with pd.option_context("display.width", 200, "display.max_rows", 500, "display.max_columns", 30):
        print(mira_tables.networks_table(rows).round(3).to_string(index=False))
        for name in ("tabular", "vision", "text"):
            if own := [row for row in rows if mira_tables.family(row) == name]:
                print(f"\n{name}: AUROC (%) of each monitor\n", mira_tables.detection_means(own).round(1))
                print(mira_tables.tracking(own).round(3).head(arguments.rows).to_string())
        print("\nStability over accuracy thresholds\n", mira_tables.stability(rows).round(3).to_string())
        whole = mira_tables.tracking(rows).round(3)
        print("\nWhat tracks the best-of AUROC, over all networks\n", whole.head(arguments.rows).to_string())
        print(whole[whole["score"].isin([mira_tables.PLAIN, "accuracy"])].to_string())
        print(
            "\nChosen on two modalities, tried on the third\n",
            mira_tables.left_out(rows).round(3).to_string(),
        )


def speed(arguments: argparse.Namespace) -> None:
    """On as many test images as there are training images to fit; labels as they are."""
    for subject in vision_subjects(arguments.shared, arguments.data, arguments.cache):
        if subject.name in ("strided CNN", "ResNet-20") and arguments.only in ("", subject.name):
            pairs = [
                (inputs[: arguments.inputs], labels[: arguments.inputs])
                for inputs, labels in (subject.train(), subject.test())
            ]
            line = mira_speed.ratios(subject.network().module, *pairs, arguments.repeats)
            print(f"{subject.name}, {arguments.threads} thread(s), {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shared",
        type=Path,
        default=ROOT.parent / "shared" / "data",
        help="with sensorless, sst2, gtsrb",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(DATA) if DATA else ROOT.parent / "data",
        help="with cifar10, fashion-mnist and more (default: $ASSAY_DATA, or beside the repository)",
    )
    parser.add_argument("--cache", type=Path, default=Path("mira-cache"), help="what was measured")
    parser.add_argument("--threads", type=int, default=1)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("measure", help="train and measure networks; resumes")
    command.add_argument("modality", choices=["tabular", "vision", "text"])
    command.add_argument("--seeds", type=int, nargs=2, default=(0, 6), help="first, and one past the last")
    command.add_argument("--only", default="", help="the name of one network")
    command.add_argument("--seconds", type=float, default=1e9, help="start no network after this long")
    command.set_defaults(run=measure)
    commands.add_parser("toy", help="draw Fig. 1").set_defaults(run=toy)
    command = commands.add_parser("tables", help="print all tables from the cache")
    command.add_argument("--rows", type=int, default=15, help="variants shown")
    command.set_defaults(run=tables)
    command = commands.add_parser("speed", help="time the score on two networks")
    command.add_argument("--inputs", type=int, default=400)
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--only", default="")
    command.set_defaults(run=speed)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        arguments.run(arguments)
    except FileNotFoundError as error:
        sys.exit(f"expected data at {error.filename}, found none; pass --shared and --data")


if __name__ == "__main__":
    main()
