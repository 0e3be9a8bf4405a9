"""`assay mira`: how monitorable networks and their layers are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Highest, LearnedFrom, Lowest, Networks, OtherData, Report, Seed
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import leave_by_gate

if TYPE_CHECKING:
    from assay.mira import MonitorabilityComparison


def mira(
    networks: Networks,
    train: LearnedFrom,
    test: OtherData,
    layer: Annotated[
        list[str] | None,
        typer.Option(help="A layer; several are ranked; a+b is scored jointly. [default: penultimate]"),
    ] = None,
    accuracy_threshold: Annotated[
        float, typer.Option(help="Accuracy at which the range of perturbations starts.")
    ] = 0.5,
    steps: Annotated[int, typer.Option(help="Number of perturbation sizes in the range.")] = 30,
    low: Lowest = None,
    high: Highest = None,
    estimator: Annotated[
        str, typer.Option(help="Estimator of the covariance: empirical, ledoit_wolf or oas.")
    ] = "empirical",
    authors_code: Annotated[
        bool,
        typer.Option("--authors-code", help="Read MIRA as its authors' code does, not as the paper says."),
    ] = False,
    seed: Seed = 0,
    least_mira: Annotated[float | None, typer.Option(help="Gate on the interval of the best score.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where the comparison goes."), Written()] = None,
    report: Report = None,
    as_json: ForMachines = False,
) -> None:
    """Measure MIRA, the paper's score; `assay monitorability` predicts detection better.

    Exit status: 0 fine, 1 the gate of --least-mira failed, 2 wrong use, 3 it could not be decided.

    Example: `assay mira mine:network --train train.npz --test test.npz --report mira.html`
    """
    import assay
    from assay.cli.network_reference import network_at
    from assay.mira import AUTHORS_CODE

    data = known_and_other(train, test)
    compared = assay.compare_monitorability(
        {reference: network_at(reference) for reference in networks},
        *data,
        layers=[tuple(name.split("+")) for name in layer or ["penultimate"]],
        accuracy_threshold=accuracy_threshold,
        steps=steps,
        low=low,
        high=high,
        estimator=estimator,
        seed=seed,
        **(AUTHORS_CODE if authors_code else {}),
    )
    if output:
        assay.save(compared, output)
    if report:
        alone = len(compared.results) == 1
        assay.write_report([*([] if alone else [compared]), *compared.results], report, origin=origin())
    _print(compared, as_json)
    if least_mira is not None:
        leave_by_gate("best MIRA score", compared.results[0].interval, least_mira)


def known_and_other(train: str, test: str) -> tuple[Any, Any]:
    """The training data and the test data, with no row in both."""
    from assay.cli.network_reference import TRAIN, data_at
    from assay.data.apart import check_apart

    learned, tested = data_at(train, TRAIN), data_at(test)
    check_apart(learned, tested, ("--train", "--test"))
    return learned, tested


def _print(compared: "MonitorabilityComparison", as_json: bool) -> None:
    frame = compared.to_frame()
    if as_json:
        print_json(json.loads(frame.to_json(orient="records", double_precision=15)))
        return
    print(compared.results[0].summary() if len(frame) == 1 else compared.summary())
    if len(frame) > 1:
        shown = frame[["rank", "network", "layer", "score", "lower", "upper", "beats_next", "accuracy"]]
        print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
