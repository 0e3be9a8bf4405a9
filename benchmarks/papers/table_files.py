"""Tables and figures as files, the same for the same figures."""

import re
from pathlib import Path
from typing import Any


def write_table(folder: Path, name: str, text: str) -> None:
    """Into NAME.md, and to the terminal; 5% becomes 5 %."""
    text = re.sub(r"(?<=\d)%", " %", text)
    print(f"{name}\n{text}", flush=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


def save_figure(figure: Any, path: Path) -> None:
    """Without the date, and with names of parts that do not change from run to run."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "assay"}):
        figure.savefig(
            path, dpi=90, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None
        )
