"""Running the solver in a process that can be ended."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import AssayError
from assay.reshaping.solver.program import SubsetProblem

GRACE = 2.0  # seconds past the limit before the process is ended
POLL = 0.02


def solved(problem: SubsetProblem, task: str, time_limit: float, **extra: Any) -> dict[str, dict[str, Any]]:
    """Everything the solver wrote until it was done or its time was up, by name."""
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        folder = Path(name)
        np.savez(folder / "problem.npz", task=task, time_limit=time_limit, **problem.arrays(), **extra)
        _run(folder, time_limit)
        return {path.stem: _read(path) for path in sorted(folder.glob("*.npz")) if path.stem != "problem"}


def _run(folder: Path, time_limit: float) -> None:
    from assay.engine.progress import progress  # loads torch, and the solver's own process does without

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
            for _ in progress(_wait(process, time_limit + GRACE), "solving"):
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


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
    """Until the process is done or the time is over."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(POLL)
        yield


def _read(path: Path) -> dict[str, Any]:
    with np.load(path) as stored:
        return dict(stored)
