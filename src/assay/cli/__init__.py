"""The `assay` command: each command parses, calls one public function, prints and saves.

No command imports torch before it runs, so that help and version answer at once.
"""

from assay.cli.app import app, main

__all__ = ["app", "main"]
