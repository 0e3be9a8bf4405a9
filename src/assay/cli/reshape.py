"""`assay reshape`: accuracy in operation, from a labelled test set and operational histograms."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.count_files import check_each_once
from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, not_negative, within
from assay.cli.origin import origin
from assay.cli.places import Written, write_figure
from assay.cli.status import UNDECIDED, leave_by_gate
from assay.errors import InputError, MissingLabelsError, UndecidedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay import CountsEstimate, Histogram, IndicatorEstimate, Reshaping, Trace
    from assay.reshaping import Indicator


Indicators = Annotated[
    list[str] | None, typer.Option(help="accuracy or recall:LABEL; may be repeated (default accuracy).")
]
LeastIndicator = Annotated[
    float | None,
    typer.Option(
        help="Gate on the range of the first indicator; the test set needs labels.", callback=within(0, 1)
    ),
]


def reshape(
    test: Annotated[Path, typer.Argument(help="The labelled test set: a saved Trace.")],
    operational: Annotated[
        list[Path],
        typer.Argument(help="Saved Histograms, which are merged, or one saved Trace, which is counted."),
    ],
    epsilon: Annotated[float, typer.Option(help="Largest difference of portions allowed.")] = 0.01,
    width: Annotated[float, typer.Option(help="Bin width, if a Trace is given.")] = 1.0,
    layer: Annotated[str, typer.Option(help="Layer to count, if a Trace is given.")] = ("penultimate"),
    indicator: Indicators = None,
    least_indicator: LeastIndicator = None,
    gamma: Annotated[
        float,
        typer.Option(
            help="Factor by which odds of errors within a class may change.", callback=within(1, math.inf)
        ),
    ] = 1.0,
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
    """Estimate accuracy in operation from counts: by label shift, and on the part of a test set that matches.

    The gate rests on label shift: class frequencies have changed and, with --gamma, the odds of errors within
    a class by a factor up to gamma. Where the counts do not fit that, nothing is decided.

    Exit status: 0 fine, 1 below --least-indicator, 2 wrong use, 3 that could not be decided, or, without that
    option, no part of the test set matches (or none was found in time).

    Example: `assay reshape test.safetensors device-1.hist device-2.hist --epsilon 0.01`
    """
    import assay

    chosen = [_indicator(name) for name in indicator or ["accuracy"]]
    trace: Trace = assay.load(test, kind="Trace")
    if indicator or least_indicator is not None:
        _expect_labels(trace, test)
    histogram = _histogram(trace, operational, layer, width)
    labelled = trace.labels is not None
    estimates = [assay.estimate_from_counts(trace, histogram, one, seed=seed) for one in chosen if labelled]
    result, refused = _reshaped(trace, histogram, epsilon, time_limit, seed)
    rows = [result.estimate(one, gamma=gamma, seed=seed) for one in chosen if labelled] if result else []
    if result is not None:
        _write(result, rows, output, plot, report)
    _print(result, refused, rows or estimates, as_json)
    if least_indicator is not None:
        _leave_by_gate(estimates[0], gamma, least_indicator)
    elif refused is not None:
        raise typer.Exit(UNDECIDED)


def _write(
    result: "Reshaping",
    estimates: "list[IndicatorEstimate]",
    output: Path | None,
    plot: Path | None,
    report: Path | None,
) -> None:
    import assay

    if output:
        assay.save(result, output)
    if plot is not None:
        write_figure(result.plot(), plot)
    if report:
        assay.write_report([result, *estimates], report, origin=origin())


def _reshaped(
    trace: "Trace", histogram: "Histogram", epsilon: float, time_limit: float, seed: int
) -> "tuple[Reshaping | None, UndecidedError | None]":
    """The reshaped test set, or why there is none."""
    import assay

    try:
        return assay.reshape(trace, histogram, epsilon, time_limit=time_limit, seed=seed), None
    except UndecidedError as error:
        return None, error


def _leave_by_gate(estimate: "CountsEstimate", gamma: float, least: float) -> None:
    if estimate.alarm:
        print(f"cannot decide: {estimate.requirement(least)}", file=sys.stderr)
        raise typer.Exit(UNDECIDED)
    print(estimate.requirement(least), file=sys.stderr)
    leave_by_gate("first indicator", estimate.range_at(gamma), least)


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


def _print(
    result: "Reshaping | None",
    refused: "UndecidedError | None",
    estimates: "Sequence[IndicatorEstimate | CountsEstimate]",
    as_json: bool,
) -> None:
    import assay

    if as_json:
        facts = _facts(result, refused) | {"estimates": [estimate.facts() for estimate in estimates]}
        print_json(facts)
        return
    if result is not None:
        print(result.summary())
    if refused is not None:
        print(f"no part of the test set matches: {refused}")
        if isinstance(refused, assay.CannotMatchError):
            print(refused.cells.head(10).to_string(index=False))
    for estimate in estimates:
        print(estimate.to_frame().to_string(index=False, float_format="{:.4f}".format, na_rep="-"))
        print(estimate.summary())


def _facts(result: "Reshaping | None", refused: "UndecidedError | None") -> dict[str, Any]:
    import assay

    if result is not None:
        return {
            "points": len(result.kept),
            "kept": result.number_kept,
            "bound": result.bound,
            "gap": result.gap,
            "similarity": result.similarity,
            "seconds": round(result.seconds, 3),
        }
    if isinstance(refused, assay.CannotMatchError):
        return {
            "status": "cannot match",
            "smallest_epsilon": refused.smallest_epsilon,
            "least_epsilon": refused.least_epsilon,
            "cells": refused.cells.to_dict(orient="records"),
        }
    return {"status": "out of time", "reason": str(refused)}
