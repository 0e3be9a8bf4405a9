"""Tables in the docs that only runs write: what stands between `<!-- figures X -->` and `<!-- end X -->`.

The opening marker also says with which code, and when, the figures were made, unless nobody made them yet.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

BLOCK = re.compile(
    r"<!-- figures (?P<name>[\w/-]+)(?P<made>: [^>]*)? -->\n(?P<body>.*?)<!-- end (?P=name) -->", re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """What a run wrote for one place of a page."""

    text: str
    command: str
    code: str
    date: str

    def marked(self, name: str) -> str:
        """The whole of it, markers included."""
        opening = f"<!-- figures {name}: code {self.code}, {self.date} -->"
        return f"{opening}\n\n{self.command}\n\n{self.text.strip()}\n\n<!-- end {name} -->"


def names(page: str) -> list[str]:
    """The names of the blocks of a page, in order."""
    return [found["name"] for found in BLOCK.finditer(page)]


def stray_markers(page: str) -> list[str]:
    """Lines that open or end a block and have no partner."""
    return re.findall(r"^<!-- (?:figures|end) .*$", BLOCK.sub("", page), re.MULTILINE)


def rewritten(page: str, blocks: dict[str, Block]) -> str:
    """The page with these blocks in place of what stood between their markers; nothing else changes."""

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        return blocks[name].marked(name) if name in blocks else found[0]

    return BLOCK.sub(replaced, page)


def markdown(frame: pd.DataFrame) -> str:
    """The frame as a Markdown table, its cells as they print; the index is left out."""
    return "\n".join(_lines(frame)) + "\n"


def _lines(frame: pd.DataFrame) -> Iterator[str]:
    rows = [tuple(frame.columns), ("---",) * len(frame.columns), *frame.itertuples(index=False)]
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
