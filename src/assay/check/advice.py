"""What to do about each gate, and about the whole check."""

from collections.abc import Sequence

from assay.check.gate import Gate

FAILED = {
    "accuracy": "Train the network further, or check that its classes are in the order of the labels.",
    "monitorability": "Watch another layer (--layer), or rely on safety measures outside the network: a "
    "guard on it will miss much.",
    "MIRA score": "Watch another layer (--layer), or lower --least-mira.",
    "detection (mean MCC)": "Compare other monitors with assay benchmark, and see below which kinds of fault "
    "are missed.",
    "false alarms": "Calibrate on inputs like those in operation, or allow more with --false-alarm-rate.",
}
UNDECIDED = "Pass more test inputs (--test): the interval must lie on one side of what is wanted."
NOT_MEASURED = "It could not be measured here; the reason is given."
SHIP = (
    "Ship guard.safetensors of this folder with the network: assay serve guard.safetensors NETWORK answers "
    "with it and counts alarms, assay score judges whole files, and assay accuracy asks now and then whether "
    "accuracy holds."
)


def advice_on(gate: Gate) -> str:
    """What to do about one gate; nothing where it passed."""
    if gate.passed:
        return ""
    if gate.passed is None:
        return UNDECIDED if gate.measured == gate.measured else NOT_MEASURED
    return FAILED.get(gate.name, "Change the network, the monitor or the data, and check again.")


def advice_on_all(gates: Sequence[Gate]) -> str:
    """What to do first."""
    wrong = [gate.name for gate in gates if gate.passed is False]
    open_ones = [gate.name for gate in gates if gate.passed is None]
    if wrong:
        return f"Do not ship it yet. See what each failed gate asks for: {', '.join(wrong)}."
    if open_ones:
        return f"Gather more test inputs before you decide; undecided: {', '.join(open_ones)}."
    return SHIP
