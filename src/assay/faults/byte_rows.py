"""Faults of rows of bytes (N, L): bad bits, lost blocks, files cut short, mixed up or coded otherwise.

Values from 0 to 255 are bytes; anything else in the row (magika pads with 256) is padding and is left alone.
With one seed, the places changed at one severity are changed at all higher ones. Every row with a byte that
can change is changed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults import symbols
from assay.faults.symbol_faults import lost_start, pushed_in, shuffled_run, truncation
from assay.faults.template import check_severity

VALUES = 256


@dataclass(frozen=True)
class ByteFault:
    """A fault of rows of bytes in any type of whole numbers.

    `padding` fills what is lost at the end of a row: 0 if it is None. A run of it at the end of a row is
    padding, too, and is left alone.
    """

    name: str
    category: str
    corrupt: symbols.Corrupt
    padding: int | None = None
    kind: str = "bytes"

    def __call__(self, inputs: Tensor, severity: int, seed: int = 0) -> Tensor:
        check_severity(severity)
        rows = _checked(inputs).long()
        free = (rows >= 0) & (rows < VALUES) & ~self._padded(rows)
        changed = self.corrupt(rows, free, severity, torch.Generator().manual_seed(seed))
        return symbols.closed_up(changed, changed == symbols.LOST, self.padding or 0).to(inputs.dtype)

    def _padded(self, rows: Tensor) -> Tensor:
        """The runs of padding at the ends of the rows."""
        if self.padding is None:
            return torch.zeros_like(rows, dtype=torch.bool)
        return (rows == self.padding).flip(1).cumprod(dim=1).bool().flip(1)


def bit_flips(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """One bit of 1, 2, 5, 10 or 20 % of the bytes is the wrong way round."""
    struck = symbols.chosen(free, (0.01, 0.02, 0.05, 0.1, 0.2)[severity - 1], generator)
    bits = 1 << torch.randint(0, 8, rows.shape, generator=generator)
    return torch.where(struck, rows ^ bits, rows)


def byte_noise(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """2, 5, 10, 20 or 40 % of the bytes are others, each as likely as any."""
    struck = symbols.chosen(free, (0.02, 0.05, 0.1, 0.2, 0.4)[severity - 1], generator)
    step = torch.randint(1, VALUES, rows.shape, generator=generator)
    return torch.where(struck, (rows + step) % VALUES, rows)


def inserted_bytes(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """1, 2, 5, 10 or 20 % of the bytes are strays that push those behind on; the last fall out."""
    struck = symbols.chosen(free, (0.01, 0.02, 0.05, 0.1, 0.2)[severity - 1], generator)
    return pushed_in(rows, free, struck, torch.randint(0, VALUES, rows.shape, generator=generator))


def lost_bytes(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """1, 2, 5, 10 or 20 % of the bytes are missing, and those behind move up."""
    struck = symbols.chosen(free, (0.01, 0.02, 0.05, 0.1, 0.2)[severity - 1], generator)
    return rows.masked_fill(struck, symbols.LOST)


def zero_block(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """One run of 5, 10, 20, 40 or 80 % of the bytes reads as zero, as from a bad sector."""
    return rows.masked_fill(symbols.run(free, (0.05, 0.1, 0.2, 0.4, 0.8)[severity - 1], generator), 0)


def byte_order(rows: Tensor, free: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """The first 20, 40, 60, 80 or 100 % of the pairs of bytes come in the other byte order."""
    return symbols.with_pairs_swapped(rows, symbols.first(symbols.pairs(free).all(dim=2), severity / 5))


def stripped_bit(rows: Tensor, free: Tensor, severity: int, _: torch.Generator) -> Tensor:
    """The first 20, 40, 60, 80 or 100 % of the bytes have lost their top bit, as on a line of seven bits."""
    return torch.where(symbols.first(free, severity / 5), rows & 0x7F, rows)


def letter_case(rows: Tensor, free: Tensor, severity: int, generator: torch.Generator) -> Tensor:
    """20, 40, 60, 80 or 100 % of the letters A to Z are small instead of capital, or the other way round."""
    small = rows | 0x20
    letters = free & (small >= ord("a")) & (small <= ord("z"))
    return torch.where(symbols.chosen(letters, severity / 5, generator), rows ^ 0x20, rows)


def byte_faults(*, padding: int | None = None) -> dict[str, ByteFault]:
    """All faults of bytes by name, for rows that are filled up with `padding`."""
    return {
        name: ByteFault(name, category, corrupt, padding)
        for name, category, corrupt in (
            ("bit_flips", "noise", bit_flips),
            ("byte_noise", "noise", byte_noise),
            ("inserted_bytes", "noise", inserted_bytes),
            ("byte_order", "shift", byte_order),
            ("stripped_bit", "shift", stripped_bit),
            ("letter_case", "shift", letter_case),
            ("lost_bytes", "anomaly", lost_bytes),
            ("zero_block", "anomaly", zero_block),
            ("shuffled_run", "anomaly", shuffled_run),
            ("truncation", "anomaly", truncation),
            ("lost_start", "anomaly", lost_start),
        )
    }


def _checked(rows: Tensor) -> Tensor:
    if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.is_floating_point() or not len(rows):
        found = f"{rows.dtype} {tuple(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
        raise InputError(
            f"expected whole numbers of shape (N, L), a row of bytes each, got {found}; convert them first"
        )
    return rows


BYTES = byte_faults()
