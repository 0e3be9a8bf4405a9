"""`assay fleet`: accuracy on every device of a fleet, from the counts each sent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.count_files import check_each_once
from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, Report, Seed, not_negative, within
from assay.cli.origin import origin
from assay.cli.places import Written, write_figure
from assay.cli.status import ALARM, UNDECIDED
from assay.errors import InputError

if TYPE_CHECKING:
    from assay import Histogram


def fleet(
    devices: Annotated[list[Path], typer.Argument(help="Saved Histograms, one per device.")],
    home: Annotated[
        list[Path], typer.Option(help="A labelled Trace per condition (clean, fog ...); may be repeated.")
    ],
    target: Annotated[
        float | None,
        typer.Option(help="The accuracy that every device should reach.", callback=within(0, 1)),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many devices are printed.", callback=not_negative)] = 20,
    output: Annotated[Path | None, typer.Option(help="Where the result goes."), Written()] = None,
    plot: Annotated[
        Path | None, typer.Option(help="File to save the figure to (png, svg or pdf)."), Written(figure=True)
    ] = None,
    report: Report = None,
    engine: Annotated[str, typer.Option(help="Where devices run: here, processes or ray.")] = "here",
    seed: Seed = 0,
    as_json: ForMachines = False,
) -> None:
    """Estimate the accuracy on every device of a fleet; those below the target come first.

    Exit status: 0 fine, 1 a device is below --target, 2 wrong use, 3 the counts of a device are unlike
    anything at home.

    Example: `assay fleet device-*.hist --home clean.trace --home fog.trace --target 0.9`
    """
    import numpy as np

    import assay

    histograms = _histograms(devices)
    traces = [assay.load(path, kind="Trace") for path in home]
    conditions = np.repeat([path.stem for path in home], [len(trace) for trace in traces])
    found = assay.estimate_fleet(
        assay.Trace.concatenate(traces),
        histograms,
        conditions=conditions if len(home) > 1 else None,
        target=target,
        seed=seed,
        engine=engine,
    )
    if output:
        assay.save(found, output)
    if plot is not None:
        write_figure(found.plot(), plot)
    if report:
        assay.write_report([found], report, origin=origin())
    frame = found.to_frame()
    if as_json:
        print_json({"level": found.level, "target": target, "devices": frame.to_dict("records")})
    else:
        print(frame.head(rows).to_string(index=False, float_format="{:.4f}".format))
        print(found.summary())
    if target is not None and frame["below"].any():
        raise typer.Exit(ALARM)
    if frame["alarm"].any():
        raise typer.Exit(UNDECIDED)


def _histograms(paths: list[Path]) -> "dict[str, Histogram]":
    import assay

    check_each_once(paths)
    found = {}
    for path in paths:
        counted = assay.load(path)
        if not isinstance(counted, assay.Histogram):
            raise InputError(
                f"expected a Histogram in {path}, got a {type(counted).__name__}; save one with assay.save"
            )
        found[str(path)] = counted
    return found
