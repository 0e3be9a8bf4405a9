"""How long the core and every extra take to install, and how much disk they take.

    python benchmarks/install.py --folder ../runs/install             # the core, and every extra on top of it
    python benchmarks/install.py web onnx --folder ../runs/install    # two extras

Each is installed with the versions of constraints.txt into an environment of its own that has the core and
nothing else. Seconds are pip's, with nothing in its cache, so they depend on where packages come from; sizes
are those of the files in site-packages. The core is installed again unless the folder has it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = ("-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-compile")


def extras() -> dict[str, list[str]]:
    """The extras of pyproject.toml, with their requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(project["optional-dependencies"])


def installed(environment: Path, *packages: str) -> float:
    """Seconds that pip took to install these."""
    start = time.perf_counter()
    command = [environment / "bin" / "python", *PIP, "--constraint", ROOT / "constraints.txt", *packages]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ""})
    return time.perf_counter() - start


def source(folder: Path) -> Path:
    """A copy of what a wheel is built from: building leaves files behind."""
    copy = folder / "source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def size(environment: Path) -> tuple[int, int]:
    """Bytes of the files in site-packages, and the number of packages."""
    (place,) = environment.glob("lib/python*/site-packages")
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files), len(list(place.glob("*.dist-info")))


def row(name: str, seconds: float, size_in_bytes: int, packages: int) -> None:
    print(f"| {name} | {seconds:.0f} s | {size_in_bytes / 1e6:,.0f} MB | {packages} |", flush=True)


def core(folder: Path) -> Path:
    """An environment with torch and assay, and nothing else."""
    environment = folder / "core"
    if environment.exists():
        return environment
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    empty, tools = size(environment)
    seconds = installed(environment, "torch")
    with_torch, count = size(environment)
    row("torch", seconds, with_torch - empty, count - tools)
    seconds += installed(environment, str(source(folder)))
    whole, count = size(environment)
    row("the core, with torch", seconds, whole - empty, count - tools)
    return environment


def main() -> None:
    known = extras()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*", help=f"of {', '.join(known)}; all unless given")
    parser.add_argument("--folder", type=Path, required=True, help="for the environments")
    arguments = parser.parse_args()
    print("| | time | size | packages |\n| --- | --- | --- | --- |")
    environment = core(arguments.folder)
    before, count = size(environment)
    for name in arguments.extras or known:
        copy = arguments.folder / name
        shutil.copytree(environment, copy, symlinks=True)
        seconds = installed(copy, f"{source(arguments.folder)}[{name}]")
        after, packages = size(copy)
        row(f"`{name}`", seconds, after - before, packages - count)
        shutil.rmtree(copy)


if __name__ == "__main__":
    main()
