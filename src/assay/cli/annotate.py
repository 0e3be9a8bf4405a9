"""`assay annotate`: people judge sampled inputs on a web page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8766,
    seed: Seed = 0,
    imported: Annotated[
        Path | None,
        typer.Option("--import", help="Import labels from a csv or a Label Studio export, and stop."),
    ] = None,
    export: Export = None,
) -> None:
    """Choose inputs from every bin and serve a page where people score them from 0 to 1.

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
    words = None if guideline is None else _text(guideline)
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
            _serve(opened, port, question, words)


@contextmanager
def _removed_after_an_error(path: Path, fresh: bool) -> Iterator[None]:
    """A store that was begun by this command and holds no label yet goes with the error."""
    from assay.omniinput.annotation.store import AnnotationStore

    try:
        yield
    except AssayError:
        if fresh:
            with AnnotationStore(path) as opened:
                begun = not opened.label_list()
            for place in (path, path.with_name(f"{path.name}.lock")) if begun else ():
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


def _serve(store: "AnnotationStore", port: int, question: str | None, guideline: str | None) -> None:
    from assay.web.annotation import GUIDELINE, QUESTION
    from assay.web.annotation_server import serve_annotations

    items = len(store.items())
    print(f"{items} inputs to judge, {len(store.label_list())} labels so far, in {store.path}")
    serve_annotations(
        store,
        port,
        question=question or QUESTION,
        guideline=guideline or GUIDELINE,
        say=lambda words: print(words, flush=True),
    )


def _import(store: "AnnotationStore", path: Path) -> None:
    import assay
    from assay.omniinput.annotation.formats import labels_of

    labels = labels_of(assay.read_annotations(path, store.items()))
    store.add_labels(labels)
    print(f"{len(labels)} labels from {path} are in {store.path}")


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
