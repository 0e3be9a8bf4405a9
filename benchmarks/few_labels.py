"""Accuracy from a few labels, against the same number of labels alone: coverage and width over many draws.

    python benchmarks/few_labels.py                                  # on made-up sets
    python benchmarks/few_labels.py --sets FOLDER --draws 200        # on sets of your own

A set is a npz file with `right` (whether each row is right), `guesses` (how likely each row is right, 0 to 1)
and `expected` (the accuracy that was expected without labels; NaN if none was). Other benchmarks call
`tried`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import beta

from assay.accuracy import accuracy_from_labels
from assay.accuracy.guesses import moved_to
from assay.accuracy.label_draw import drawn_rows

Doubles = npt.NDArray[np.float64]
RIGHT = 0.05
"""An expectation that is off by less counts as right."""


def tried(
    right: Doubles,
    guesses: Doubles,
    expected: float | None = None,
    *,
    labels: int = 50,
    draws: int = 100,
    by_doubt: bool = True,
    seed: int = 0,
) -> dict[str, float]:
    """Coverage and mean half-width over `draws` draws of `labels` rows of one set.

    `alone` is Clopper and Pearson's interval from as many labels, drawn uniformly.
    """
    generator = np.random.default_rng(seed)
    known = guesses if expected is None else moved_to(expected, guesses)
    truth = float(np.mean(right))
    found = []
    for _ in range(draws):
        places = generator.choice(len(right), labels, replace=False)
        rows = drawn_rows(known, labels, int(generator.integers(2**31))) if by_doubt else places
        taken = rows.rows if by_doubt else rows
        answer = accuracy_from_labels(guesses, rows, right[taken], expected=expected)
        plain = clopper_pearson(int(right[places].sum()), labels)
        ends = [(answer.lower, answer.upper), plain]
        covered = [low - 1e-9 <= truth <= high + 1e-9 for low, high in ends]
        found.append([*covered, *(high - low for low, high in ends)])
    coverage, alone_coverage, width, alone_width = np.mean(found, axis=0)
    return {
        "truth": truth,
        "expected": np.nan if expected is None else expected,
        "coverage": coverage,
        "half_width": width / 2,
        "alone_coverage": alone_coverage,
        "alone_half_width": alone_width / 2,
        "ratio": width / alone_width,
    }


def clopper_pearson(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    tail = (1 - level) / 2
    lower = beta.ppf(tail, right, count - right + 1) if right else 0.0
    upper = beta.ppf(1 - tail, right + 1, count - right) if right < count else 1.0
    return float(lower), float(upper)


def table(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over the sets: those about which the expectation was right, wrong, or there was none."""
    off = (trials["expected"] - trials["truth"]).abs()
    kinds = np.select([off.isna(), off < RIGHT], ["none", "right"], "wrong")
    columns = ["coverage", "half_width", "alone_coverage", "alone_half_width", "ratio"]
    grouped = trials.groupby(kinds)
    found = grouped[columns].mean()
    found.insert(0, "sets", grouped.size())
    found["lowest_coverage"] = grouped["coverage"].min()
    found["largest_ratio"] = grouped["ratio"].max()
    return found


def made_up(rows: int = 1000, seed: int = 0) -> Iterator[tuple[Doubles, Doubles, float]]:
    """Sets with guesses that are right, too sure, useless, or the wrong way round."""
    generator = np.random.default_rng(seed)
    for accuracy in (0.02, 0.3, 0.6, 0.8, 0.9, 0.98):
        chances = generator.beta(2 * accuracy, 2 * (1 - accuracy), rows)
        right = (generator.uniform(size=rows) < chances).astype(float)
        sure = moved_to(0.97, chances)
        for guesses in (chances, sure, generator.permutation(chances), 1 - chances):
            yield right, guesses, float(guesses.mean())


def read(folder: Path) -> Iterator[tuple[Doubles, Doubles, float]]:
    for path in sorted(folder.glob("*.npz")):
        held = np.load(path)
        yield held["right"].astype(float), held["guesses"].astype(float), float(held["expected"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--labels", type=int, default=50)
    parser.add_argument("--draws", type=int, default=100)
    arguments = parser.parse_args()
    sets = list(read(arguments.sets) if arguments.sets else made_up())
    for by_doubt in (True, False):
        trials = pd.DataFrame(
            tried(
                right,
                guesses,
                None if np.isnan(expected) else expected,
                labels=arguments.labels,
                draws=arguments.draws,
                by_doubt=by_doubt,
            )
            for right, guesses, expected in sets
        )
        print("drawn by doubt" if by_doubt else "drawn uniformly")
        print(table(trials).round(3).to_string(), flush=True)


if __name__ == "__main__":
    main()
