"""What each method that estimates accuracy costs per operational row, beside the network.

    OMP_NUM_THREADS=1 python benchmarks/accuracy_methods.py

CPU time of one process, the least of five runs, on made-up logits and 64 features; every method counts alone
on rows that it has not seen, so that what several methods share is in each figure.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch

import assay
from assay.accuracy.methods import METHODS
from assay.accuracy.predictions import AccuracyReference, LabelledPredictions, Predictions

FEATURES = 64


def made_up(rows: int, classes: int, seed: int) -> assay.Trace:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    logits = torch.randn(rows, classes, generator=generator)
    logits[torch.arange(rows), labels] += 3
    return assay.Trace(logits, {"penultimate": torch.randn(rows, FEATURES, generator=generator)}, labels)


def microseconds(run: Callable[[], Any], rows: int) -> float:
    """Per row: the least of five runs."""
    spent = []
    for _ in range(5):
        start = time.process_time()
        run()
        spent.append(time.process_time() - start)
    return 1e6 * min(spent) / rows


def costs(rows: int, classes: int) -> dict[str, float]:
    live = made_up(rows, classes, 1)
    taught = [LabelledPredictions.of(made_up(1000, classes, seed)) for seed in (2, 3)]
    known = AccuracyReference(LabelledPredictions.of(made_up(1000, classes, 0)), taught, 1000)
    found = {"probabilities of logits, checked": microseconds(lambda: Predictions.of(live), rows)}
    for kind in METHODS:
        if kind.applies(known):
            method = kind().fit(known)
            # Predictions keep what they computed once; each run has its own.
            fresh = iter([Predictions.of(live) for _ in range(5)])
            found[method.name] = microseconds(lambda: method.sums(next(fresh)), rows)  # noqa: B023
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--classes", type=int, nargs="+", default=[10, 100, 1000])
    arguments = parser.parse_args()
    found = {f"{classes} classes": costs(arguments.rows, classes) for classes in arguments.classes}
    print("microseconds per operational row")
    print(pd.DataFrame(found).round(2).to_string())


if __name__ == "__main__":
    main()
