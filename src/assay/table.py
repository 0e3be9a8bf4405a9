"""The frames that results give: pandas, printed so that every figure can be read."""

import shutil
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import pandas as pd

P = ParamSpec("P")


class Table(pd.DataFrame):
    """A DataFrame whose print leaves no column out: wrapped at the terminal's width, figures to four digits.

    Pandas hides the middle of a wide frame behind dots unless options of its own are changed, which are the
    user's. How many rows are shown, and a float format of the user's, follow these options.

    >>> print(Table({f"column_{number}": [number / 3] for number in range(9)}).iloc[:, [0, 8]])
       column_0  column_8
    0         0     2.667
    """

    @property
    def _constructor(self) -> Callable[..., "Table"]:
        return Table

    def __repr__(self) -> str:
        return str(self.to_string(line_width=shutil.get_terminal_size().columns, **self._shown()))

    def _repr_html_(self) -> str:
        return str(self.to_html(notebook=True, **self._shown()))

    def _shown(self) -> dict[str, Any]:
        return {
            "max_rows": pd.get_option("display.max_rows"),
            "float_format": pd.get_option("display.float_format") or "{:.4g}".format,
        }


def tabled(frame: Callable[P, pd.DataFrame]) -> Callable[P, pd.DataFrame]:
    """What the function returns, as a Table."""

    @wraps(frame)
    def table(*arguments: P.args, **named: P.kwargs) -> pd.DataFrame:
        return Table(frame(*arguments, **named))

    return table
