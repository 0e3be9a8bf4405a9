"""`assay observe`: run a network on data and save the Trace."""

import json
from pathlib import Path
from typing import Annotated

import typer

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
    layer: Annotated[list[str] | None, typer.Option(help="A layer to watch; may be repeated.")] = None,
    keep_inputs: Annotated[bool, typer.Option(help="Keep the inputs in the Trace.")] = False,
    as_json: ForMachines = False,
) -> None:
    """Run a network on data and save its outputs and features.

    Example: `assay observe assay.demo.networks:small_cnn --data digits --output trace.safetensors`
    """
    import assay
    from assay.cli.network_reference import data_or_inputs_at, network_at, note

    watched = network_at(network, tuple(layer or ["penultimate"]))
    trace = watched.observe(data_or_inputs_at(data), keep_inputs)
    assay.save(trace, output)
    note("" if trace.labels is None else trace.order_hint)
    left_out = f"{trace.ignored:,} rows were left out, since their label is {watched.ignore_index}"
    note(left_out if trace.ignored else "")
    facts = {
        "inputs": trace.input_count,
        "rows": len(trace),
        "classes": trace.logits.shape[1],
        "layers": {name: rows.shape[1] for name, rows in trace.features.items()},
        "mean_confidence": round(float(trace.probabilities.amax(1).mean()), 4),
        "accuracy": None if trace.labels is None else round(float(trace.correct.double().mean()), 4),
        "output": str(output),
    }
    if as_json:
        print(json.dumps(facts))
        return
    layers = ", ".join(f"{name} ({rows.shape[1]} values)" for name, rows in trace.features.items())
    rows = "" if trace.source is None else f" with {len(trace):,} predictions"
    print(f"{facts['inputs']:,} inputs{rows}, {facts['classes']} classes; layers: {layers}")
    print(f"mean confidence {facts['mean_confidence']:.1%}", end="")
    print(", no labels" if facts["accuracy"] is None else f", accuracy {facts['accuracy']:.1%}")
    print(f"saved to {output}")
