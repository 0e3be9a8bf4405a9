"""`assay monitorability`: will this network's failures be visible, and to which monitor?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines, LearnedFrom, Networks, OtherData, Report, Seed
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import leave_by_gate

if TYPE_CHECKING:
    import pandas as pd

    from assay import Monitorability


def monitorability(
    networks: Networks,
    train: LearnedFrom,
    test: OtherData,
    layer: Annotated[
        list[str] | None, typer.Option(help="A layer to try; several may be. [default: the Network's own]")
    ] = None,
    rows: Annotated[int, typer.Option(help="Test inputs that unknown ones are made of, at most.")] = 1000,
    seed: Seed = 0,
    least_monitorability: Annotated[
        float | None, typer.Option(help="Gate on the interval of the best network's score.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where the best network's result goes."), Written()
    ] = None,
    report: Report = None,
    as_json: ForMachines = False,
) -> None:
    """Say how well failures will show, before it ships, and which monitor and layer see them best.

    Exit status: 0 fine, 1 the gate of --least-monitorability failed, 2 wrong use, 3 it could not be decided.

    Example: `assay monitorability mine:network --train train.npz --test test.npz --report report.html`
    """
    import assay
    from assay.cli.mira import known_and_other
    from assay.cli.network_reference import network_at

    watched = {name: network_at(name, tuple(layer) if layer else None) for name in networks}
    data = known_and_other(train, test)
    found = {
        name: assay.monitorability(network, *data, rows_at_most=rows, seed=seed)
        for name, network in watched.items()
    }
    ranked = sorted(found, key=lambda name: -found[name].score)
    best = found[ranked[0]]
    if output:
        assay.save(best, output)
    if report:
        assay.write_report([found[name] for name in ranked], report, origin=origin())
    _print({name: found[name] for name in ranked}, as_json)
    if least_monitorability is not None:
        leave_by_gate("best monitorability", (best.lower, best.upper), least_monitorability)


def _print(found: "dict[str, Monitorability]", as_json: bool) -> None:
    frame = _frame(found)
    if as_json:
        print_json(json.loads(frame.to_json(orient="records", double_precision=15)))
    elif len(found) == 1:
        print(next(iter(found.values())).summary())
    else:
        print(frame.to_string(index=False, float_format=lambda value: f"{value:.4g}"))


def _frame(found: "dict[str, Monitorability]") -> "pd.DataFrame":
    import pandas as pd

    names = ("score", "lower", "upper", "accuracy", "best_monitor", "best_layer")
    return pd.DataFrame(
        [{"network": name} | {key: getattr(result, key) for key in names} for name, result in found.items()]
    )
