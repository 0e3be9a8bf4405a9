"""Bodies of the v2 inference protocol (KServe, Triton): JSON to inputs, answers to JSON."""

import json
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.operation import Answer

TYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
TEXT = "BYTES"
OUTPUTS = ("prediction", "score", "alarm", "logits")


def parsed(body: bytes, most_rows: int) -> tuple[dict[str, Any], Any]:
    """The request and the inputs in it: one tensor, a dict of several by name, or texts."""
    request = _object(body)
    parts = request.get("inputs")
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise InputError('expected "inputs" as a list of objects with name, shape, datatype and data')
    _check_outputs(request)
    named = {_name(part): _values(part) for part in parts}
    if len(named) < len(parts):
        raise InputError(f"expected every input once, got {[_name(part) for part in parts]}")
    for name, values in named.items():
        if not 1 <= len(values) <= most_rows:
            raise InputError(
                f"expected 1 to {most_rows} rows, got {len(values)} in {name!r}; send smaller batches"
            )
    return request, next(iter(named.values())) if len(named) == 1 else named


def answered(request: dict[str, Any], answer: Answer, model: str, version: str) -> bytes:
    """The response to a request: prediction, score and alarm, or the outputs it asks for."""
    asked = [output["name"] for output in request.get("outputs") or []] or list(OUTPUTS[:3])
    outputs = [_output(name, answer) for name in asked]
    response: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if isinstance(request.get("id"), str):
        response["id"] = request["id"]
    return json.dumps(response, allow_nan=False).encode()


def _output(name: str, answer: Answer) -> dict[str, Any]:
    verdict = answer.verdict
    values, kind = {
        "prediction": (verdict.predictions, "INT64"),
        "score": (verdict.scores, "FP64"),
        "alarm": (verdict.alarm, "BOOL"),
        "logits": (answer.trace.logits, "FP32"),
    }[name]
    return {"name": name, "datatype": kind, "shape": list(values.shape), "data": _plain(values)}


def _plain(values: Tensor) -> list[Any]:
    """JSON has no NaN and no infinity: null stands for them."""
    flat: list[Any] = values.flatten().tolist()
    if values.is_floating_point() and not torch.isfinite(values).all():
        return [value if np.isfinite(value) else None for value in flat]
    return flat


def _object(body: bytes) -> dict[str, Any]:
    def refuse(text: str) -> NoReturn:
        raise InputError(f"expected finite numbers, got {text}; leave such inputs out")

    try:
        request = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"expected a JSON object of the v2 inference protocol, got none ({error})"
        ) from error
    if not isinstance(request, dict):
        raise InputError(f"expected a JSON object, got {type(request).__name__}")
    return request


def _check_outputs(request: dict[str, Any]) -> None:
    asked = request.get("outputs") or []
    known = isinstance(asked, list) and all(
        isinstance(output, dict) and output.get("name") in OUTPUTS for output in asked
    )
    if not known:
        raise InputError(f'expected "outputs" by name among {list(OUTPUTS)}, got {asked!r:.200}')


def _name(part: dict[str, Any]) -> str:
    name = part.get("name")
    if not isinstance(name, str):
        raise InputError(f"expected every input to have a name, got {name!r:.80}")
    return name


def _values(part: dict[str, Any]) -> Any:
    name, shape, data = part["name"], part.get("shape"), part.get("data")
    if not isinstance(shape, list) or not shape or not all(_is_size(size) for size in shape):
        raise InputError(f"expected {name!r} to have a shape of whole numbers, rows first, got {shape!r:.80}")
    if part.get("datatype") == TEXT:
        return _texts(name, shape, data)
    kind = TYPES.get(str(part.get("datatype")))
    if kind is None:
        raise InputError(
            f"expected the datatype of {name!r} among {[*TYPES, TEXT]}, got {part.get('datatype')!r:.80}"
        )
    try:
        array = np.asarray(data)
        if array.dtype.kind not in "biuf" or (np.dtype(kind).kind != "f" and array.dtype.kind == "f"):
            raise ValueError(f"numbers of type {array.dtype}")
        with np.errstate(over="ignore"):
            array = array.astype(kind, casting="unsafe" if array.dtype.kind == "f" else "same_kind")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"expected the data of {name!r} as numbers of type {part['datatype']}, got others ({error})"
        ) from error
    if array.size != np.prod(shape, dtype=object) or array.shape not in ((array.size,), tuple(shape)):
        raise InputError(f"expected {shape} numbers in {name!r}, got data of shape {list(array.shape)}")
    if not np.isfinite(array).all():
        raise InputError(f"expected finite numbers in {name!r}, got NaN or infinity; leave such inputs out")
    return torch.from_numpy(np.ascontiguousarray(array.reshape(shape)))


def _texts(name: str, shape: list[int], data: Any) -> list[str]:
    if len(shape) != 1 or not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise InputError(f"expected texts in {name!r}: a shape of one number and a list of strings as data")
    if len(data) != shape[0]:
        raise InputError(f"expected {shape[0]} texts in {name!r}, got {len(data)}")
    return data


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
