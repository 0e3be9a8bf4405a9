"""The demo: every capability on bundled digits, in words and pictures.

Nothing is imported here: `assay.demo.networks`, which examples use, needs torch alone.
"""
