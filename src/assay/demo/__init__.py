"""The demo: every capability on bundled digits, in words and pictures."""

from assay.demo.tour import run_demo

__all__ = ["run_demo"]
