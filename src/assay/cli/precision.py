"""`assay precision`: how often a model is right where it is confident, from a distribution and labels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, Seed
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import UNDECIDED

if TYPE_CHECKING:
    from assay import PrecisionRecall


def precision(
    distribution: Annotated[Path, typer.Argument(help="An output distribution, as `assay sample` saves it.")],
    labels: Annotated[
        str,
        typer.Argument(help="A store, a csv, a Label Studio export, or module:function that judges inputs."),
    ],
    confident: Annotated[
        str, typer.Option(help="Outputs at which the model is confident: low or high.")
    ] = "low",
    audit: Annotated[
        str | None,
        typer.Option(
            help="Labels of people (a store, a csv, a Label Studio export) that correct LABELS, a judge."
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="File to save the curve to."), Written()] = Path(
        "precision.safetensors"
    ),
    report: Report = None,
    seed: Seed = 0,
    as_json: ForMachines = False,
) -> None:
    """Estimate precision and recall over the whole input space. Status 3 if sampling did not converge.

    Example: `assay precision outputs.safetensors labels.db --confident high --report report.html`.
    `assay precision outputs.safetensors mine:judge --audit labels.db` corrects a judge by labels of people.
    """
    import assay

    dist = assay.load(distribution, kind="OutputDistribution")
    annotations = _annotations(labels, dist)
    people = annotations if audit is None else _annotations(audit, dist)
    checked = None if audit is None else people
    curve = assay.precision_recall(dist, annotations, confident=confident, audit=checked, seed=seed)
    results: list[Any] = [dist, curve]
    several = hasattr(people, "columns") and len(curve.annotators) > 1
    if several:
        results.append(assay.annotator_agreement(people))
    assay.save(curve, output)
    if report:
        assay.write_report(results, report, origin=origin())
    _print(curve, results[2:], output, as_json)
    if curve.reasons:
        raise typer.Exit(UNDECIDED)


def _annotations(labels: str, dist: Any) -> Any:
    import assay
    from assay.cli.network_reference import callable_at
    from assay.omniinput.annotation.items import run_name
    from assay.omniinput.annotation.store import AnnotationStore, is_store

    path = Path(labels)
    if ":" in labels and not path.exists():
        return callable_at(labels)
    if is_store(path):
        with AnnotationStore(path) as store:
            store.check_run(run_name(dist))
            return store.labels()
    return assay.read_annotations(path)


def _print(curve: "PrecisionRecall", more: list[Any], output: Path, as_json: bool) -> None:
    frame = curve.to_frame()
    if as_json:
        rows = json.loads(frame.to_json(orient="records", double_precision=15))
        facts = {"curve": rows, "aupr": curve.aupr, "trusted": bool(curve.trusted.all())}
        print_json(facts | {"output": str(output)})
        return
    print("\n\n".join([curve.summary(), *(result.summary() for result in more)]))
    shown = frame[
        ["threshold", "precision", "precision_lower", "precision_upper", "log_recall", "r", "items"]
    ]
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    print(f"saved to {output}")
