"""Engines for long loops: this process, local processes, or the machines of a Ray cluster."""

from assay.engine.mapping import ENGINES, checked_engine, mapped, worker_count
from assay.engine.progress import progress

__all__ = ["ENGINES", "checked_engine", "mapped", "progress", "worker_count"]
