"""read and read_inputs: pick the reader that fits a source."""

import inspect
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.data.csv import csv_inputs, read_csv
from assay.data.delimited import read_table
from assay.data.huggingface import huggingface_inputs, read_huggingface
from assay.data.idx import idx_inputs, read_idx
from assay.data.images import image_inputs, read_images
from assay.data.labelled import Labelled
from assay.data.npz import npz_inputs, read_npz
from assay.data.tar import read_tar, tar_inputs
from assay.data.text import TEXT_NAMES, read_text, text_inputs
from assay.errors import InputError
from assay.storage import expect_readable


def read(source: Any, **options: Any) -> Labelled[Tensor] | Labelled[list[str]]:
    """(inputs, labels) from a path or a Hugging Face dataset, with the reader that fits.

    | source | reader |
    | --- | --- |
    | a folder with idx files | `read_idx` |
    | any other folder | `read_images` |
    | .npz | `read_npz` |
    | .tar, of WebDataset | `read_tar` |
    | .csv, .tsv, also .gz, with `text=` or a column named text, sentence, content or review | `read_text` |
    | other .csv, .tsv, also .gz | `read_csv` |
    | idx in the name | `read_idx` |
    | a Hugging Face dataset | `read_huggingface` |

    `options` go to that reader; an unknown option is an error.
    """
    data: Labelled[Tensor] | Labelled[list[str]] = _read(source, options, _LABELLED)
    return data


def read_inputs(source: Any, **options: Any) -> Tensor | list[str]:
    """The inputs alone, from data without labels, as they come in operation.

    Takes what `read` takes, an npy file, and a folder of images without sub-folders. Labels, if any, are
    ignored.
    """
    inputs: Tensor | list[str] = _read(source, options, _UNLABELLED)
    return inputs


Reader = Callable[..., Any]

_LABELLED: dict[str, Reader] = {
    "idx": read_idx,
    "images": read_images,
    "npz": read_npz,
    "tar": read_tar,
    "text": read_text,
    "csv": read_csv,
    "huggingface": read_huggingface,
}
_UNLABELLED: dict[str, Reader] = {
    "idx": idx_inputs,
    "images": image_inputs,
    "npz": npz_inputs,
    "tar": tar_inputs,
    "text": text_inputs,
    "csv": csv_inputs,
    "huggingface": huggingface_inputs,
}


def _read(source: Any, options: dict[str, Any], readers: dict[str, Reader]) -> Any:
    reader = readers[_format(Path(source), options) if isinstance(source, str | PathLike) else "huggingface"]
    names = list(inspect.signature(reader).parameters)[1:]
    for name in options:
        if name not in names:
            raise InputError(
                f"{_source_name(source)}: expected options of its reader "
                f"({', '.join(names) or 'it has none'}), got {name!r}; leave it out or rename it"
            )
    return reader(source, **options)


def _format(path: Path, options: dict[str, Any]) -> str:
    if not path.exists():
        raise InputError(f"{path}: expected a file or a folder, found none; check the path")
    expect_readable(path)
    if path.is_dir():
        has_idx = any("idx" in entry.name and entry.is_file() for entry in path.iterdir())
        return "idx" if has_idx else "images"
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if suffix in (".npz", ".npy"):
        return "npz"
    if suffix == ".tar":
        return "tar"
    if suffix in (".csv", ".tsv"):
        return "text" if "text" in options or _has_texts(path, options) else "csv"
    if "idx" in path.name:
        return "idx"
    raise InputError(
        f"{path}: expected an idx, npz, csv, tsv or tar file or a folder of images, got another kind; "
        "convert it, or call the reader you mean, such as assay.data.read_csv"
    )


def _has_texts(path: Path, options: dict[str, Any]) -> bool:
    if not options.get("header", True):
        return False
    head = read_table(path, header=True, separator=options.get("separator"), rows=0)
    return any(str(name).strip().lower() in TEXT_NAMES for name in head.columns)


def _source_name(source: Any) -> str:
    return str(source) if isinstance(source, str | PathLike) else type(source).__name__
