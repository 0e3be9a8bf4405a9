"""MIRA's tables and figures on this machine.

    python benchmarks/papers/mira.py toy                  # Fig. 1, and the same for other seeds
    python benchmarks/papers/mira.py measure tabular      # one network after the other, kept in --cache
    python benchmarks/papers/mira.py measure vision
    python benchmarks/papers/mira.py measure text
    python benchmarks/papers/mira.py tables               # Tables 1, 2, 3 and 8, from the cache
    python benchmarks/papers/mira.py maps vision          # Figs. 2 to 4, of networks that were measured
    python benchmarks/papers/mira.py speed                # against plain forwards and a naive implementation

`measure` stops after --seconds and goes on where it stopped when called again. Tables and figures go to
--tables, too.
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

import mira_maps  # noqa: E402
import mira_speed  # noqa: E402
import mira_tables  # noqa: E402
import mira_toy  # noqa: E402
from mira_study import Subject, measured  # noqa: E402
from mira_subjects import tabular_subjects, text_subjects, vision_subjects  # noqa: E402
from pages import markdown  # noqa: E402
from table_files import save_figure, write_table  # noqa: E402

ROOT = HERE.parents[1]
DATA = os.environ.get("ASSAY_DATA")


def subjects_of(arguments: argparse.Namespace) -> list[Subject]:
    return {
        "tabular": lambda: tabular_subjects(arguments.shared, arguments.cache, range(*arguments.seeds)),
        "vision": lambda: vision_subjects(arguments.shared, arguments.data, arguments.cache),
        "text": lambda: text_subjects(arguments.shared, arguments.data, arguments.cache),
    }[arguments.modality]()


def measure(arguments: argparse.Namespace) -> None:
    start = time.perf_counter()
    for subject in subjects_of(arguments):
        if arguments.only and arguments.only != subject.name:
            continue
        if time.perf_counter() - start > arguments.seconds:
            print("time is up; call again to go on")
            return
        row = measured(subject, arguments.cache)
        score = row["thresholds"][str(subject.thresholds[0])]["score"]
        print(
            f"{subject.group} {subject.name}: accuracy {row['accuracy']:.3f}, MIRA {score:.4g}, "
            f"best-of AUROC {row['best']:.4f}",
            flush=True,
        )


def toy(arguments: argparse.Namespace) -> None:
    figure = mira_toy.toy_figure(mira_toy.two_networks())
    save_figure(figure, arguments.tables / "monitorability.svg")
    write_table(arguments.tables, "toy", mira_toy.seeds_table(8) + "\n")


def tables(arguments: argparse.Namespace) -> None:
    """Those of the modalities that were measured; the caches of several may be given."""
    rows = [row for cache in (arguments.cache, *arguments.also) for row in mira_tables.loaded(cache)]
    if not rows:
        sys.exit(f"nothing measured yet in {arguments.cache}; run measure first")
    for name in mira_tables.MODALITIES:
        if own := [row for row in rows if mira_tables.family(row) == name]:
            first = mira_tables.tabular if name == "tabular" else mira_tables.one_split
            write_table(arguments.tables, name, first(own))
            write_table(arguments.tables, f"{name}-monitors", mira_tables.monitors(own))
            write_table(arguments.tables, f"{name}-thresholds", mira_tables.stability(own))


def maps(arguments: argparse.Namespace) -> None:
    """The first seed of every architecture."""
    chosen = [
        subject for subject in subjects_of(arguments) if subject.group in ("tabular 0", "vision", "text")
    ]
    figure = mira_maps.maps_figure([(subject, measured(subject, arguments.cache)) for subject in chosen])
    image = f"mira-{arguments.modality}.png"
    save_figure(figure, arguments.tables / image)
    text = f"![Maps of the features of {len(chosen)} networks, {arguments.modality}](../images/{image})\n"
    write_table(arguments.tables, f"{arguments.modality}-map", text)


def speed(arguments: argparse.Namespace) -> None:
    """On as many test images as there are training images to fit; labels as they are."""
    lines = []
    for subject in vision_subjects(arguments.shared, arguments.data, arguments.cache):
        if subject.name in ("strided CNN", "ResNet-20") and arguments.only in ("", subject.name):
            count = arguments.inputs if subject.name == "strided CNN" else arguments.inputs // 6
            pairs = [(inputs[:count], labels[:count]) for inputs, labels in (subject.train(), subject.test())]
            lines.append(
                {"network": subject.name}
                | mira_speed.ratios(subject.network().module, *pairs, arguments.repeats)
            )
            print(lines[-1], flush=True)
    write_table(arguments.tables, "speed", markdown(pd.DataFrame(lines)))


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
    parser.add_argument("--tables", type=Path, default=Path("mira-cache"), help="for tables and figures")
    parser.add_argument("--threads", type=int, default=1)
    commands = parser.add_subparsers(required=True)
    for name, run, about in (
        ("measure", measure, "train and measure networks; resumes"),
        ("maps", maps, "draw Figs. 2 to 4"),
    ):
        command = commands.add_parser(name, help=about)
        command.add_argument("modality", choices=mira_tables.MODALITIES)
        command.add_argument(
            "--seeds", type=int, nargs=2, default=(0, 6), help="first, and one past the last"
        )
        command.set_defaults(run=run)
    command = commands.choices["measure"]
    command.add_argument("--only", default="", help="the name of one network")
    command.add_argument("--seconds", type=float, default=1e9, help="start no network after this long")
    commands.add_parser("toy", help="draw Fig. 1").set_defaults(run=toy)
    command = commands.add_parser("tables", help="print all tables from the cache")
    command.add_argument("--also", type=Path, nargs="*", default=[], help="more caches")
    command.set_defaults(run=tables)
    command = commands.add_parser("speed", help="time the score on two networks")
    command.add_argument("--inputs", type=int, default=400)
    command.add_argument("--repeats", type=int, default=3)
    command.add_argument("--only", default="")
    command.set_defaults(run=speed)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.tables.mkdir(parents=True, exist_ok=True)
    try:
        arguments.run(arguments)
    except FileNotFoundError as error:
        sys.exit(f"expected data at {error.filename}, found none; pass --shared and --data")


if __name__ == "__main__":
    main()
