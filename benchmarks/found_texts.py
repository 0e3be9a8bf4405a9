"""Texts that come with the machine and are no reviews: unknown inputs for networks that judge films."""

import os
from pathlib import Path

import numpy as np


def licences(count: int) -> list[str]:
    """Paragraphs of the licences that come with Debian."""
    files = sorted(Path("/usr/share/common-licenses").glob("*"))
    texts = [file.read_text(errors="replace") for file in files if file.is_file()]
    return _chosen({" ".join(part.split()) for text in texts for part in text.split("\n\n")}, count)


def program_code(count: int) -> list[str]:
    """Pieces of four lines of Python's own library."""
    texts = []
    for file in sorted(Path(os.__file__).parent.glob("*.py"))[:60]:
        lines = [line.strip() for line in file.read_text(errors="replace").splitlines() if line.strip()]
        texts += [" ".join(lines[start : start + 4]) for start in range(0, len(lines), 4)]
    return _chosen(set(texts), count)


def _chosen(prose: set[str], count: int) -> list[str]:
    found = sorted(text for text in prose if 60 < len(text) < 400 and text[0].isalpha())
    return [found[place] for place in np.random.default_rng(0).permutation(len(found))[:count]]
