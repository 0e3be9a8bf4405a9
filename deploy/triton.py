"""A Triton model repository around an exported guard: the file, and a config.pbtxt with its names and shapes.

    python deploy/triton.py guard.onnx models --name guard
    tritonserver --model-repository models

Triton batches requests by itself, so the first axis of every tensor, rows, is left out of the config.
"""

import argparse
import shutil
from pathlib import Path

TYPES = {
    "FLOAT": "TYPE_FP32", "DOUBLE": "TYPE_FP64", "FLOAT16": "TYPE_FP16", "BOOL": "TYPE_BOOL",
    "INT64": "TYPE_INT64", "INT32": "TYPE_INT32", "UINT8": "TYPE_UINT8", "INT8": "TYPE_INT8",
}  # fmt: skip
MOST_ROWS, WAIT_MICROSECONDS = 64, 2000


def write_repository(guard: Path, repository: Path, name: str = "guard") -> Path:
    """The path of the config in `repository/name`, beside `1/model.onnx`."""
    from assay import OnnxGuard

    OnnxGuard(guard)  # an error if it is another graph
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(guard, folder / "1" / "model.onnx")
    config = folder / "config.pbtxt"
    config.write_text(config_of(guard, name))
    return config


def config_of(guard: Path, name: str) -> str:
    import onnx

    graph = onnx.load(guard, load_external_data=False).graph
    parts = [f'name: "{name}"', 'platform: "onnxruntime_onnx"', f"max_batch_size: {MOST_ROWS}"]
    parts += [_list("input", graph.input), _list("output", graph.output)]
    parts += [f"dynamic_batching {{ max_queue_delay_microseconds: {WAIT_MICROSECONDS} }}"]
    return "\n".join(parts) + "\n"


def _list(kind: str, values) -> str:
    return f"{kind} [\n" + ",\n".join(f"  {{ {_entry(value)} }}" for value in values) + "\n]"


def _entry(value) -> str:
    from onnx import TensorProto

    tensor = value.type.tensor_type
    shape = [axis.dim_value or -1 for axis in tensor.shape.dim][1:]
    kind = TYPES[TensorProto.DataType.Name(tensor.elem_type)]
    # A number per row has no further axis: Triton writes one of length 1, and takes it away for the graph.
    dims = f"dims: {shape}" if shape else "dims: [1], reshape: { shape: [] }"
    return f'name: "{value.name}", data_type: {kind}, {dims}'


if __name__ == "__main__":
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("guard", type=Path, help="written by guard.export")
    parser.add_argument("repository", type=Path)
    parser.add_argument("--name", default="guard")
    given = parser.parse_args()
    print(write_repository(given.guard, given.repository, given.name))
