"""Running the solver where it can be ended."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay.engine import progress
from assay.errors import AssayError
from assay.reshaping.solver.patterns import Patterns
from assay.reshaping.solver.program import Problem, Target

GRACE = 2.0  # seconds past the limit before the process is ended
POLL = 0.02


def solved(problem: Problem, task: str, time_limit: float, **extra: Any) -> dict[str, dict[str, Any]]:
    """Everything the solver wrote until it was done or its time was up, by name."""
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        folder = Path(name)
        np.savez(folder / "problem.npz", task=task, time_limit=time_limit, **packed(problem), **extra)
        _run(folder, time_limit)
        return {path.stem: _read(path) for path in sorted(folder.glob("*.npz")) if path.stem != "problem"}


def packed(problem: Problem) -> dict[str, Any]:
    """The problem as arrays; `unpacked` is the way back."""
    return {
        "codes": problem.patterns.codes,
        "sizes": np.array(problem.patterns.sizes),
        "multiplicity": problem.multiplicity,
        "fixed": problem.fixed,
        "fixed_points": problem.fixed_points,
        "counts": problem.target.counts,
        "total": problem.target.total,
        "epsilon": problem.target.epsilon,
    }


def unpacked(arrays: dict[str, Any]) -> Problem:
    return Problem(
        Patterns(arrays["codes"], tuple(int(size) for size in arrays["sizes"])),
        arrays["multiplicity"],
        arrays["fixed"],
        int(arrays["fixed_points"]),
        Target(arrays["counts"], int(arrays["total"]), float(arrays["epsilon"])),
    )


def _run(folder: Path, time_limit: float) -> None:
    environment = dict(os.environ)
    home = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([home, *filter(None, [environment.get("PYTHONPATH")])])
    with open(folder / "errors.txt", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "assay.reshaping.solver.worker", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
        )
        try:
            for _ in progress(_waiting(process, time_limit + GRACE), "solving"):
                pass
            ended = process.poll() is None
        finally:
            process.kill()
            process.wait()
    if not ended and process.returncode != 0:
        message = (folder / "errors.txt").read_text(errors="replace").strip().splitlines()
        raise AssayError(
            f"the solver's process ended with status {process.returncode} "
            f"({message[-1] if message else 'no message'}); try fewer points or more memory"
        )


def _waiting(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
    """Until the process is done or the time is over."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(POLL)
        yield


def _read(path: Path) -> dict[str, Any]:
    with np.load(path) as stored:
        return dict(stored)
