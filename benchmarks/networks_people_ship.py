"""Networks and data that nobody here made: each trial takes one package as people use it, and compares.

    python benchmarks/networks_people_ship.py magika sklearn
    python benchmarks/networks_people_ship.py            # every trial whose package is installed

A trial is a function in a file of benchmarks/shipped/ that returns rows (what, here, there): a figure from
assay, and the same from the package itself or from plain NumPy. Rows that differ end the script with status
1. To add a trial, write the function and name it in TRIALS.
"""

import argparse
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Iterable

import pandas as pd

Row = tuple[str, float, float]
"""What was compared, the figure here, and the figure there; NaN there: nothing to compare with."""

TRIALS = {
    "magika": ("magika", "shipped.outputs:magika"),
    "sklearn": ("sklearn", "shipped.outputs:scikit_learn"),
    "xgboost": ("xgboost", "shipped.outputs:xgboost"),
    "lightgbm": ("lightgbm", "shipped.outputs:lightgbm"),
    "skl2onnx": ("skl2onnx", "shipped.outputs:skl2onnx"),
    "datasets": ("datasets", "shipped.streams:datasets"),
    "webdataset": ("webdataset", "shipped.streams:webdataset"),
    "one_pass": ("torch", "shipped.streams:one_pass"),
    "segmentation": ("torch", "shipped.dense:segmentation"),
    "detection": ("torch", "shipped.dense:detection"),
}
"""The name of a trial, the package that it needs, and where its function is."""

TOLERANCE = 1e-4
"""Everything here runs in single precision."""


def function_of(place: str) -> Callable[[], Iterable[Row]]:
    module, _, name = place.partition(":")
    found: Callable[[], Iterable[Row]] = getattr(importlib.import_module(module), name)
    return found


def table_of(rows: Iterable[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["what", "here", "there"])
    close = [
        math.isnan(there) or math.isclose(here, there, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        for here, there in zip(frame["here"], frame["there"], strict=True)
    ]
    return frame.assign(agrees=close)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trials", nargs="*", choices=[[], *TRIALS], help=f"of {', '.join(TRIALS)}")
    asked = parser.parse_args().trials
    agrees = True
    for name in asked or TRIALS:
        package, place = TRIALS[name]
        if importlib.util.find_spec(package) is None:
            print(f"{name}: the package {package} is not installed; run: pip install {package}\n")
            agrees = agrees and not asked
            continue
        table = table_of(function_of(place)())
        agrees = agrees and bool(table["agrees"].all())
        print(f"{name}\n{table.to_string(index=False, float_format='{:.6g}'.format)}\n", flush=True)
    sys.exit(0 if agrees else 1)


if __name__ == "__main__":
    main()
