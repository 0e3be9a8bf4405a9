"""The meanings of table columns, with units, in plain words."""

from collections.abc import Iterable

MEANINGS = {
    "accuracy": "share of right answers (0 to 1)",
    "accuracy_threshold": "the accuracy at which inputs count as having crossed the boundary (share, 0 to 1)",
    "alarm": "whether the watch has raised an alarm",
    "alarm_rate": "share of answers the guard cancelled (0 to 1)",
    "assumption": "what must hold for this estimate to be right",
    "auroc": "the chance that a faulty input scores higher than a good one: 0.5 is guessing, 1 is perfect",
    "answers": "which answers are counted",
    "average_rank": "mean place among the guards over all scenarios; 1 is best",
    "baseline": "mean surprise of clean inputs (nats)",
    "beats_next": "the chance that this row really ranks above the next: 1 is certain, 0.5 is a coin toss",
    "best_layer": "the layer that the best monitor reads; `output` for the logits",
    "best_monitor": "the single monitor that does best on average",
    "best_auroc": "AUROC of the best monitor, mean over the unknown sets: 0.5 is guessing, 1 is perfect",
    "bin": "number of the bin",
    "cancelled": "answers that the guard cancelled",
    "category": "kind of fault",
    "certainty": "mean gap between the two largest probabilities of an answer (0 to 1)",
    "counted": "what a device must report for this estimate",
    "dimensions": "number of features that vary, used in the distance",
    "direction": "on which side of the reference's mean the certainty lies",
    "effective_sample_size": "how many independent inputs a bin's samples are worth; under 25 is too few",
    "epsilon_max": "largest change of an input tried (units of the inputs)",
    "epsilon_min": "change of the inputs at which accuracy falls to the threshold (units of the inputs)",
    "error": "standard error of the log density",
    "false_alarms": "share of good inputs under alarm (0 to 1)",
    "features": "values in the watched layer",
    "fitted_rows": "inputs that the distance was fitted on",
    "gate": "a requirement that the network must meet",
    "guard": "network and monitor together, named after the monitor",
    "inputs": "how many inputs it was measured on",
    "items": "inputs that were judged",
    "measure": "what was measured in both runs",
    "old": "its value in the old run",
    "new": "its value in the new run",
    "difference": "new minus old",
    "kilobytes": "memory the fitted monitor keeps (kB)",
    "layer": "the layer whose features are watched",
    "log_count": "natural logarithm of the number of possible inputs",
    "log_density": "natural logarithm of the share of all possible inputs",
    "log_evidence": "natural logarithm of the evidence that the stream has changed",
    "log_false_positive": "natural logarithm of the share of all inputs above the threshold that are wrong",
    "log_recall": "natural logarithm of the share of all inputs that are above the threshold and right",
    "log_vc": "log volatility in certainty: higher means that certainty jumps more from answer to answer",
    "lower": "lower end of the interval",
    "mean_confidence_known": "mean confidence in answers about known digits (0 to 1)",
    "mean_confidence_unknown": "mean confidence in answers about the unknown digit (0 to 1)",
    "measured": "what was found",
    "method": "how it was estimated",
    "microseconds_per_input": "the monitor's time for an input (millionths of a second)",
    "model_mcc": "how well the network alone answers (Matthews correlation: 0 is guessing, 1 is perfect)",
    "model_seconds": "the network's time per input (seconds)",
    "monitor": "the method that gives every answer a score of doubt",
    "monitor_bytes": "memory the fitted monitor keeps (bytes)",
    "monitor_seconds": "the monitor's time per input (seconds)",
    "network": "which network",
    "mira": "MIRA score: surprise that perturbed inputs add, as a multiple of the usual surprise; 0 is none",
    "neuron": "which neuron of the watched layer",
    "note": "why not to use this estimate; empty where nothing is known against it",
    "p_value": "chance of a window at least this far off on clean data",
    "parameters": "weights of the network",
    "points": "how many inputs, equally weighted, the estimate is worth",
    "portion": "share of inputs in this bin (0 to 1)",
    "precision": "share of right answers among inputs that count as confident at this threshold (0 to 1)",
    "r": "precision of the one bin that this threshold adds (0 to 1)",
    "pseudo_unknown": "how inputs that make no sense were made of known ones",
    "rank": "place; 1 is best",
    "row": "number of the last answer in the window",
    "reason": "what the answer rests on, or why there is none",
    "rows": "how many predictions it was measured on",
    "samples": "inputs kept as examples",
    "scenario": "the fault, and how strong it is",
    "score": "MIRA score: surprise that perturbed inputs add, as a multiple of the usual surprise; 0 is none",
    "severity": "strength of the fault, 1 (slight) to 5 (strong)",
    "system_mcc": "the same with answers under alarm cancelled",
    "threshold": "output up to which (or down to which) the model counts as confident",
    "trusted": "whether the number of inputs in the bin passed the sampler's checks",
    "unknown_above_90_percent": "share of unknown digits answered with over 90 % confidence (0 to 1)",
    "unknown_caught": "share of unknown digits under alarm (0 to 1)",
    "upper": "upper end of the interval",
    "value": "the estimate",
    "verdict": "passed, failed, or undecided if the data cannot tell",
    "visited": "whether the sampler found inputs there",
    "wanted": "value needed to pass the gate",
    "window": "number of the window",
    "warnings": "what to keep in mind about this score",
}

MEASURES = {
    "mcc": "agreement of alarms and truth (Matthews correlation: 0 is guessing, 1 is perfect)",
    "fpr": "share of good inputs under alarm (0 to 1)",
    "fnr": "share of faults without an alarm (0 to 1)",
    "precision": "share of alarms that are right (0 to 1)",
    "recall": "share of faults under alarm (0 to 1)",
    "f1": "harmonic mean of precision and recall (0 to 1)",
    "auroc": MEANINGS["auroc"],
}

ORACLES = {
    "specific": "a fault is an input that was made faulty",
    "overall": "a fault is an input that the network gets wrong",
    "input": "of whole inputs, of which each has several predictions",
}

BESIDE = {
    ("value", "assumption"): "the estimate: share of right answers (0 to 1)",
    ("value", "reason"): "the answer without labels: share of right answers (0 to 1)",
    ("lower", "log_density"): "lower edge of the bin (output of the model)",
    ("upper", "log_density"): "upper edge of the bin (output of the model)",
    ("score", "best_monitor"): "how well the best monitor tells known inputs from inputs that make no sense "
    "(mean AUROC; 0.5 is guessing)",
    ("verdict", "reason"): "has accuracy fallen below that of the reference? Or can nobody tell?",
    ("verdict", "difference"): "better or worse beyond chance, or cannot tell",
    ("lower", "difference"): "lower end of the interval of the difference",
    ("upper", "difference"): "upper end of the interval of the difference",
    ("lower", "gate"): "lower end of the 95 % interval; a dash where none was needed",
    ("upper", "gate"): "upper end of the 95 % interval",
}
"""Columns that mean something else if another column is in the same table."""


def meanings(columns: Iterable[str]) -> dict[str, str]:
    """The meanings of a table's columns, in their order, where known."""
    names = list(columns)
    return {name: words for name in names if (words := _meaning(name, names))}


def _meaning(name: str, beside: list[str]) -> str:
    for (column, other), words in BESIDE.items():
        if column == name and other in beside:
            return words
    oracle, _, measure = name.partition("_")
    if oracle in ORACLES and measure in MEASURES:
        return f"{MEASURES[measure]}; {ORACLES[oracle]}"
    stem, _, end = name.rpartition("_")
    if end in ("lower", "upper") and _meaning(stem, beside):
        return f"{end} end of the interval of {stem.replace('_', ' ')}"
    return MEANINGS.get(name, "")
