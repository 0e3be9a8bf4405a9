"""Engines for long loops: this process, local processes, or the machines of a Ray cluster."""

from assay.engine.mapping import ENGINES, checked_engine, mapped
from assay.engine.progress import progress

__all__ = ["ENGINES", "checked_engine", "mapped", "progress"]
