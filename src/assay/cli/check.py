"""`assay check`: is this network fit to ship? A gate for pipelines."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.json_output import print_json
from assay.cli.options import (
    FalseAlarmRate,
    Faults,
    ForMachines,
    Highest,
    Lowest,
    NetworkReference,
    Novelty,
    Seed,
)
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import ALARM, FINE, UNDECIDED

if TYPE_CHECKING:
    from assay import Check


WatchedLayer = Annotated[
    str | None,
    typer.Option(help="The layer to watch, or `none`. [default: penultimate, or the Network's own]"),
]

LeastMonitorability = Annotated[
    float | None,
    typer.Option(help="Gate on monitorability's interval. [default: 0.6, where it is measured]"),
]

LeastMira = Annotated[
    float | None,
    typer.Option(help="Gate on the MIRA score's interval, which is then measured, too."),
]


def check(
    network: NetworkReference,
    data: Annotated[str, typer.Option(help="Labelled in-distribution data: a file or folder, or `digits`.")],
    test: Annotated[
        str | None, typer.Option(help="Data to test on, not in --data. [default: a fifth of --data]")
    ] = None,
    novelty: Novelty = None,
    fault: Faults = None,
    layer: WatchedLayer = None,
    false_alarm_rate: FalseAlarmRate = 0.05,
    least_accuracy: Annotated[
        float | None, typer.Option(help="Gate on accuracy. [default: that of the most frequent class]")
    ] = None,
    least_monitorability: LeastMonitorability = None,
    least_mira: LeastMira = None,
    least_mcc: Annotated[float, typer.Option(help="Gate on the default guard's mean specific MCC.")] = 0.1,
    low: Lowest = None,
    high: Highest = None,
    output: Annotated[
        Path,
        typer.Option(help="A folder for the report, the guard, the watch, the estimator and the check."),
        Written(folder=True),
    ] = Path("assay-check"),
    teach: Annotated[bool, typer.Option(help="Teach an estimator of accuracy, and try it.")] = True,
    junit: Annotated[Path | None, typer.Option(help="Where JUnit XML goes."), Written()] = None,
    seed: Seed = 0,
    as_json: ForMachines = False,
) -> None:
    """Check whether a network is fit to ship; write a report and a calibrated guard.

    Exit status: 0 every gate passed, 1 a gate failed, 2 wrong use, 3 a gate could not be decided.

    Example: `assay check my.models:trained --data held-out.npz --low 0 --high 1 --junit check.xml`
    """
    import assay
    from assay.cli.network_reference import data_at, named_data, network_at

    watched = network_at(network, () if layer == "none" else None if layer is None else (layer,))
    watched.fingerprint  # noqa: B018  # a guard that could not be saved is an error before any work
    found = assay.check_network(
        watched,
        data_at(data),
        test=None if test is None else data_at(test),
        novelty=dict(named_data(text) for text in novelty or []),
        faults=fault,
        false_alarm_rate=false_alarm_rate,
        least_accuracy=least_accuracy,
        least_monitorability=least_monitorability,
        least_mira=least_mira,
        least_mcc=least_mcc,
        low=low,
        high=high,
        teach=teach,
        seed=seed,
    )
    came_from = origin(network=network, data=data, test=test or "a fifth of the data", seed=seed)
    _keep(found, network, output, junit, came_from)
    _print(found, output, as_json)
    raise typer.Exit({True: FINE, False: ALARM, None: UNDECIDED}[found.passed])


def _keep(found: "Check", name: str, folder: Path, junit: Path | None, came_from: dict[str, object]) -> None:
    import assay
    from assay.storage import folder_whole, write_text_whole

    with folder_whole(folder) as fresh:
        assay.save(found, fresh / "check.safetensors")
        assay.save(found.guard, fresh / "guard.safetensors")
        assay.save(found.watch, fresh / "watch.safetensors")
        if found.estimator is not None:
            assay.save(found.estimator, fresh / "estimator.safetensors")
        assay.write_report([found], fresh / "report.html", title=f"Before it ships: {name}", origin=came_from)
    if junit is not None:
        write_text_whole(junit, assay.check.junit(found))


def _print(found: "Check", folder: Path, as_json: bool) -> None:
    if as_json:
        gates = json.loads(found.to_frame().to_json(orient="records", double_precision=15))
        print_json(
            {"passed": found.passed, "gates": gates, "left_out": found.left_out, "output": str(folder)}
        )
        return
    print(found.to_frame().to_string(index=False, float_format="{:.3g}".format))
    for gate in found.gates:
        print(f"- {gate.words}")
    if found.missing:
        print(f"- {found.missing}")
    if found.trials is not None:
        print(f"- {found.trials.summary()}")
    print(f"report, guard, watch{'' if found.estimator is None else ' and estimator'} are in {folder}")
