"""One function over many jobs, in order, on any engine. Results do not depend on the engine.

The function must be pure: its result depends on the job alone, which includes the seed of any random numbers.
This makes retries safe: if a worker is killed, its job is run again and gives the same result.
"""

import multiprocessing
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

import torch

from assay.engine.progress import progress
from assay.errors import InputError
from assay.extras import expect_installed
from assay.freed_memory import keep_freed_memory

Job = TypeVar("Job")
Result = TypeVar("Result")

ENGINES = ("here", "processes", "ray")

RETRIES = 3
"""How often a job is run again if its worker dies."""

AHEAD = 2
"""Jobs handed out per worker before the first result is read: keeps workers busy and memory bounded."""

SLOW_IMPORTS = ("torch", "pandas", "scipy.stats", "scipy.optimize", "sklearn.cluster")
"""What takes long to import, and many functions need."""

_WORKER_DIED = (
    "expected workers to survive, but one died {} times on the same job; check that memory suffices"
)


def checked_engine(engine: str, workers: int | None = None) -> str:
    """The name of the engine; an error, before any work, if there is no such engine."""
    if workers is not None and workers < 1:
        raise InputError(f"expected at least 1 worker, or None for one per core, got {workers}")
    if engine not in ENGINES:
        raise InputError(f"expected engine to be one of {list(ENGINES)}, got {engine!r}")
    if engine == "ray":
        expect_installed("ray")
    return engine


def mapped(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    engine: str = "here",
    *,
    workers: int | None = None,
    description: str = "working",
    total: int | None = None,
) -> Iterator[Result]:
    """function(job) for every job, in the order of the jobs.

    "here" calls it in this process; "processes" in one process per core of this machine; "ray" on the Ray
    cluster that this process is connected to (RAY_ADDRESS names it), else on one started here. "processes"
    and "ray" pickle the function and the jobs, and every worker uses as many threads as this process, so that
    sums come out the same. `workers` is how many jobs run at a time, by default one per core.
    """
    run = {"here": _here, "processes": _processes, "ray": _ray}[checked_engine(engine, workers)]
    yield from progress(run(function, jobs, workers), description, total)


def _here(function: Callable[[Job], Result], jobs: Iterable[Job], _: int | None) -> Iterator[Result]:
    yield from map(function, jobs)


def _processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], workers: int | None
) -> Iterator[Result]:
    """A window of jobs over a pool; a broken pool is replaced and its jobs are run again."""
    workers = workers or _cores()
    content = _pickle(function)
    waiting: deque[tuple[bytes, Future[Any]]] = deque()
    pool = _pool(workers, content)
    coming = iter(jobs)
    broken = 0
    try:
        while True:
            for job in islice(coming, AHEAD * workers - len(waiting)):
                pickled = _pickle(job)
                waiting.append((pickled, pool.submit(_run_job, pickled)))
            if not waiting:
                return
            try:
                result = waiting[0][1].result()
            except BrokenProcessPool as error:
                broken += 1
                if broken > RETRIES:
                    raise InputError(_WORKER_DIED.format(broken)) from error
                pool.shutdown(wait=False)
                pool = _pool(workers, content)
                waiting = deque((pickled, pool.submit(_run_job, pickled)) for pickled, _ in waiting)
                continue
            waiting.popleft()
            broken = 0
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ray(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int | None) -> Iterator[Result]:
    """Ray schedules and retries; only a window of jobs is kept here."""
    import ray

    if not ray.is_initialized():
        # Without a cluster to join, start one that no other machine can reach.
        alone = {} if "RAY_ADDRESS" in os.environ else {"_node_ip_address": "127.0.0.1"}
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False, **alone)
    run = ray.remote(_run_with_threads).options(max_retries=RETRIES, num_cpus=1)
    shared, threads = ray.put(function), torch.get_num_threads()
    # More than run at a time only where Ray itself holds the others back.
    at_a_time = workers or AHEAD * int(ray.cluster_resources().get("CPU", 1))
    coming, waiting, running = iter(jobs), deque[Any](), list[Any]()
    while True:
        room = min(at_a_time - len(running), AHEAD * at_a_time - len(waiting))
        begun = [run.remote(shared, job, threads) for job in islice(coming, room)]
        waiting.extend(begun)
        running.extend(begun)
        if not waiting:
            return
        _, running = ray.wait(running, fetch_local=False)  # for any: a slow job keeps no worker idle
        while waiting and waiting[0] not in running:
            yield _ray_result(waiting.popleft())


def _ray_result(reference: Any) -> Any:
    import ray

    died = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error  # the function's own error, as on any other engine
    except died as error:
        raise InputError(_WORKER_DIED.format(RETRIES + 1)) from error


def _run_with_threads(function: Callable[[Job], Result], job: Job, threads: int) -> Result:
    keep_freed_memory()
    torch.set_num_threads(threads)
    return function(job)


_function: Callable[[Any], Any] | None = None


def _pool(workers: int, content: bytes) -> ProcessPoolExecutor:
    # A server that has imported what this process has starts workers in milliseconds; plain forks of a
    # process that has used several threads may hang.
    kinds = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
    if "forkserver" in kinds:
        context.set_forkserver_preload(_imported())
    return ProcessPoolExecutor(workers, context, _start_worker, (content, torch.get_num_threads()))


def _imported() -> list[str]:
    """What workers will most likely import as well: the slow ones, and assay's own."""
    own = __name__.partition(".")[0]
    return [name for name in list(sys.modules) if name in SLOW_IMPORTS or name.partition(".")[0] == own]


def _start_worker(content: bytes, threads: int) -> None:
    """In a worker: receives the function once instead of with every job."""
    global _function
    keep_freed_memory()
    torch.set_num_threads(threads)
    _function = pickle.loads(content)


def _run_job(job: bytes) -> Any:
    assert _function is not None
    return _function(pickle.loads(job))


def _pickle(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"expected functions and data that can be pickled for other processes, got some that cannot "
            f"({error}); define functions at the top level of a module, or use engine='here'"
        ) from error


def worker_count(engine: str, workers: int | None = None) -> int | None:
    """How many jobs run at a time; None if only the cluster knows."""
    return workers or {"here": 1, "processes": _cores(), "ray": None}[engine]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
