"""What every command prints with --json."""

import json
import math
from collections.abc import Mapping
from typing import Any


def print_json(facts: Any) -> None:
    """Print the facts as one line of JSON, which has no NaN and no infinity: null stands for them."""
    print(json.dumps(_with_nulls(facts), allow_nan=False))


def _with_nulls(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _with_nulls(item) for name, item in value.items()}
    return [_with_nulls(item) for item in value] if isinstance(value, list | tuple) else value
