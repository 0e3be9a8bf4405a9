"""A process that keeps freed memory meets no new pages when it asks for as much again."""

import os
import platform
import subprocess
import sys

import pytest

from assay.freed_memory import keep_freed_memory

FAULTS = """
import resource, numpy
from assay.freed_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        maps = numpy.ones((16, 1024, 128))  # 16 MiB: 4,096 pages
        del maps
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), keep_freed_memory(), faults(), faults())
"""


def run(**environment):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", FAULTS], env=plain | environment, capture_output=True, text=True, check=True
    )
    return found.stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no glibc")
def test_pages_are_met_once():
    before, kept, first, again = run()
    assert kept == "True"
    # Of ten arrays of 4,096 pages each, all pages are new before (fewer where pages are huge); then the first
    # array alone, and later none but a few of python's own.
    assert int(before) > 9 * int(again)
    assert int(again) < 100
    assert int(first) <= int(before)


def test_who_has_chosen_malloc_options_keeps_them(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not keep_freed_memory()


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()
