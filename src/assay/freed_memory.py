"""Freed memory, kept for the next batch instead of being returned to the system.

A forward pass frees the maps of each layer and asks for new ones of the same size. Under glibc these are so
large that every one is mapped anew, and the system fills each page with zeros when it is first touched: a
third of the time of ResNet-20 on a CPU (`python benchmarks/observe.py`). A process of assay's own (a
command, a worker) keeps what was freed. A library must not decide this for its caller's process, so nothing
else does.
"""

import ctypes
import os
import sys

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
LARGEST = 32 << 20  # bytes; glibc takes no larger threshold. What is larger is still mapped anew.
KEPT = 1 << 30  # bytes at the top of the heap


def keep_freed_memory() -> bool:
    """Whether this process now keeps it: under glibc, unless the environment has options of malloc."""
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if chosen or not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another libc may not have it
    return (
        mallopt is not None and bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, KEPT))
    )
