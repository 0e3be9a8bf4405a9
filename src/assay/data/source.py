"""The front door: which reader a source needs."""

import inspect
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.data.csv import read_csv
from assay.data.huggingface import read_huggingface
from assay.data.idx import read_idx
from assay.data.images import read_images
from assay.data.labelled import Labelled
from assay.data.npz import read_npz
from assay.data.table import read_table
from assay.data.text import TEXT_NAMES, read_text
from assay.errors import InputError


def read(source: Any, **options: Any) -> Labelled[Tensor] | Labelled[list[str]]:
    """(inputs, labels) from a path or a Hugging Face dataset, by the reader that fits.

    | source | reader |
    | --- | --- |
    | a folder that holds idx files | `read_idx` |
    | any other folder | `read_images` |
    | .npz | `read_npz` |
    | .csv, .tsv, also .gz, with `text=` or a column named text, sentence, content or review | `read_text` |
    | other .csv, .tsv, also .gz | `read_csv` |
    | idx in the name | `read_idx` |
    | a dataset of Hugging Face | `read_huggingface` |

    `options` go to that reader; one that it does not have is refused.
    """
    reader: Callable[..., Any]
    reader = _reader(Path(source), options) if isinstance(source, str | PathLike) else read_huggingface
    known = list(inspect.signature(reader).parameters)[1:]
    for name in options:
        if name not in known:
            raise InputError(
                f"expected options of {reader.__name__} ({', '.join(known)}) for {_shown(source)}, "
                f"got {name!r}; leave it out or rename it"
            )
    data: Labelled[Tensor] | Labelled[list[str]] = reader(source, **options)
    return data


def _reader(path: Path, options: dict[str, Any]) -> Callable[..., Any]:
    if not path.exists():
        raise InputError(f"{path}: expected a file or a folder, found none; check the path")
    if path.is_dir():
        holds_idx = any("idx" in entry.name and entry.is_file() for entry in path.iterdir())
        return read_idx if holds_idx else read_images
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix == ".npz":
        return read_npz
    if suffix in (".csv", ".tsv"):
        return read_text if "text" in options or _holds_texts(path, options) else read_csv
    if "idx" in path.name:
        return read_idx
    raise InputError(
        f"{path}: expected an idx, npz, csv or tsv file or a folder of images, got another kind; "
        "convert it, or call the reader you mean, such as assay.data.read_csv"
    )


def _holds_texts(path: Path, options: dict[str, Any]) -> bool:
    if not options.get("header", True):
        return False
    head = read_table(path, header=True, separator=options.get("separator"), rows=0)
    return any(str(name).strip().lower() in TEXT_NAMES for name in head.columns)


def _shown(source: Any) -> str:
    return str(source) if isinstance(source, str | PathLike) else type(source).__name__
