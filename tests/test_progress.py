"""On a terminal one bar at a time; elsewhere nothing but the items."""

import os
import pty
import subprocess
import sys

EXPECTED = [f"{outer}{inner}" for outer in range(3) for inner in range(3)] + ["0", "0"]

SCRIPT = """
from assay.engine import progress
for outer in progress(range(3), "outside"):
    for inner in progress(range(3), "inside"):
        print(f"{outer}{inner}")
for item in progress(range(1), "afterwards"):
    print(item)
for item in progress(range(1), "at once", 1):
    print(item)
"""


def run(stderr):
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True)


def test_a_loop_within_a_loop_shows_no_bar_of_its_own():
    reader, writer = pty.openpty()
    done = run(writer)
    os.close(writer)
    shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert done.stdout.split() == EXPECTED
    assert "outside" in shown
    assert "afterwards" in shown
    assert "inside" not in shown
    assert "at once" not in shown  # a guarded call on one input has no time for a bar


def test_nothing_is_shown_where_nobody_looks():
    done = run(subprocess.PIPE)
    assert done.stdout.split() == EXPECTED
    assert done.stderr == ""
