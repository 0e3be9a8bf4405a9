"""Bodies of the v2 inference protocol (KServe, Triton): JSON to inputs, answers to JSON."""

import json
import math
import reprlib
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.guard import Answer

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
OUTPUTS = ("prediction", "score", "alarm", "reasons", "logits", "source", "input_score", "input_alarm")
"""The last three where an input has several predictions: the input of each, and the verdict on inputs."""
ON_REQUEST = ("logits", "reasons")
"""Left out unless they are asked for; reasons come by themselves where a guard has several members."""
LONGEST_REASON = 200
"""Characters of a reason, at most: the names of all members."""
LONGEST_NAME = 200
"""Characters in an input's name and in a request's id: both come back in answers and in the log."""
MOST_AXES = 32
LARGEST_SIZE = 2**31
LONGEST_NUMBER = 26
"""Characters that JSON needs for one number at most: sign, 17 digits, point, exponent, comma and space."""

Values: TypeAlias = Tensor | tuple[str, ...]
"""Of one output: numbers, or texts."""


def parse_request(body: bytes, most_rows: int) -> tuple[dict[str, Any], Any]:
    """The request and its inputs: one tensor, a dict of several by name, or texts."""
    request = _object(body)
    parts = request.get("inputs")
    if not isinstance(parts, list) or not parts or not all(isinstance(part, dict) for part in parts):
        raise InputError('expected "inputs" as a list of objects with name, shape, datatype and data')
    _check_outputs(request)
    named = {_name(part): _values(part) for part in parts}
    if len(named) < len(parts):
        raise InputError(f"expected every input once, got {reprlib.repr([_name(part) for part in parts])}")
    for name, values in named.items():
        if not 1 <= len(values) <= most_rows:
            raise InputError(
                f"expected 1 to {most_rows} rows, got {len(values)} in {name!r}; send smaller batches"
            )
    return request, next(iter(named.values())) if len(named) == 1 else named


def grouped(inputs: dict[int, Any], most_rows: int) -> list[list[int]]:
    """The keys of inputs that one forward pass may take together: tensors of one type and shape, in order.

    Texts and several named inputs stay alone: together they would be padded to one length, and a network may
    answer differently for it.

    >>> grouped({0: torch.zeros(2, 3), 1: ["a"], 2: torch.ones(1, 3), 4: torch.ones(1, 4)}, 256)
    [[0, 2], [1], [4]]
    """
    groups: list[list[int]] = []
    open_groups: dict[Any, tuple[list[int], int]] = {}
    for key, values in inputs.items():
        kind = (values.dtype, values.shape[1:]) if isinstance(values, Tensor) else key
        group, rows = open_groups.get(kind, ([], 0))
        if not group or rows + len(values) > most_rows:
            group, rows = [], 0
            groups.append(group)
        group.append(key)
        open_groups[kind] = group, rows + len(values)
    return groups


def response_body(
    request: dict[str, Any], answer: Answer, model: str, version: str, most_bytes: int
) -> bytes:
    """The response to a request: prediction, score and alarm, or the outputs it asks for, each once.

    Where an input has several predictions, also the input of each, and the verdict on inputs.
    The size of an answer is bounded like that of a request, before any number is written.
    """
    known = _outputs(answer)
    asked = dict.fromkeys(output["name"] for output in request.get("outputs") or [])
    if missing := [name for name in asked if name not in known]:
        raise InputError(
            f"expected outputs of a guard whose inputs have one prediction each, got {missing}; ask for "
            f"{list(known)}"
        )
    left = ON_REQUEST if answer.verdict.evidence is None else ON_REQUEST[:1]
    found = {name: known[name] for name in asked or known if name not in left or asked}
    longest = sum(
        values.numel() * LONGEST_NUMBER if isinstance(values, Tensor) else len(values) * LONGEST_REASON
        for values, _ in found.values()
    )
    if longest > most_bytes:
        raise InputError(
            f"expected an answer of at most {most_bytes} bytes, got one of up to {longest}; send fewer rows, "
            "or ask for fewer outputs"
        )
    outputs = [
        {"name": name, "datatype": kind, "shape": _shape(values), "data": _json_values(values)}
        for name, (values, kind) in found.items()
    ]
    response: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if isinstance(request.get("id"), str):
        response["id"] = request["id"]
    return json.dumps(response, allow_nan=False).encode()


def _outputs(answer: Answer) -> dict[str, tuple[Values, str]]:
    """Everything an answer has, by the name of the output, with its datatype."""
    verdict = answer.verdict
    found: dict[str, tuple[Values, str]] = {
        "prediction": (verdict.predictions, "INT64"),
        "score": (verdict.scores, "FP64"),
        "alarm": (verdict.alarm, "BOOL"),
        "reasons": (verdict.reasons, TEXT),
        "logits": (answer.trace.logits, "FP32"),
    }
    if verdict.source is not None:
        found["source"] = (verdict.source, "INT64")
    if verdict.per_input is not None:
        found["input_score"] = (verdict.per_input.scores, "FP64")
        found["input_alarm"] = (verdict.per_input.alarm, "BOOL")
    return found


def _shape(values: Values) -> list[int]:
    return list(values.shape) if isinstance(values, Tensor) else [len(values)]


def _json_values(values: Values) -> list[Any]:
    """JSON has no NaN and no infinity: null stands for them."""
    if not isinstance(values, Tensor):
        return list(values)
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
    if isinstance(request.get("id"), str) and len(request["id"]) > LONGEST_NAME:
        raise InputError(f"expected an id of at most {LONGEST_NAME} characters, got a longer one")
    return request


def _check_outputs(request: dict[str, Any]) -> None:
    asked = request.get("outputs") or []
    known = isinstance(asked, list) and all(
        isinstance(output, dict) and output.get("name") in OUTPUTS for output in asked
    )
    if not known:
        raise InputError(f'expected "outputs" by name among {list(OUTPUTS)}, got {reprlib.repr(asked)}')


def _name(part: dict[str, Any]) -> str:
    name = part.get("name")
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise InputError(
            f"expected every input to have a name of at most {LONGEST_NAME} characters, got "
            f"{reprlib.repr(name)}"
        )
    return name


def _values(part: dict[str, Any]) -> Any:
    name, shape, data = part["name"], part.get("shape"), part.get("data")
    if not isinstance(shape, list) or not 1 <= len(shape) <= MOST_AXES or not all(map(_is_size, shape)):
        raise InputError(
            f"expected {name!r} to have a shape of 1 to {MOST_AXES} whole numbers up to {LARGEST_SIZE}, "
            f"rows first, got {reprlib.repr(shape)}"
        )
    datatype = part.get("datatype")
    if not isinstance(datatype, str) or datatype not in (*TYPES, TEXT):
        raise InputError(
            f"expected the datatype of {name!r} among {[*TYPES, TEXT]}, got {reprlib.repr(datatype)}"
        )
    if datatype == TEXT:
        return _texts(name, shape, data)
    kind = TYPES[datatype]
    try:
        array = np.asarray(data)
        if array.dtype.kind not in "biuf" or (np.dtype(kind).kind != "f" and array.dtype.kind == "f"):
            raise ValueError(f"numbers of type {array.dtype}")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"expected the data of {name!r} as numbers of type {datatype}, got others ({error})"
        ) from error
    if array.size != math.prod(shape) or array.shape not in ((array.size,), tuple(shape)):
        raise InputError(f"expected {shape} numbers in {name!r}, got data of shape {list(array.shape)}")
    _check_range(array, np.dtype(kind), name, datatype)
    return torch.from_numpy(np.ascontiguousarray(array.astype(kind).reshape(shape)))


def _check_range(array: np.ndarray, kind: np.dtype[Any], name: str, datatype: str) -> None:
    """A number outside the range of its type would become another one, or infinity."""
    if not array.size:
        return
    low, high = _range(kind)
    for extreme in (array.min().item(), array.max().item()):
        if not low <= extreme <= high:
            raise InputError(
                f"expected finite numbers from {low} to {high} in {name!r}, the range of {datatype}, "
                f"got {extreme}; send another datatype, or leave such inputs out"
            )


def _range(kind: np.dtype[Any]) -> tuple[float, float]:
    if kind.kind == "f":
        limits = np.finfo(kind)
        return float(limits.min), float(limits.max)
    # As whole numbers: the largest INT64 is not a float.
    return (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)


def _texts(name: str, shape: list[int], data: Any) -> list[str]:
    if len(shape) != 1 or not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise InputError(f"expected texts in {name!r}: a shape of one number and a list of strings as data")
    if len(data) != shape[0]:
        raise InputError(f"expected {shape[0]} texts in {name!r}, got {len(data)}")
    try:
        "".join(data).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"expected whole Unicode letters in {name!r}, got half of one ({error.reason})"
        ) from error
    return data


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_SIZE
