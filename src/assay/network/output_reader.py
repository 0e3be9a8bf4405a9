"""Outputs of a network as logits: stated by the user, or recognised once and then kept."""

import warnings

from torch import Tensor

from assay.errors import AssayWarning, InputError
from assay.network.graph import under_tracer
from assay.outputs import (
    ENOUGH,
    LOGITS,
    PROBABILITIES,
    Finding,
    as_logits,
    check_kind,
    expect_kind,
    found_in,
    found_in_single,
)


class OutputReader:
    """Turns the outputs of one network into logits, always in the same way.

    `kind` is what was stated, or None until rows have shown it; networks that differ only in the layers they
    watch share one reader. With `label`, the outputs are several yes-or-no answers, of which this one is
    read, as two classes.
    """

    def __init__(self, owner: str, stated: str | None = None, label: int | None = None) -> None:
        check_kind(stated)
        if label is not None and label < 0:
            raise InputError(f"expected a label from 0, the number of an output, got {label}")
        self.owner = owner
        self.stated = stated
        self.label = label
        self.kind = stated
        self.several = False
        self._assumed = False

    def takes_logits(self, several: bool) -> None:
        """It reads logits, whatever the network puts out; of several sigmoids one must be chosen."""
        self.kind = LOGITS
        self.several = several

    def logits(self, values: Tensor, rows: int) -> Tensor:
        """(N, classes) logits in single precision, from outputs (N, classes), (N, 1) or (N,)."""
        values = self._table(values, rows)
        if self.kind is None and not under_tracer():
            self._recognise(values)
        kind = self.kind or LOGITS
        if self.label is not None:
            values = values[:, self.label : self.label + 1]
        if not under_tracer():
            expect_kind(values, kind, self.owner)
        return as_logits(values, kind).float()

    def read_as(self, kind: str) -> None:
        """Read outputs as a file says that they were read; an error if they are read otherwise.

        What was stated is part of the network's fingerprint, by which the file has recognised it.
        """
        if self.stated is not None:
            return
        if self.kind not in (None, kind):
            raise InputError(
                f"expected outputs read as {kind}, as when the file was saved, got {self.owner}, whose "
                f'outputs are read as {self.kind}; pass outputs="{kind}", or fit again'
            )
        self.kind = kind

    def _table(self, values: Tensor, rows: int) -> Tensor:
        values = values if values.is_floating_point() else values.float()
        table = values[:, None] if values.ndim == 1 else values
        if table.ndim != 2 or not table.shape[1] or len(table) != rows:
            raise InputError(
                f"expected logits or probabilities of shape ({rows}, classes) from {self.owner}, got "
                f"{tuple(values.shape)}; wrap the module so that it returns one row of class scores per "
                "input, choose another output with output=, or for maps of class scores pass rows='pixels'"
            )
        if self.label is not None and self.label >= table.shape[1]:
            raise InputError(
                f"expected a label from 0 to {table.shape[1] - 1}, one of the outputs of {self.owner}, got "
                f"{self.label}"
            )
        if self.several and self.label is None and table.shape[1] > 1:
            raise self._of_several_labels(table.shape[1])
        return table

    def _recognise(self, values: Tensor) -> None:
        """Decide what the outputs are, where these rows show it."""
        single = self.label is not None or values.shape[1] == 1
        finding = (found_in_single if single else found_in)(values)
        if finding is Finding.SEVERAL_LABELS:
            raise self._of_several_labels(values.shape[1])
        if finding is Finding.EITHER:
            raise InputError(
                f"expected outputs of {self.owner} that show whether they are probabilities or logits, got "
                f'{len(values)} rows that may be either; pass outputs="probabilities" or outputs="logits"'
                + ("" if single else f", or observe at least {ENOUGH} rows first")
            )
        if finding is Finding.LOGITS:
            self.kind = LOGITS
        elif finding in (Finding.ONE_HOT, Finding.TOO_FEW):  # logits for now; later rows may object
            self._assumed = True
        elif finding is Finding.PROBABILITIES and self._assumed:
            raise InputError(
                f"expected logits from {self.owner}, as which its first rows were read for want of better, "
                'got probabilities; pass outputs="probabilities"'
            )
        elif finding is Finding.PROBABILITIES:
            self.kind = PROBABILITIES
            self._say(single)

    def _of_several_labels(self, count: int) -> InputError:
        return InputError(
            f"expected logits or probabilities of one choice from {self.owner}, got {count} values between 0 "
            "and 1 that do not add up to 1, as several sigmoids give; pass label= with the number of one of "
            'them, or outputs="logits" if they are logits of one choice'
        )

    def _say(self, single: bool) -> None:
        what = "values between 0 and 1" if single else "rows that add up to 1"
        warnings.warn(
            f"{self.owner} returns probabilities ({what}), so assay takes their logarithms as logits; state "
            'it with outputs="probabilities", or return what goes into the softmax or sigmoid: it says more',
            AssayWarning,
            stacklevel=2,
        )
