"""False alarms on good test images at a promised 5 %, by what a guard's threshold was set on.

    python benchmarks/papers/safety_alarms.py --networks FOLDER --tables FOLDER

The monitors of safety_guards.py, but ALOCC, which trains for long. GTSRB's images come in tracks of one sign;
the LeNet (lenets.py) was trained without a tenth of them. CIFAR-10's images stand alone.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from lenets import DATASETS, Split, add_data_arguments, images_of, network_of
from pages import markdown
from safety_guards import PRINTED, chosen
from table_files import write_table

import assay

RATE = 0.05
AS_PRINTED = "the paper's printed threshold"


def rates(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """A row per monitor: the share of good test images under alarm."""
    network, split = network_of(name, options.networks), Split.of(name, options)
    inputs, labels = images_of(name, "test", options)
    rows = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))[: options.rows]
    learned = split.learned[torch.randperm(len(split.learned), generator=torch.Generator().manual_seed(3))]
    train = network.observe((split.inputs[learned], split.labels[learned]))
    seen, new = (
        network.observe(split.inputs[part], keep_inputs=True)
        for part in (learned[: options.rows], split.held)
    )
    test = network.observe(inputs[rows], keep_inputs=True)
    found = []
    for label, monitor in chosen(name, network, epochs=1).items():
        if label == "ALOOC":
            continue
        monitor.fit(train)
        score = {id(trace): monitor.score(trace) for trace in (seen, new, test)}
        monitor.score = lambda trace, score=score: score[id(trace)]  # type: ignore[method-assign]
        guards = {"images it learned": assay.Guard(network, monitor).calibrate(seen, RATE)}
        guards["images held out"] = assay.Guard(network, monitor).calibrate(new, RATE)
        if name == "gtsrb":
            tracks = split.tracks[split.held]
            guards["tracks held out"] = assay.Guard(network, monitor).calibrate(new, RATE, groups=tracks)
        if label == "ODIN":  # whose score is one minus the confidence
            guards[AS_PRINTED] = assay.Guard(network, monitor, 1 - PRINTED[name])
        alarms = {title: float(guard.judge(test).alarm.double().mean()) for title, guard in guards.items()}
        found.append({"data": name, "monitor": label} | alarms)
        print(found[-1], flush=True)
    return pd.DataFrame(found)


def table(frame: pd.DataFrame) -> str:
    """Every monitor, and the mean over monitors."""
    columns = [column for column in frame if column not in ("data", "monitor")]
    calibrated = [column for column in columns if column != AS_PRINTED]
    means = frame.groupby("data", sort=False)[calibrated].mean().reset_index().assign(monitor="mean")
    both = pd.concat([frame, means])
    both[columns] = both[columns].map(lambda value: "-" if pd.isna(value) else f"{value:.1%}")
    return markdown(both[["data", "monitor", *columns]])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", type=Path, default=Path("safety-monitors"), help="what lenets.py trained"
    )
    parser.add_argument("--tables", type=Path, default=Path("safety-monitors"), help="where the table goes")
    parser.add_argument("--rows", type=int, default=2000, help="test images of a dataset")
    add_data_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.tables.mkdir(parents=True, exist_ok=True)
    write_table(options.tables, "alarms", table(pd.concat([rates(name, options) for name in DATASETS])))


if __name__ == "__main__":
    main()
