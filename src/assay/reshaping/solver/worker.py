"""The solver's own process: `python -m assay.reshaping.solver.worker FOLDER`.

Reads a problem from the folder, writes every step forward there at once, and may be ended at any moment. Only
this process loads HiGHS, so that a solver that overruns its limit can be stopped, and a program that uses
OR-Tools (whose symbols clash with those of highspy) can still reshape.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.reshaping.solver import certificate, interior
from assay.reshaping.solver.program import SubsetProblem, extreme, relaxation, smallest_epsilon
from assay.reshaping.solver.rounding import Attempt, Relaxed, descend

SecondsLeft = Callable[[], float]
ENLARGEMENTS = (1.001, 1.01, 1.05, 1.2, 1.5, 2.0, 4.0)  # of the least epsilon, until a subset is found


def main(folder: Path) -> None:
    with np.load(folder / "problem.npz") as stored:
        arrays = dict(stored)
    start = time.monotonic()

    def seconds_left() -> float:
        return float(arrays["time_limit"]) - (time.monotonic() - start)

    problem = SubsetProblem.from_arrays(arrays)
    task = str(arrays["task"])
    if task == "keep":
        _keep(folder, problem, int(arrays["seed"]), seconds_left)
    elif task == "diagnose":
        _diagnose(folder, problem, int(arrays["seed"]), seconds_left)
    else:
        for name, sign in (("least", 1.0), ("most", -1.0)):
            program = extreme(problem, arrays["numerator"], arrays["denominator"], sign)
            _linear(folder, name, program, seconds_left)


def write(folder: Path, name: str, **arrays: Any) -> None:
    """Whole or not at all: the reader may look at any moment."""
    with open(folder / "partial", "wb") as file:
        np.savez(file, **arrays)
    (folder / "partial").replace(folder / f"{name}.npz")


def _keep(folder: Path, problem: SubsetProblem, seed: int, seconds_left: SecondsLeft) -> None:
    iterate = interior.solution(relaxation(problem), lambda: seconds_left() <= 0)
    write(folder, "bound", multipliers=iterate.multipliers, steps=iterate.steps)
    for number, attempt in _attempts(problem, iterate, seed, seconds_left):
        if attempt.counts is not None:  # later ones keep more
            write(folder, "kept", counts=attempt.counts)
        elif attempt.refutation is not None:
            proof = attempt.refutation
            write(folder, f"refuted-{number}", cells=proof.cells, total=proof.total)
        elif attempt.exhausted:
            write(folder, f"exhausted-{number}", number=number)
    write(folder, "done", done=True)


def _diagnose(folder: Path, problem: SubsetProblem, seed: int, seconds_left: SecondsLeft) -> None:
    """The least epsilon of any weighting, then one for which a subset was really found."""
    _linear(folder, "smallest", smallest_epsilon(problem), seconds_left)
    with np.load(folder / "smallest.npz") as stored:
        least = certificate.least_epsilon(problem, stored["multipliers"])
    for factor in ENLARGEMENTS:
        target = replace(problem.target, epsilon=min(least * factor + 1e-9, 1.0))
        larger = replace(problem, target=target)
        iterate = interior.solution(relaxation(larger), lambda: seconds_left() <= 0)
        for _, attempt in _attempts(larger, iterate, seed, seconds_left):
            if attempt.counts is not None:  # what it reaches, which may be less than what was allowed
                write(folder, "would_do", epsilon=problem.similarity(attempt.counts))
                return


def _attempts(
    problem: SubsetProblem, iterate: interior.Iterate, seed: int, seconds_left: SecondsLeft
) -> Iterator[tuple[int, Attempt]]:
    """Whole numbers of points, from the limit that the fractional solution proves downwards."""
    top = certificate.best_bound(problem, iterate.multipliers)
    return descend(problem, Relaxed(iterate.x, iterate.reduced_costs), top, seed, seconds_left)


def _linear(folder: Path, name: str, program: interior.Program, seconds_left: SecondsLeft) -> None:
    iterate = interior.solution(program, lambda: seconds_left() <= 0)
    write(folder, name, multipliers=iterate.multipliers, x=iterate.x, z=iterate.z, gap=iterate.gap)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
