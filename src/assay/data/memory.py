"""Free memory: data that would not fit are refused before they are read."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from assay.errors import InputError

MOST_UNPACKED = 1032
"""One byte of gzip or zip unpacks to at most this many."""

# Where the two versions of Linux control groups report the limit, the use, and the part of it that is cached
# files, which can be freed at once.
_GROUPS = {
    "": ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    "memory": (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
}


def expect_room(needed: int, source: object) -> None:
    """Raise if this many bytes do not fit into free memory."""
    free = free_memory()
    if needed > free:
        raise InputError(
            f"{source}: expected data that fit into the {readable(free)} of free memory, got "
            f"{readable(needed)} once unpacked; read a part of them, or free some memory"
        )


def free_memory(root: Path = Path("/")) -> float:
    """Bytes that this process can still use on this machine and in its container.

    If the system does not report free memory, all installed memory counts; if it reports nothing, infinity.
    """
    return min(_machine_memory(root), *_group_memory(root), math.inf)


def _machine_memory(root: Path) -> float:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return _installed_memory()


def _installed_memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows
        return math.inf


def _group_memory(root: Path) -> Iterator[float]:
    """Memory left in the control group of this process, and in the groups around it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        for kind in kinds.split(","):
            if kind in _GROUPS:
                base, limit, used, reclaimable = _GROUPS[kind]
                folder = root / base
                for name in ("", *Path(path).parts[1:]):
                    folder /= name
                    yield _left_in_group(folder, limit, used, reclaimable)


def _left_in_group(folder: Path, limit: str, used: str, reclaimable: str) -> float:
    try:
        most = float((folder / limit).read_text().replace("max", "inf"))
        taken = int((folder / used).read_text())
        facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # not a group, or one without a limit
        return math.inf
    return max(0.0, most - taken + int(facts.get(reclaimable, 0)))


def readable(size: float) -> str:
    """A number of bytes for a message."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
