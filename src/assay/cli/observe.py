"""`assay observe`: run a network on data and save the Trace."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.json_output import print_json
from assay.cli.options import ForMachines
from assay.cli.places import Written


def observe(
    network: Annotated[
        str, typer.Argument(help="module:factory that returns the network, or an .onnx file.")
    ],
    data: Annotated[
        str, typer.Option(help="Data to observe, with or without labels: a file or folder, or `digits`.")
    ],
    output: Annotated[Path, typer.Option(help="File to save the Trace to."), Written()] = Path(
        "trace.safetensors"
    ),
    layer: Annotated[
        list[str] | None,
        typer.Option(help="A layer to watch; may be repeated. [default: penultimate, or the Network's own]"),
    ] = None,
    keep_inputs: Annotated[bool, typer.Option(help="Keep the inputs in the Trace.")] = False,
    shards: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write the Trace to in shards, instead of --output; goes on where it was stopped."
        ),
        Written(folder=True, kept=True),
    ] = None,
    engine: Annotated[str, typer.Option(help="Where it runs: here, processes or ray.")] = "here",
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many workers run at a time. [default: one per core]")
    ] = None,
    as_json: ForMachines = False,
) -> None:
    """Run a network on data and save its outputs and features.

    Example: `assay observe assay.demo.networks:small_cnn --data digits --output trace.safetensors`
    """
    import assay
    from assay.cli.network_reference import data_or_inputs_at, network_at, note
    from assay.data.pieces import holds_pieces

    watched = network_at(network, tuple(layer) if layer else None)
    # A folder of files is read where a worker runs; anything else here.
    source = Path(data) if holds_pieces(Path(data)) else data_or_inputs_at(data)
    if shards is None:
        trace, place = watched.observe(source, keep_inputs, engine=engine, workers=workers), output
        assay.save(trace, output)
        features = trace.features
    else:
        sharded = watched.observe_to(shards, source, keep_inputs, engine=engine, workers=workers)
        trace, place, features = sharded.outputs(), shards, sharded.shards[0].trace().features
    note("" if trace.labels is None else trace.order_hint, data)
    left_out = f"{trace.ignored:,} rows were left out, since their label is {watched.ignore_index}"
    note(left_out if trace.ignored else "", data)
    facts = _facts(trace, features, place)
    if as_json:
        print_json(facts)
    else:
        _print(facts, several=trace.source is not None)


def _facts(trace: Any, features: Any, place: Path) -> dict[str, Any]:
    return {
        "inputs": trace.input_count,
        "rows": len(trace),
        "classes": trace.logits.shape[1],
        "layers": {name: rows.shape[1] for name, rows in features.items()},
        "mean_confidence": round(float(trace.probabilities.amax(1).mean()), 4),
        "accuracy": None if trace.labels is None else round(float(trace.correct.double().mean()), 4),
        "output": str(place),
    }


def _print(facts: dict[str, Any], several: bool) -> None:
    layers = ", ".join(f"{name} ({size} values)" for name, size in facts["layers"].items())
    rows = f" with {facts['rows']:,} predictions" if several else ""
    print(f"{facts['inputs']:,} inputs{rows}, {facts['classes']} classes; layers: {layers}")
    print(f"mean confidence {facts['mean_confidence']:.1%}", end="")
    print(", no labels" if facts["accuracy"] is None else f", accuracy {facts['accuracy']:.1%}")
    print(f"saved to {facts['output']}")
