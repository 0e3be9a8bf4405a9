"""`assay reshape`: accuracy in operation, from a labelled test set and operational histograms."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.merge import check_each_once
from assay.cli.options import ForMachines, Report, not_negative, within
from assay.cli.places import Written, write_figure
from assay.cli.status import UNDECIDED, leave_by_gate
from assay.errors import InputError, MissingLabelsError

if TYPE_CHECKING:
    from assay import Histogram, IndicatorEstimate, Reshaping, Trace
    from assay.reshaping import Indicator


def reshape(
    test: Annotated[Path, typer.Argument(help="The labelled test set: a saved Trace.")],
    operational: Annotated[
        list[Path],
        typer.Argument(help="Saved Histograms, which are merged, or one saved Trace, which is counted."),
    ],
    epsilon: Annotated[float, typer.Option(help="Largest difference of portions allowed.")] = 0.01,
    width: Annotated[float, typer.Option(help="Bin width, if a Trace is given.")] = 1.0,
    layer: Annotated[str, typer.Option(help="Layer to count, if a Trace is given.")] = ("penultimate"),
    indicator: Annotated[
        list[str] | None, typer.Option(help="accuracy or recall:LABEL; may be repeated (default accuracy).")
    ] = None,
    least_indicator: Annotated[
        float | None,
        typer.Option(
            help="Gate on the interval of the first indicator; the test set needs labels.",
            callback=within(0, 1),
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Where the result goes."), Written()] = None,
    plot: Annotated[
        Path | None, typer.Option(help="File to save the figure to (png, svg or pdf)."), Written(figure=True)
    ] = None,
    report: Report = None,
    time_limit: Annotated[float, typer.Option(help="Seconds for the solver.")] = 600.0,
    seed: Annotated[
        int, typer.Option(help="Random seed; decides between subsets of equal size.", callback=not_negative)
    ] = 0,
    as_json: ForMachines = False,
) -> None:
    """Keep the part of a test set that looks like operation, and measure on it.

    Exit status: 0 fine, 1 below --least-indicator, 2 wrong use, 3 that could not be decided, or no part of
    the test set matches.

    Example: `assay reshape test.safetensors device-1.hist device-2.hist --epsilon 0.01`
    """
    import assay

    chosen = [_indicator(name) for name in indicator or ["accuracy"]]
    trace: Trace = assay.load(test, kind="Trace")
    if indicator or least_indicator is not None:
        _expect_labels(trace, test)
    histogram = _histogram(trace, operational, layer, width)
    try:
        result = assay.reshape(trace, histogram, epsilon, time_limit=time_limit, seed=seed)
    except assay.CannotMatchError as error:
        _refuse(error, as_json)
        raise typer.Exit(UNDECIDED) from error
    estimates = [result.estimate(one, seed=seed) for one in chosen] if trace.labels is not None else []
    if output:
        assay.save(result, output)
    if plot is not None:
        write_figure(result.plot(), plot)
    if report:
        assay.write_report([result], report)
    _report(result, estimates, as_json)
    if least_indicator is not None:
        leave_by_gate("first indicator", (estimates[0].lower, estimates[0].upper), least_indicator)


def _expect_labels(trace: "Trace", path: Path) -> None:
    if trace.labels is None:
        raise MissingLabelsError(
            f"expected a labelled test set for --indicator and --least-indicator, got {path} without labels; "
            "observe data with labels, or leave these options out"
        )


def _indicator(name: str) -> "Indicator":
    import assay

    kind, _, label = name.partition(":")
    if kind == "accuracy" and not label:
        return assay.accuracy
    if kind == "recall" and label.isdigit():
        return assay.recall(int(label))
    raise InputError(f"expected accuracy or recall:LABEL, got {name!r}; for other indicators use Python")


def _histogram(test: "Trace", paths: list[Path], layer: str, width: float) -> "Histogram":
    import assay

    check_each_once(paths)
    loaded = [assay.load(path) for path in paths]
    if len(loaded) == 1 and isinstance(loaded[0], assay.Trace):
        bins = assay.Bins.from_data(test, layer, width)
        return assay.Histogram.of(loaded[0], bins)
    for path, thing in zip(paths, loaded, strict=True):
        if not isinstance(thing, assay.Histogram):
            raise InputError(
                f"expected a Histogram in {path}, got a {type(thing).__name__}; save one with assay.save"
            )
    total: Histogram = sum(loaded[1:], start=loaded[0])
    return total


def _refuse(error: Any, as_json: bool) -> None:
    if as_json:
        facts = {
            "status": "cannot match",
            "smallest_epsilon": error.smallest_epsilon,
            "least_epsilon": error.least_epsilon,
            "cells": error.cells.to_dict(orient="records"),
        }
        print_json(facts)
        return
    print(f"cannot decide: {error}")
    print(error.cells.head(10).to_string(index=False))


def _report(result: "Reshaping", estimates: "list[IndicatorEstimate]", as_json: bool) -> None:
    if as_json:
        facts = {
            "points": len(result.kept),
            "kept": result.number_kept,
            "bound": result.bound,
            "gap": result.gap,
            "similarity": result.similarity,
            "seconds": round(result.seconds, 3),
            "estimates": [vars(estimate) for estimate in estimates],
        }
        print_json(facts)
        return
    print(result.summary())
    for estimate in estimates:
        print(estimate.to_frame().to_string(index=False, float_format="{:.4f}".format, na_rep="-"))
        print(estimate.summary())
