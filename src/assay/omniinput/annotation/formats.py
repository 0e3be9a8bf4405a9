"""Labels in and out: csv, Label Studio's tasks and exports, and the store."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.omniinput.annotation.items import AnnotationItems
from assay.omniinput.annotation.order import Turn
from assay.omniinput.annotation.scores import framed_scores
from assay.omniinput.annotation.store import AnnotationStore, Label, is_store
from assay.storage import write_text_whole, write_whole

SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)

FORMULA = "=+-@\t\r\n＝＋－＠"
"""Spreadsheets take a cell that begins with one of these for a formula."""

LABEL_STUDIO_CONFIG = """<View>
  <{kind} name="shown" value="${field}"/>
  <Choices name="score" toName="shown" choice="single" showInline="true">
{choices}
  </Choices>
</View>
"""


def read_annotations(path: str | os.PathLike[str], items: AnnotationItems | None = None) -> pd.DataFrame:
    """Labels as `precision_recall` takes them, from a store, a csv, or Label Studio's JSON export.

    items: what was to be annotated; needed where the file knows items but not their bins, as Label Studio's
    does (annotators should not see bins).
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"expected a file of annotations at {source}, found none; check the path")
    if is_store(source):
        with AnnotationStore(source) as store:
            return store.labels()
    frame = _label_studio_frame(source) if source.suffix == ".json" else _csv_frame(source)
    return _with_bins(frame, items, source)


def write_annotations(
    labels: pd.DataFrame | None, path: str | os.PathLike[str], items: AnnotationItems | None = None
) -> None:
    """Labels as csv, or, to a .json, items and their labels as Label Studio's tasks; whole or not at all."""
    if Path(path).suffix != ".json":
        frame = pd.DataFrame() if labels is None else _with_texts(labels, _as_text)
        # Texts in quotes: some readers, pandas among them, begin a new row at a bare carriage return.
        write_whole(
            path, lambda temporary: frame.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC)
        )
        return
    if items is None:
        raise InputError("expected items for Label Studio's tasks, got none; pass what was chosen")
    tasks = label_studio_tasks(items, labels)
    try:
        text = json.dumps(tasks, ensure_ascii=False, indent=1, allow_nan=False)
    except ValueError as error:
        raise InputError("expected finite seconds in every label, got others; leave them empty") from error
    write_text_whole(path, text)


def labels_of(frame: pd.DataFrame) -> list[Label]:
    """The rows of a frame as labels for a store; scores are checked before any is written."""
    if "item" not in frame:
        raise InputError("expected labels with a column item, got none; export them with their items")
    framed_scores(frame, int(frame["bin"].max()) + 1)
    repeats = frame["repeat"] if "repeat" in frame else pd.Series(0, index=frame.index)
    names = frame["annotator"] if "annotator" in frame else pd.Series("imported", index=frame.index)
    seconds = frame["seconds"] if "seconds" in frame else pd.Series(np.nan, index=frame.index)
    columns = zip(frame["item"], repeats, names, frame["score"], seconds, strict=True)
    return [
        Label(Turn(int(item), int(repeat)), str(name), _known(score), _known(taken))
        for item, repeat, name, score, taken in columns
    ]


def _known(number: float) -> float | None:
    return None if pd.isna(number) else float(number)


def label_studio_config(items: AnnotationItems) -> str:
    """The labelling interface that goes with `label_studio_tasks`: five choices under the keys 1 to 5."""
    choices = "\n".join(
        f'    <Choice value="{score:g}" hotkey="{key}"/>' for key, score in enumerate(SCALE, start=1)
    )
    kind, field = ("Image", "image") if items.is_image else ("Text", "text")
    return LABEL_STUDIO_CONFIG.format(kind=kind, field=field, choices=choices)


def label_studio_tasks(items: AnnotationItems, labels: pd.DataFrame | None = None) -> list[dict[str, Any]]:
    """One task an item, in random order, without its bin; labels, if any, as its annotations."""
    order = np.random.default_rng(0).permutation(len(items))
    given = _by_item(labels)
    return [
        {
            "data": {"item": int(items.rows[place])} | _shown(items, int(place)),
            "annotations": [_annotation(row) for row in given.get(int(items.rows[place]), [])],
        }
        for place in order
    ]


def _shown(items: AnnotationItems, place: int) -> dict[str, str]:
    if not items.is_image:
        return {"text": items.text(place)}
    from assay.omniinput.annotation.image import image_address

    return {"image": image_address(items.inputs[place].numpy(), items.values)}


def _by_item(labels: pd.DataFrame | None) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = {}
    if labels is not None:
        for row in labels.to_dict(orient="records"):
            rows.setdefault(int(row["item"]), []).append({str(name): value for name, value in row.items()})
    return rows


def _annotation(row: dict[str, Any]) -> dict[str, Any]:
    skipped = bool(pd.isna(row["score"]))
    choice = {"from_name": "score", "to_name": "shown", "type": "choices"}
    result = [] if skipped else [choice | {"value": {"choices": [f"{row['score']:g}"]}}]
    # Label Studio numbers its users; names travel in an email, which is what it shows.
    who = {"email": row["annotator"]}
    taken = _known(row.get("seconds", np.nan))
    return {"completed_by": who, "was_cancelled": skipped, "lead_time": taken, "result": result}


def _with_texts(frame: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The frame with every cell that is a text changed."""
    texts = {
        name: frame[name].map(lambda cell: change(cell) if isinstance(cell, str) else cell)
        for name in frame.columns
        if not pd.api.types.is_numeric_dtype(frame[name])
    }
    return frame.assign(**texts)


def _as_text(cell: str) -> str:
    """With an apostrophe in front where a spreadsheet would compute it, or where there is one already."""
    return f"'{cell}" if cell.startswith((*FORMULA, "'")) else cell


def _as_written(cell: str) -> str:
    """What `_as_text` was given."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*FORMULA, "'")) else cell


def _csv_frame(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
        if (
            "annotator" in frame
        ):  # names as they are, also those that look like a number or like none: 007, NA
            names = pd.read_csv(path, usecols=["annotator"], dtype=str, keep_default_na=False)
            frame["annotator"] = names["annotator"]
        return _with_texts(frame, _as_written)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"expected a csv of annotations at {path}, got {error}; export it again") from error


def _label_studio_frame(path: Path) -> pd.DataFrame:
    try:
        tasks = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for task in tasks for row in _rows(task)]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"expected Label Studio's JSON export of tasks made here at {path}, got {type(error).__name__} "
            f"({error}); export it as JSON, not JSON-MIN"
        ) from error
    return pd.DataFrame(rows, columns=["item", "score", "annotator", "repeat", "seconds"])


def _rows(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for annotation in task.get("annotations", []):
        who = annotation.get("completed_by", "unknown")
        name = who.get("email", who.get("id")) if isinstance(who, dict) else who
        score = np.nan if annotation.get("was_cancelled") else _score(annotation["result"])
        taken = annotation.get("lead_time")
        yield {
            "item": int(task["data"]["item"]),
            "score": score,
            "annotator": str(name),
            "repeat": 0,
            "seconds": np.nan if taken is None else float(taken),
        }


def _score(results: list[dict[str, Any]]) -> float:
    """Of choices that are numbers, of a number, or of one to five stars."""
    for result in results:
        value = result["value"]
        if "choices" in value:
            return float(value["choices"][0])
        if "number" in value:
            return float(value["number"])
        if "rating" in value:
            return (float(value["rating"]) - 1) / 4
    return float("nan")


def _with_bins(frame: pd.DataFrame, items: AnnotationItems | None, path: Path) -> pd.DataFrame:
    """Bins and weights by item, where the file does not have them."""
    if "bin" in frame:
        return frame
    if items is None or "item" not in frame:
        raise InputError(
            f"expected {path} to say the bin of every label, got columns {', '.join(map(str, frame))}; "
            "pass the items it is about"
        )
    known = items.to_frame()[["item", "bin", "weight"]]
    strangers = ~frame["item"].isin(known["item"])
    if strangers.any():
        raise InputError(
            f"expected labels of the items given, got one of {frame['item'][strangers].iloc[0]} in {path}; "
            "pass the items that were annotated"
        )
    joined = frame.merge(known, on="item", how="left")
    return joined.assign(row=joined["item"])
