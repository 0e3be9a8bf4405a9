"""Gate: one thing that must hold before a network ships."""

from dataclasses import dataclass

from assay.storage import storable


@storable("check.Gate")
@dataclass(frozen=True)
class Gate:
    """`passed` is None where the data cannot decide; `words` say what was found, and what to do."""

    name: str
    measured: float
    wanted: str
    passed: bool | None
    words: str

    @property
    def verdict(self) -> str:
        return {True: "passed", False: "failed", None: "undecided"}[self.passed]
