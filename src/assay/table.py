"""Data frames that print all their columns."""

import shutil
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import pandas as pd

P = ParamSpec("P")


class Table(pd.DataFrame):
    """A DataFrame that prints every column, wrapped at the width of the terminal, with four significant
    digits.

    Pandas hides the middle columns of a wide frame unless its global options are changed, and those belong to
    the user. The number of rows and the float format follow these options.

    >>> print(Table({f"column_{number}": [number / 3] for number in range(9)}).iloc[:, [0, 8]])
       column_0  column_8
    0         0     2.667
    """

    @property
    def _constructor(self) -> Callable[..., "Table"]:
        return Table

    def __repr__(self) -> str:
        return str(self.to_string(line_width=shutil.get_terminal_size().columns, **self._print_options()))

    def _repr_html_(self) -> str:
        return str(self.to_html(notebook=True, **self._print_options()))

    def _print_options(self) -> dict[str, Any]:
        return {
            "max_rows": pd.get_option("display.max_rows"),
            "float_format": pd.get_option("display.float_format") or "{:.4g}".format,
        }


def tabled(frame: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """A decorator: the DataFrame that the function returns becomes a Table."""

    @wraps(frame)
    def table(*arguments: P.args, **named: P.kwargs) -> pd.DataFrame:
        return Table(frame(*arguments, **named))

    return table
