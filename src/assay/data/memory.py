"""How much memory there is: what would not fit is refused before it is read."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

from assay.errors import InputError

MOST_UNPACKED = 1032
"""A byte of gzip, or of a zip, unpacks to at most so many."""

# Where the two versions of Linux's control groups keep limit, use, and what of it are files read before,
# which make room at once.
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
    """Refuse what takes more memory than is free."""
    free = free_memory()
    if needed > free:
        raise InputError(
            f"{source}: expected data that fit into the {_shown(free)} of memory that are free, got "
            f"{_shown(needed)} once unpacked; read a part of them, or make room"
        )


def free_memory(root: Path = Path("/")) -> float:
    """Bytes that this process can still take: what the machine has left, and its container.

    Where the system does not say what is left, it is all that is built in; infinite where it says nothing.
    """
    return min(_machine(root), *_groups(root), math.inf)


def _machine(root: Path) -> float:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return _built_in()


def _built_in() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows
        return math.inf


def _groups(root: Path) -> Iterator[float]:
    """Room in this process's control group, and in those that hold it."""
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
                    yield _room(folder, limit, used, reclaimable)


def _room(folder: Path, limit: str, used: str, reclaimable: str) -> float:
    try:
        most = float((folder / limit).read_text().replace("max", "inf"))
        taken = int((folder / used).read_text())
        facts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # not a group, or one without a limit
        return math.inf
    return max(0.0, most - taken + int(facts.get(reclaimable, 0)))


def _shown(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
