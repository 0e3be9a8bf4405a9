"""`assay annotate`: people judge sampled inputs on a web page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import Seed
from assay.cli.places import Written
from assay.errors import AssayError, InputError

if TYPE_CHECKING:
    from assay import AnnotationItems, OutputDistribution
    from assay.omniinput.annotation.store import AnnotationStore

Store = Annotated[
    Path, typer.Option(help="File for items and labels; continued if it exists."), Written(kept=True)
]
Export = Annotated[
    Path | None,
    typer.Option(help="Export all labels as csv, or as Label Studio tasks (.json), and stop."),
    Written(),
]
Ends = Annotated[tuple[str, str], typer.Option(help="Words for the first and last step: --ends no yes.")]
Columns = Annotated[
    str | None, typer.Option(help="Names of the values of a table's row, with commas between.")
]


def annotate(
    distribution: Annotated[Path, typer.Argument(help="An output distribution, as `assay sample` saves it.")],
    store: Store,
    per_bin: Annotated[int | None, typer.Option(help="Inputs drawn from every bin (default 50).")] = None,
    total: Annotated[
        int | None, typer.Option(help="Inputs in all, from the bins that move the curve most.")
    ] = None,
    within: Annotated[
        float | None, typer.Option(help="As many inputs as the precision needs to be known within this.")
    ] = None,
    confident: Annotated[
        str, typer.Option(help="Outputs at which the model is confident: low or high.")
    ] = "low",
    add: Annotated[bool, typer.Option("--add", help="Add inputs to an existing store.")] = False,
    overlap: Annotated[float, typer.Option(help="Share of inputs that every annotator judges.")] = 0.2,
    repeats: Annotated[float, typer.Option(help="Share of inputs that an annotator sees twice.")] = 0.05,
    question: Annotated[str | None, typer.Option(help="Question shown on the page.")] = None,
    guideline: Annotated[Path | None, typer.Option(help="Text file with the guideline.")] = None,
    steps: Annotated[int, typer.Option(help="Steps of the scale, 2 to 9, each with its key.")] = 5,
    ends: Ends = ("wrong", "right"),
    columns: Columns = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8766,
    seed: Seed = 0,
    imported: Annotated[
        Path | None,
        typer.Option("--import", help="Import labels from a csv or a Label Studio export, and stop."),
    ] = None,
    export: Export = None,
) -> None:
    """Choose inputs from every bin and serve a page where people score them on a scale.

    Of the two addresses printed, one is for the annotators, one shows everybody's progress and disagreements.
    Labels are on disk before the page confirms them; you can stop and restart at any time. `assay precision`
    makes the curve.

    Example: `assay annotate outputs.safetensors --store labels.db`
    """
    import assay
    from assay.omniinput.annotation.items import run_name
    from assay.omniinput.annotation.store import AnnotationStore, is_store

    if store.exists() and not is_store(store):
        raise InputError(f"expected a store of labels at {store}, got another kind of file; choose another")
    dist: OutputDistribution = assay.load(distribution, kind="OutputDistribution")
    page = _page_options(question, guideline, columns, steps, ends)
    fresh = not store.exists()
    if fresh:
        items = _chosen(dist, None, per_bin, total, within, confident, seed)
        AnnotationStore.create(store, items, overlap=overlap, repeats=repeats, seed=seed)
    reading = export is not None and not add and imported is None
    with _removed_after_an_error(store, fresh), AnnotationStore(store, writing=not reading) as opened:
        opened.check_run(run_name(dist))
        if add and not fresh:
            opened.add(_chosen(dist, opened, per_bin, total, within, confident, seed))
        if imported is not None:
            _import(opened, imported)
        if export is not None:
            _export(opened, export)
        if imported is None and export is None:
            _serve(opened, port, page)


@contextmanager
def _removed_after_an_error(path: Path, fresh: bool) -> Iterator[None]:
    """After an error, remove a store that this command created and that has no labels yet."""
    from assay.omniinput.annotation.store import AnnotationStore

    try:
        yield
    except AssayError:
        if fresh:
            with AnnotationStore(path) as opened:
                unused = not opened.label_list()
            for place in (path, path.with_name(f"{path.name}.lock")) if unused else ():
                place.unlink(missing_ok=True)
        raise


def _chosen(
    dist: "OutputDistribution",
    store: "AnnotationStore | None",
    per_bin: int | None,
    total: int | None,
    within: float | None,
    confident: str,
    seed: int,
) -> "AnnotationItems":
    """Items for a new store, or to add to a store, given its labels."""
    import assay

    labels = None if store is None else store.labels()
    existing = 0 if store is None else len(store.items())
    return assay.choose_items(
        dist,
        per_bin,
        total=total,
        within=within,
        confident=confident,
        annotations=labels,
        seed=seed + existing,
    )


def _serve(store: "AnnotationStore", port: int, page: dict[str, Any]) -> None:
    from assay.web.annotation_server import serve_annotations

    items = len(store.items())
    print(f"{items} inputs to judge, {len(store.label_list())} labels so far, in {store.path}")
    serve_annotations(store, port, say=lambda words: print(words, flush=True), **page)


def _page_options(
    question: str | None, guideline: Path | None, columns: str | None, steps: int, ends: tuple[str, str]
) -> dict[str, Any]:
    """What was said about the page; the rest is the page's own default."""
    from assay.omniinput.annotation.answer_scale import AnswerScale

    options = {
        "question": question,
        "guideline": None if guideline is None else _text(guideline),
        "columns": None if columns is None else tuple(name.strip() for name in columns.split(",")),
    }
    scale = AnswerScale(steps, ends)
    return {"scale": scale} | {name: value for name, value in options.items() if value is not None}


def _import(store: "AnnotationStore", path: Path) -> None:
    import assay
    from assay.omniinput.annotation.formats import labels_of, reviews_of

    frame = assay.read_annotations(path, store.items())
    labels, reviews = labels_of(frame), reviews_of(frame)
    store.add_labels(labels)
    store.add_reviews(reviews)
    print(f"{len(labels) + len(reviews)} labels from {path} are in {store.path}")


def _export(store: "AnnotationStore", path: Path) -> None:
    from assay.omniinput.annotation.formats import write_annotations

    labels = store.labels()
    write_annotations(labels, path, store.items())
    print(f"{len(labels)} labels in {path}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expected a text file at {path}, got {error}; check --guideline") from error
