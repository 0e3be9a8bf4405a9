"""The needs, costs and paper of a monitor, stated once per class.

`tests/monitors/test_protocol.py` fails where a statement is wrong, and `docs/monitor_tables.py` writes the
tables of docs/monitors.md from them.
"""

from dataclasses import dataclass
from enum import IntEnum


class Labels(IntEnum):
    """What fitting does with labels."""

    UNUSED = 0
    OPTIONAL = 1
    REQUIRED = 2


@dataclass(frozen=True)
class Needs:
    """What a monitor needs beyond the logits and the features of its `layers`.

    `|` gives what two monitors need together.

    >>> both = Needs(labels=Labels.OPTIONAL) | Needs(inputs=True)
    >>> both.labels.name, both.inputs
    ('OPTIONAL', True)
    """

    labels: Labels = Labels.UNUSED
    """In fit."""

    inputs: bool = False
    """Whether `score` reads `trace.inputs`."""

    inputs_in_fit: bool = False
    """Whether `fit` reads them too."""

    encoded: bool = False
    """Whether inputs may come as the network encodes them, such as token ids without their embeddings."""

    forward: str = ""
    """Forward passes through a network per score, beyond the one that made the Trace."""

    backward: str = ""
    """Backward passes per score."""

    user_code: bool = False
    """Whether it calls user code, which a file cannot contain."""

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            labels=max(self.labels, other.labels),
            inputs=self.inputs or other.inputs,
            inputs_in_fit=self.inputs_in_fit or other.inputs_in_fit,
            encoded=(self.inputs or other.inputs)
            and all(needs.encoded for needs in (self, other) if needs.inputs),
            forward=" + ".join(filter(None, (self.forward, other.forward))),
            backward=" + ".join(filter(None, (self.backward, other.backward))),
            user_code=self.user_code or other.user_code,
        )

    @property
    def obstacle(self) -> str:
        """Why no exported graph can compute the score; empty where one can."""
        if self.user_code:
            return "it calls user code, which a file cannot contain"
        if self.backward:
            return "it needs the network's gradient, which a graph for inference does not have"
        if self.forward:
            return "it runs a network again, which an exported graph does not do"
        return ""


@dataclass(frozen=True)
class Metadata:
    """A class of monitors with its default arguments.

    Costs are Python expressions in N (rows fitted or scored), M (rows kept), C (classes), d (features), v
    (values of an input), W (weights of the networks it trains), P (multiplications of a pass through these),
    q (principal directions kept) and the arguments of the constructor. They leave out what wrapped monitors
    cost.
    """

    score: str = ""
    """The formula, higher for what is more suspicious."""

    needs: Needs = Needs()

    fit: str = ""
    """Operations of `fit`, up to a constant factor; empty where nothing is learned."""

    cost: str = "N * C"
    """Operations of `score` on N rows, without passes through a network, up to a constant factor."""

    state: str = ""
    """Bytes of the fitted state, leading terms; empty where only sizes are kept."""

    unmergeable: str = ""
    """Why fits on parts of the rows cannot be merged; empty where they can."""

    paper: str = ""
    year: int | None = None
