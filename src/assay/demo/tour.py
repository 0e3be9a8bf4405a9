"""The tour: chapter after chapter, a line for the terminal and a section for the report."""

import os
import time
from collections.abc import Callable

from assay.demo.device_counts import device_counts
from assay.demo.doubts import doubts
from assay.demo.drift import drift
from assay.demo.everything import everything
from assay.demo.first_look import first_look
from assay.demo.monitorability import monitorability
from assay.demo.networks import one_thread
from assay.demo.setting import Setting, prepared
from assay.demo.shipped import shipped
from assay.demo.trial import trial
from assay.report import Section, write_report

CHAPTERS: tuple[Callable[[Setting], Section], ...] = (
    first_look,
    monitorability,
    doubts,
    trial,
    shipped,
    drift,
    device_counts,
    everything,
)

INTRODUCTION = (
    "Three small networks learned to recognise the digits 0 to 8. They never saw a 9, and in operation "
    "nobody will tell them the right answer. Can you trust their answers? Each section below asks one "
    "question, answers it from data you would really have, and says what to do about it.\n\n"
    "The data are 8x8 images of handwritten digits from scikit-learn. Everything was computed on this "
    "machine from one seed; the same command gives the same numbers."
)


@one_thread()
def run_demo(path: str | os.PathLike[str], seed: int = 0, *, quiet: bool = False) -> list[Section]:
    """Train the networks, print an answer per chapter unless `quiet`, and write the report to `path`."""
    from rich.console import Console

    console = Console(highlight=False, quiet=quiet)
    start = time.perf_counter()
    console.print("[bold]assay demo[/]: three small networks on 8x8 digits, with the 9 unknown to them\n")
    setting = prepared(seed)
    sections = []
    for chapter in CHAPTERS:
        section = chapter(setting)
        sections.append(section)
        console.print(f"[bold]{section.title}[/]\n{section.words}\n[bold]What to do:[/] {section.advice}\n")
    origin = {"command": f"assay demo --seed {seed}", "data": "8x8 digits of scikit-learn", "seed": seed}
    write_report(sections, path, introduction=INTRODUCTION, origin=origin)
    console.print(f"{time.perf_counter() - start:.0f} s in all. The report with tables and figures: {path}")
    return sections
