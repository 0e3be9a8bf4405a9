"""Read and write labels: csv, Label Studio tasks and exports, and the store."""

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
from assay.omniinput.annotation.review import by_annotators, is_review
from assay.omniinput.annotation.scores import runs_in, scores_from_frame
from assay.omniinput.annotation.store import AnnotationStore, Label, Review, is_store
from assay.storage import expect_readable, write_text_whole, write_whole

SCALE = (0.0, 0.25, 0.5, 0.75, 1.0)

FORMULA = "=+-@\t\r\n＝＋－＠"
"""Spreadsheets treat a cell that begins with one of these as a formula."""

LABEL_STUDIO_CONFIG = """<View>
  <{kind} name="shown" value="${field}"/>
  <Choices name="score" toName="shown" choice="single" showInline="true">
{choices}
  </Choices>
</View>
"""


def read_annotations(path: str | os.PathLike[str], items: AnnotationItems | None = None) -> pd.DataFrame:
    """Labels for `precision_recall`, from a store, a csv, or a JSON export of Label Studio.

    items: the items that were annotated; needed if the file does not say their bins, as in exports of Label
    Studio (annotators should not see bins).
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"expected a file of annotations at {source}, found none; check the path")
    expect_readable(source)
    if is_store(source):
        with AnnotationStore(source) as store:
            return store.labels()
    frame = _label_studio_frame(source) if source.suffix == ".json" else _csv_frame(source)
    if items is not None and runs_in(frame) - {items.run}:
        raise InputError(
            f"expected labels of the items passed, got those of another run in {source}; pass the items that "
            "were judged"
        )
    return _with_bins(frame, items, source)


def write_annotations(
    labels: pd.DataFrame | None, path: str | os.PathLike[str], items: AnnotationItems | None = None
) -> None:
    """Write labels as csv, or items and their labels as Label Studio tasks if the path ends in .json."""
    if Path(path).suffix != ".json":
        frame = pd.DataFrame() if labels is None else _with_texts(labels, _spreadsheet_safe)
        # Quoted texts, since pandas and other readers start a new row at a bare carriage return.
        write_whole(
            path, lambda temporary: frame.to_csv(temporary, index=False, quoting=csv.QUOTE_NONNUMERIC)
        )
        return
    if items is None:
        raise InputError("expected items for Label Studio tasks, got none; pass the chosen items")
    tasks = label_studio_tasks(items, labels)
    try:
        text = json.dumps(tasks, ensure_ascii=False, indent=1, allow_nan=False)
    except ValueError as error:
        raise InputError("expected finite seconds in every label, got others; leave them empty") from error
    write_text_whole(path, text)


def labels_of(frame: pd.DataFrame) -> list[Label]:
    """The rows of a frame as labels for a store; the scores are checked first."""
    if "item" not in frame:
        raise InputError("expected labels with a column item, got none; export them with their items")
    scores_from_frame(frame, int(frame["bin"].max()) + 1)
    frame = by_annotators(frame)
    repeats = frame["repeat"] if "repeat" in frame else pd.Series(0, index=frame.index)
    names = frame["annotator"] if "annotator" in frame else pd.Series("imported", index=frame.index)
    seconds = frame["seconds"] if "seconds" in frame else pd.Series(np.nan, index=frame.index)
    columns = zip(frame["item"], repeats, names, frame["score"], seconds, _comments(frame), strict=True)
    return [
        Label(Turn(int(item), int(repeat)), str(name), _number_or_none(score), _number_or_none(taken), words)
        for item, repeat, name, score, taken, words in columns
    ]


def reviews_of(frame: pd.DataFrame) -> list[Review]:
    """The rows of a frame that are reviews, for a store."""
    rows = frame[is_review(frame)]
    columns = zip(rows["item"], rows["score"], _comments(rows), strict=True)
    return [Review(int(item), _number_or_none(score), words) for item, score, words in columns]


def _comments(frame: pd.DataFrame) -> list[str | None]:
    if "comment" not in frame:
        return [None] * len(frame)
    return [str(cell) if isinstance(cell, str) and cell else None for cell in frame["comment"]]


def _number_or_none(number: float) -> float | None:
    return None if pd.isna(number) else float(number)


def label_studio_config(items: AnnotationItems) -> str:
    """The labelling interface for `label_studio_tasks`: five choices on the keys 1 to 5."""
    choices = "\n".join(
        f'    <Choice value="{score:g}" hotkey="{key}"/>' for key, score in enumerate(SCALE, start=1)
    )
    kind, field = ("Image", "image") if items.is_image else ("Text", "text")
    return LABEL_STUDIO_CONFIG.format(kind=kind, field=field, choices=choices)


def label_studio_tasks(items: AnnotationItems, labels: pd.DataFrame | None = None) -> list[dict[str, Any]]:
    """One task per item, in random order, without its bin; labels, if any, become its annotations."""
    order = np.random.default_rng(0).permutation(len(items))
    labels_by_item = _by_item(labels)
    return [
        {
            "data": {"item": int(items.rows[place]), "run": items.run} | _task_data(items, int(place)),
            "annotations": [_annotation(row) for row in labels_by_item.get(int(items.rows[place]), [])],
        }
        for place in order
    ]


def _task_data(items: AnnotationItems, place: int) -> dict[str, str]:
    if not items.is_image:
        return {"text": items.text(place)}
    from assay.omniinput.annotation.image import image_address

    return {"image": image_address(items.inputs[place].numpy(), items.values)}


def _by_item(labels: pd.DataFrame | None) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = {}
    if labels is not None:
        for row in by_annotators(labels).to_dict(orient="records"):  # it has no place for reviews
            rows.setdefault(int(row["item"]), []).append({str(name): value for name, value in row.items()})
    return rows


def _annotation(row: dict[str, Any]) -> dict[str, Any]:
    skipped = bool(pd.isna(row["score"]))
    choice = {"from_name": "score", "to_name": "shown", "type": "choices"}
    result = [] if skipped else [choice | {"value": {"choices": [f"{row['score']:g}"]}}]
    # Label Studio numbers its users and shows their email, so the name goes there.
    who = {"email": row["annotator"]}
    seconds_taken = _number_or_none(row.get("seconds", np.nan))
    return {"completed_by": who, "was_cancelled": skipped, "lead_time": seconds_taken, "result": result}


def _with_texts(frame: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """The frame with `change` applied to every text cell."""
    texts = {
        name: frame[name].map(lambda cell: change(cell) if isinstance(cell, str) else cell)
        for name in frame.columns
        if not pd.api.types.is_numeric_dtype(frame[name])
    }
    return frame.assign(**texts)


def _spreadsheet_safe(cell: str) -> str:
    """With an apostrophe in front if a spreadsheet would compute the cell, or if it already begins with
    one."""
    return f"'{cell}" if cell.startswith((*FORMULA, "'")) else cell


def _original_text(cell: str) -> str:
    """Undo `_spreadsheet_safe`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*FORMULA, "'")) else cell


def _csv_frame(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
        for column in {"annotator", "run", "comment"} & set(frame):
            # Names stay as written, even if they look like a number or a missing value: 007, NA.
            names = pd.read_csv(path, usecols=[column], dtype=str, keep_default_na=False)
            frame[column] = names[column]
        return _with_texts(frame, _original_text)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise InputError(f"expected a csv of annotations at {path}, got {error}; export it again") from error


def _label_studio_frame(path: Path) -> pd.DataFrame:
    try:
        tasks = json.loads(path.read_text(encoding="utf-8"))
        rows = [row for task in tasks for row in _rows(task)]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"expected a Label Studio JSON export of tasks made by assay at {path}, got "
            f"{type(error).__name__} ({error}); export it as JSON, not JSON-MIN"
        ) from error
    return pd.DataFrame(rows, columns=["item", "score", "annotator", "repeat", "seconds", "run"])


def _rows(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for annotation in task.get("annotations", []):
        who = annotation.get("completed_by", "unknown")
        name = who.get("email", who.get("id")) if isinstance(who, dict) else who
        score = np.nan if annotation.get("was_cancelled") else _score(annotation["result"])
        seconds_taken = annotation.get("lead_time")
        yield {
            "item": int(task["data"]["item"]),
            "score": score,
            "annotator": str(name),
            "repeat": 0,
            "seconds": np.nan if seconds_taken is None else float(seconds_taken),
            "run": task["data"].get("run"),
        }


def _score(results: list[dict[str, Any]]) -> float:
    """The score in a choice, a number, or a rating of one to five stars."""
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
    """The frame with the bin and weight of each item added if it has none."""
    if "bin" in frame:
        return frame
    if items is None or "item" not in frame:
        raise InputError(
            f"expected {path} to say the bin of every label, got columns {', '.join(map(str, frame))}; "
            "pass the items it is about"
        )
    chosen = items.to_frame()[["item", "bin", "weight"]]
    unknown = ~frame["item"].isin(chosen["item"])
    if unknown.any():
        raise InputError(
            f"expected labels of the items passed, got one of {frame['item'][unknown].iloc[0]} in {path}; "
            "pass the items that were annotated"
        )
    joined = frame.merge(chosen, on="item", how="left")
    return joined.assign(row=joined["item"])
