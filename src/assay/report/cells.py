"""How values stand in a table: at most four digits, shares in per cent, a dash for what is missing."""

import math
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from assay.report.columns import meanings

DIGITS = 4


def share_columns(columns: Iterable[str]) -> frozenset[str]:
    """The columns that hold a share of something, from 0 to 1."""
    found = meanings(columns)
    shares = {name for name, words in found.items() if "share" in words and "(0 to 1)" in words}
    ends = {f"{name}_{end}" for name in shares for end in ("lower", "upper")} & set(found)
    if "value" in shares:
        ends |= {"lower", "upper"} & set(found)
    return frozenset(shares | ends)


def cell_text(value: Any, is_share: bool = False) -> str:
    """
    >>> cell_text(0.78125, is_share=True), cell_text(0.000012345), cell_text(1234567), cell_text(None)
    ('78.1 %', '1.234e-05', '1,234,567', '–')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool | np.bool):
        return "yes" if value else "no"
    if isinstance(value, Integral):
        return f"{value:,}"
    if not isinstance(value, Real):
        return str(value)
    return share_text(float(value)) if is_share else number_text(float(value))


def share_text(value: float) -> str:
    """
    >>> share_text(0.78125), share_text(0.00012), share_text(1.0)
    ('78.1 %', '0.012 %', '100 %')
    """
    percent = 100 * value
    if not math.isfinite(value) or percent in (0.0, 100.0):
        return f"{percent:g} %"
    return f"{percent:.1f} %" if abs(percent) >= 0.1 else f"{percent:.2g} %"


def shares_in_words(text: str) -> str:
    """The shares in a sentence, as they stand in tables; a line never breaks before the sign.

    >>> shares_in_words("98.9% (95 % interval)")
    '98.9\\xa0% (95\\xa0% interval)'
    """
    return re.sub(r"(?<=\d) ?%", "\N{NO-BREAK SPACE}%", text)


def number_text(value: float) -> str:
    """Four digits, with separators rather than an exponent as long as that can be read.

    >>> number_text(0.123456), number_text(12345.6), number_text(3e9), number_text(2.0)
    ('0.1235', '12,350', '3e+09', '2')
    """
    size = abs(value)
    if not math.isfinite(value) or size < 1e4 or size >= 1e7:
        return f"{value:.{DIGITS}g}"
    rounded = round(value, DIGITS - 1 - math.floor(math.log10(size)))
    return f"{rounded:,.0f}"
