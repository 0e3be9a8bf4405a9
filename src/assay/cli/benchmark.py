"""`assay benchmark`: which monitor catches which faults of a network, and at what cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import (
    FalseAlarmRate,
    Faults,
    ForMachines,
    NetworkReference,
    Novelty,
    Report,
    Seed,
    within,
)
from assay.cli.origin import origin
from assay.cli.places import Written
from assay.cli.status import leave_by_gate

if TYPE_CHECKING:
    from assay import BenchmarkResult, Guard, Network, Scenario

RESULT = Path("benchmark.safetensors")
USUAL_MONITORS = ["MaxSoftmax", "Energy", "Mahalanobis", "KNN", "ODIN"]

Checkpoint = Annotated[
    Path | None,
    typer.Option(help="A folder; a run that was stopped resumes from it."),
    Written(folder=True, kept=True),
]
Readouts = Annotated[
    Path | None,
    typer.Option(help="A folder for the readout of every input, as parquet."),
    Written(folder=True, kept=True),
]
Monitors = Annotated[
    list[str] | None,
    typer.Option(
        help="A monitor of assay.monitors, with settings if you like (KNN:k=10,limit=500); may be repeated. "
        f"[default: {', '.join(USUAL_MONITORS)}]"
    ),
]


def benchmark(
    network: NetworkReference,
    train: Annotated[str, typer.Option(help="Data the monitors learn from: a file or folder, or `digits`.")],
    test: Annotated[str, typer.Option(help="Data the faults are made from, not in --train.")],
    validation: Annotated[
        str | None, typer.Option(help="Data that sets the thresholds. [default: a fifth of --train]")
    ] = None,
    monitor: Monitors = None,
    fault: Faults = None,
    severity: Annotated[
        list[int] | None, typer.Option(help="1 to 5; may be repeated. [default: 1 and 5]")
    ] = None,
    novelty: Novelty = None,
    false_alarm_rate: FalseAlarmRate = 0.05,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="Judge single inputs, to measure latency.")
    ] = False,
    least_mcc: Annotated[
        float | None,
        typer.Option(
            help="Gate on the interval of the best guard's mean specific MCC.", callback=within(-1, 1)
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    readouts: Readouts = None,
    output: Annotated[Path, typer.Option(help="Where the result goes."), Written()] = RESULT,
    report: Report = None,
    seed: Seed = 0,
    engine: Annotated[str, typer.Option(help="Where scenarios run: here, processes or ray.")] = "here",
    as_json: ForMachines = False,
) -> None:
    """Try several monitors on faulty inputs, and say which one to ship.

    Exit status: 0 fine, 1 the gate of --least-mcc failed, 2 wrong use, 3 it could not be decided.

    Example: `assay benchmark my.models:trained --train train.npz --test test.npz --report report.html`
    """
    import assay
    from assay.cli.network_reference import network_at

    watched = network_at(network)
    learned, held, tested = _data(train, validation, test, seed)
    scenarios = _scenarios(watched, tested, severity, novelty, fault, seed)
    guards = _guards(watched, monitor or USUAL_MONITORS, train, learned, held, false_alarm_rate)
    size = 1 if one_at_a_time else None
    result = assay.run_benchmark(
        guards, scenarios, batch_size=size, checkpoint=checkpoint, readouts=readouts, seed=seed, engine=engine
    )
    _keep(result, output, report)
    if as_json:
        print_json(_facts(result, output))
    else:
        print(f"{result.summary()}\nsaved to {output}")
    if least_mcc is not None:
        leave_by_gate("mean specific MCC", result.interval(result.best), least_mcc)


def _scenarios(
    network: "Network",
    tested: Any,
    severity: list[int] | None,
    novelty: list[str] | None,
    fault: list[str] | None,
    seed: int,
) -> "list[Scenario]":
    import assay
    from assay.cli.network_reference import named_data

    return assay.build_scenarios(
        *tested,
        network=network,
        severities=tuple(severity or (1, 5)),
        novelty=dict(named_data(text) for text in novelty or []),
        seed=seed,
        faults=fault,
    )


def _guards(
    network: "Network", names: list[str], train: str, learned: Any, held: Any, rate: float
) -> "dict[str, Guard]":
    """Each monitor fitted and calibrated, on data that do not overlap."""
    import assay
    from assay.cli.monitor_reference import monitor_at
    from assay.cli.network_reference import note

    monitors = {name: monitor_at(name, network) for name in dict.fromkeys(names)}
    fitted, calibrating = (network.observe(data, keep_inputs=True) for data in (learned, held))
    note(fitted.order_hint, train)
    return {
        name: assay.Guard(network, monitor.fit(fitted)).calibrate(calibrating, rate)
        for name, monitor in monitors.items()
    }


def _data(train: str, validation: str | None, test: str, seed: int) -> tuple[Any, Any, Any]:
    """Data to fit monitors on, to set thresholds with and to make faults from, with no row in two of them."""
    from assay.cli.network_reference import TRAIN, data_at
    from assay.data.apart import check_apart

    learned, tested = data_at(train, TRAIN), data_at(test)
    check_apart(learned, tested, ("--train", "--test"))
    if validation is None:
        return *_parts(learned, seed), tested
    held = data_at(validation)
    check_apart(learned, held, ("--train", "--validation"))
    check_apart(held, tested, ("--validation", "--test"))
    return learned, held, tested


def _parts(data: Any, seed: int) -> tuple[Any, Any]:
    """Four fifths and one fifth, at random."""
    import torch

    from assay.network import rows

    inputs, labels = data
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    cut = len(order) // 5
    held, kept = order[:cut], order[cut:]
    return (rows(inputs, kept), labels[kept]), (rows(inputs, held), labels[held])


def _keep(result: "BenchmarkResult", output: Path, report: Path | None) -> None:
    import assay

    assay.save(result, output)
    if report is not None:
        assay.write_report([result], report, title="Which monitor to ship", origin=origin())


def _facts(result: "BenchmarkResult", output: Path) -> dict[str, Any]:
    rows = result.by_guard().set_index("guard")
    return {
        "best": result.best,
        "scenarios": int(result.table["scenario"].nunique()),
        "guards": {
            name: {column: float(value) for column, value in row.items()} for name, row in rows.iterrows()
        },
        "output": str(output),
    }
