"""Make the figures of docs/papers that are missing or stale, most valuable first, and put them into the docs.

    python benchmarks/papers/all.py --status               # every run: fresh, in docs, stale or missing
    python benchmarks/papers/all.py --hours 2              # make what is missing or stale, as far as they go
    python benchmarks/papers/all.py --only mira-text       # these runs, and what they need
    python benchmarks/papers/all.py --tables               # only rewrite the docs from what is in the cache

A run that finished with the code as it is now is not made again, nor, unless --only names it, one whose
tables stand in the docs with that code: so a machine with an empty cache makes only what is stale. A script
that was killed goes on where it stopped, because a run keeps its folder while its code stays the same. A run
is not begun if its expected minutes exceed what is left. runs.py says which runs there are and how to
register one.
"""

import argparse
import ast
import fcntl
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

from pages import BLOCK, Block, rewritten  # noqa: E402
from runs import RUNS, Run  # noqa: E402

ROOT = HERE.parents[1]
IMAGE = re.compile(r"images/([\w.-]+)\)")
WIDTH = 110


@cache
def program(path: Path) -> str:
    """The code of a file without comments and docstrings, which decide no figure."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def scripts(run: Run) -> set[Path]:
    """The scripts of its commands and the benchmark modules that these import, directly or not."""
    found: set[Path] = set()
    open_ones = [HERE / f"{command.split()[0]}.py" for command in run.commands]
    while open_ones:
        path = open_ones.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(path):
            open_ones += [folder / f"{name}.py" for folder in (HERE, HERE.parent)
                          if (folder / f"{name}.py").exists()][:1]  # fmt: skip
    return found


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def rooms(run: Run) -> list[Path]:
    """The files of src/assay that decide its figures."""
    source = ROOT / "src" / "assay"
    apart = {source / f"{module}.py" for module in run.apart}
    return [
        path
        for room in run.rooms
        for path in (sorted((source / room).rglob("*.py")) or [source / f"{room}.py"])
        if path not in apart
    ]


def code(run: Run) -> str:
    """What its figures stand on, as eight letters: its commands, its files, and the same of what it needs."""
    parts = [*run.commands, *(code(RUNS[name]) for name in run.needs)]
    for path in sorted({*scripts(run), *rooms(run)}):
        parts += [path.relative_to(ROOT).as_posix(), program(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Stamp:
    """That a run finished: with which code, when, and how long it took."""

    code: str
    date: str
    minutes: float
    finished: float


@dataclass
class Cache:
    """The folders of all runs, and those of data."""

    folder: Path
    data: Path
    shared: Path

    def of(self, run: Run) -> Path:
        """The run's own folder for the code as it is now."""
        return self.folder / run.name / code(run)

    def stamp(self, run: Run) -> Stamp | None:
        """That of the newest of its runs that finished, with whichever code."""
        found = [
            Stamp(**json.loads(path.read_text())) for path in self.folder.glob(f"{run.name}/*/stamp.json")
        ]
        return max(found, key=lambda stamp: stamp.finished, default=None)

    def state(self, run: Run) -> str:
        """Fresh: it finished with the code as it is now, and left every table that the docs show today."""
        wanted = ["stamp.json", *(f"tables/{block}.md" for block in run.blocks)]
        if all((self.of(run) / name).exists() for name in wanted):
            return "fresh"
        return "stale" if self.stamp(run) else "missing"

    def arguments(self, run: Run, command: str) -> list[str]:
        folders = {"data": self.data, "shared": self.shared, "cache": self.of(run)}
        folders |= {"tables": self.of(run) / "tables"} | {name: self.of(RUNS[name]) for name in run.needs}
        # Split first: a folder's name may have spaces.
        script, *rest = (part.format(**folders) for part in shlex.split(command))
        return [sys.executable, str(HERE / f"{script}.py"), *rest]


def shown(run: Run) -> str:
    """The command that makes its figures, for the page; the scripts that this calls are in runs.py."""
    return f"`python benchmarks/papers/all.py --only {run.name}`"


def wrapped(text: str) -> str:
    """Sentences at the width of the docs; tables and images stay on their lines."""
    return "\n".join(
        line if line.startswith(("|", "!")) else fill(line, WIDTH, break_on_hyphens=False)
        for line in text.splitlines()
    )


def made(run: Run, caches: Cache) -> bool:
    """Whether its commands all ended well; then it is stamped. The output is in its folder, in `log`."""
    folder = caches.of(run)
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    start = time.time()
    with (folder / "lock").open("w") as lock, (folder / "log").open("a") as log:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{run.name}: another driver is at it; left alone", flush=True)
            return False
        for command in run.commands:
            print(f"{run.name}: {command}", flush=True)
            # The scripts hold the lock too: one that outlives a killed driver is not started twice.
            status = subprocess.run(
                caches.arguments(run, command),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
                pass_fds=(lock.fileno(),),
            ).returncode
            if status:
                print(f"{run.name}: failed with status {status}, see {folder / 'log'}", flush=True)
                return False
    minutes = (time.time() - start) / 60
    stamp = Stamp(code(run), time.strftime("%-d %B %Y"), round(minutes, 1), time.time())
    (folder / "stamp.json").write_text(json.dumps(vars(stamp)))
    print(f"{run.name}: made in {minutes:.0f} minutes", flush=True)
    return True


def write_pages(caches: Cache, docs: Path) -> None:
    """Put the newest tables of every run into the docs, and the images that its pages show."""
    blocks: dict[str, dict[str, Block]] = {}
    images: list[Path] = []
    for run in RUNS.values():
        if (stamp := caches.stamp(run)) is None:
            continue
        tables = caches.folder / run.name / stamp.code / "tables"
        images += tables.iterdir()
        for block, page in run.blocks.items():
            if not (path := tables / f"{block}.md").exists():
                continue  # registered after that run
            text = wrapped(path.read_text(encoding="utf-8"))
            blocks.setdefault(page, {})[f"{run.name}/{block}"] = Block(
                text, shown(run), stamp.code, stamp.date
            )
    for page, found in blocks.items():
        old = (docs / page).read_text(encoding="utf-8")
        if (new := rewritten(old, found)) != old:
            (docs / page).write_text(new, encoding="utf-8")
            print(f"{docs / page}: rewritten", flush=True)
    wanted = {name for page in docs.rglob("*.md") for name in IMAGE.findall(page.read_text(encoding="utf-8"))}
    for image in images:
        if image.name in wanted:
            shutil.copyfile(image, docs / "images" / image.name)


def in_docs(docs: Path) -> set[str]:
    """Runs whose tables stand in the docs, made with the code as it is now, or that only serve such runs."""
    made: dict[str, str] = {}
    for page in {page for run in RUNS.values() for page in run.blocks.values()}:
        for found in BLOCK.finditer((docs / page).read_text(encoding="utf-8")):
            made[found["name"]] = found["made"] or ""

    def settled(run: Run) -> bool:
        if run.blocks:
            opening = f": code {code(run)},"
            return all(made.get(f"{run.name}/{block}", "").startswith(opening) for block in run.blocks)
        users = [other for other in RUNS.values() if run.name in other.needs]
        return bool(users) and all(map(settled, users))

    return {run.name for run in RUNS.values() if settled(run)}


def in_order(chosen: list[str], settled: Set[str] = frozenset()) -> list[Run]:
    """The chosen runs by value, or all that are not settled, each after what it needs."""
    found: dict[str, Run] = {}

    def add(run: Run) -> None:
        for name in run.needs:
            add(RUNS[name])
        found.setdefault(run.name, run)

    for run in RUNS.values():
        if run.name in chosen or (not chosen and run.name not in settled):
            add(run)
    return list(found.values())


def drive(
    runs: list[Run],
    hours: float,
    caches: Cache,
    make: Callable[[Run, Cache], bool],
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Make what is not fresh, as far as the hours go; the names of what was made."""
    end, done = clock() + 3600 * hours, []
    for run in runs:
        if caches.state(run) == "fresh":
            continue
        if any(caches.state(RUNS[name]) != "fresh" for name in run.needs):
            print(f"{run.name}: left out, because {', '.join(run.needs)} is not there", flush=True)
        elif run.minutes * 60 > end - clock():
            left = max(0.0, end - clock()) / 60
            print(
                f"{run.name}: not begun, it takes {run.minutes:g} minutes and {left:.0f} are left", flush=True
            )
        elif make(run, caches):
            done.append(run.name)
    return done


def print_status(runs: list[Run], caches: Cache, settled: Set[str]) -> None:
    for run in runs:
        state = "in docs" if run.name in settled else caches.state(run)
        stamp = caches.stamp(run)
        took = (
            f"took {stamp.minutes:g} on {stamp.date} with code {stamp.code}" if stamp else "never made here"
        )
        print(f"{state:8} {run.name:32} {run.minutes:5g} minutes; {took}; code {code(run)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    home = os.environ.get
    parser.add_argument("--hours", type=float, help="make what is missing or stale, as far as these go")
    parser.add_argument("--status", action="store_true", help="list the runs and make nothing")
    parser.add_argument("--tables", action="store_true", help="only rewrite the docs from the cache")
    parser.add_argument("--only", nargs="+", default=[], choices=list(RUNS), metavar="RUN", help="these runs")
    parser.add_argument("--cache", type=Path, default=Path(home("ASSAY_RUNS", "paper-runs")))
    parser.add_argument("--data", type=Path, default=Path(home("ASSAY_DATA", ROOT.parent / "data")))
    parser.add_argument(
        "--shared", type=Path, default=Path(home("ASSAY_SHARED", ROOT.parent / "shared/data"))
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="the pages to rewrite")
    options = parser.parse_args()
    if not (options.status or options.tables or options.only or options.hours is not None):
        parser.error(
            "expected --hours, --only, --status or --tables, got none of them; --status changes nothing"
        )
    caches = Cache(options.cache.resolve(), options.data.resolve(), options.shared.resolve())
    # So that a terminated driver takes the script it started with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; call again to go on"))
    if options.status:
        print_status(in_order(options.only), caches, in_docs(options.docs))
        return
    if not options.tables:

        def make(run: Run, caches: Cache) -> bool:
            finished = made(run, caches)
            if finished:
                write_pages(caches, options.docs)
            return finished

        hours = math.inf if options.hours is None else options.hours
        drive(in_order(options.only, in_docs(options.docs)), hours, caches, make)
    write_pages(caches, options.docs)


if __name__ == "__main__":
    main()
