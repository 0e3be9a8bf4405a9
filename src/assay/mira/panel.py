"""Monitors that try to tell known inputs from a panel of pseudo-unknowns, and how well they do it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import t as student

from assay.engine.progress import progress
from assay.errors import InputError
from assay.faults.pseudo_unknown import PseudoUnknown
from assay.monitors import KNN, ODIN, Energy, Mahalanobis, Monitor
from assay.network import Network
from assay.statistics import auroc, placements
from assay.trace import Inputs, Trace

OUTPUT = "output"
"""Stands where a layer would, for monitors of the logits."""

LEFT_OUT = "class left out"

Array = NDArray[np.float64]
Place = tuple[str, str]
"""Layer and monitor."""


@dataclass(frozen=True)
class Trial:
    """What monitors say of known and of unknown rows; `known` and `unknown` number the test rows they are."""

    name: str
    scores: Mapping[Place, tuple[Array, Array]]
    known: NDArray[np.int64]
    unknown: NDArray[np.int64]
    predictions: NDArray[np.int64] | None = None
    """What the network says of the unknown rows."""


def usual_monitors(network: Network, layers: Sequence[str]) -> dict[Place, Monitor]:
    """Those of the validation (MIRA, Section 4.1) and KNN: of the logits, and of each of these layers.

    ODIN takes no step here: it costs no gradient, and black boxes can be asked, too.
    """
    chosen: dict[Place, Monitor] = {
        (OUTPUT, "ODIN"): ODIN(network, magnitude=0.0),
        (OUTPUT, "Energy"): Energy(),
    }
    for layer in layers:
        chosen[layer, "Mahalanobis"] = Mahalanobis(layer=layer, estimator="oas")
        chosen[layer, "KNN"] = KNN(layer=layer)
    return chosen


def fitted_monitors(
    chosen: Mapping[Place, Monitor], trace: Trace, reasons: dict[str, str]
) -> dict[Place, Monitor]:
    """Those that can be fitted; why others cannot goes to `reasons`."""
    fitted: dict[Place, Monitor] = {}
    for place, monitor in chosen.items():
        try:
            fitted[place] = monitor.fit(trace)
        except InputError as error:
            reasons[f"{place[1]} ({place[0]})"] = str(error)
    if not fitted:
        raise InputError(
            f"expected a network that one monitor can watch, got none: {next(iter(reasons.values()))}"
        )
    return fitted


def trials(
    network: Network,
    inputs: Inputs,
    clean: Trace,
    panel: Mapping[str, PseudoUnknown],
    monitors: Mapping[Place, Monitor],
    seed: int,
) -> Iterator[Trial]:
    """Every pseudo-unknown of the panel, one after another: a forward pass each, one set in memory."""
    known = scored(monitors, clean)
    everyone = np.arange(len(clean))
    for name, made in progress(panel.items(), "panel", len(panel)):
        trace = network.observe(made(inputs, seed))
        unknown = scored(monitors, trace)
        both = {place: (known[place], unknown[place]) for place in monitors}
        yield Trial(name, both, everyone, everyone, trace.predictions.numpy())


def scored(monitors: Mapping[Place, Monitor], trace: Trace) -> dict[Place, Array]:
    """Scores of every monitor; one that is not finite ranks above all others."""
    found = {place: monitor.score(trace) for place, monitor in monitors.items()}
    return {
        place: score.double().nan_to_num(torch.inf, torch.inf, -torch.inf).numpy()
        for place, score in found.items()
    }


def trial_table(found: Iterable[Trial], level: float) -> pd.DataFrame:
    """A row per trial and monitor: its AUROC and the interval over inputs."""
    table = [
        {
            "pseudo_unknown": trial.name,
            "layer": layer,
            "monitor": monitor,
            **auroc(known, unknown, level, sources=(trial.known, trial.unknown))._asdict(),
        }
        for trial in found
        for (layer, monitor), (known, unknown) in trial.scores.items()
    ]
    return pd.DataFrame(table).rename(columns={"value": "auroc"})


def mixtures(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of inputs that were made: those that every monitor of every layer has seen."""
    return table[~table["pseudo_unknown"].str.startswith(LEFT_OUT)]


def monitor_means(table: pd.DataFrame) -> pd.DataFrame:
    """A row per monitor and layer, best first: its mean AUROC over inputs that were made, and the least."""
    found = mixtures(table).groupby(["layer", "monitor"], sort=False)["auroc"]
    frame = found.agg(auroc="mean", least="min").reset_index()
    return frame.sort_values("auroc", ascending=False, ignore_index=True)


def best_place(table: pd.DataFrame) -> Place:
    layer, monitor = monitor_means(table).loc[0, ["layer", "monitor"]]
    return str(layer), str(monitor)


def best_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The row of the best monitor on each pseudo-unknown, by its name."""
    best = table.groupby("pseudo_unknown", sort=False)["auroc"].idxmax()
    return table.loc[best].set_index("pseudo_unknown")


def best_of(table: pd.DataFrame) -> "pd.Series[float]":
    """The largest AUROC on each pseudo-unknown; that of a class left out is the mean over such classes."""
    best = best_rows(table)["auroc"]
    kind = [LEFT_OUT if str(name).startswith(LEFT_OUT) else name for name in best.index]
    return best.groupby(kind, sort=False).mean()


def score_error(found: Sequence[Trial], table: pd.DataFrame, rows: int) -> float:
    """The standard error of the mean of best-of AUROCs, over inputs and over members of the panel.

    Over inputs by the placements of each test row in every trial (DeLong et al. 1988), since all trials share
    the rows; which monitor is best is taken as it came out. Over members as of a sample of all
    pseudo-unknowns there might be.
    """
    best, chosen = best_of(table), best_rows(table)
    classes = sum(trial.name.startswith(LEFT_OUT) for trial in found)
    influence = np.zeros(rows)
    for trial in found:
        best_row = chosen.loc[trial.name]
        below, above = placements(*trial.scores[str(best_row["layer"]), str(best_row["monitor"])])
        share = len(best) * (classes if trial.name.startswith(LEFT_OUT) else 1)
        for which, placed in ((trial.known, below), (trial.unknown, above)):
            np.add.at(influence, which, (placed - placed.mean()) * rows / len(which) / share)
    over_inputs = influence.var(ddof=1) / rows
    over_members = best.var(ddof=1) / len(best) if len(best) > 1 else 0.0
    return math.sqrt(over_inputs + over_members)


def score_interval(value: float, error: float, members: int, level: float) -> tuple[float, float]:
    """Student's, with as many degrees of freedom as there are members less one; cut to [0, 1]."""
    reach = float(student.isf((1 - level) / 2, max(1, members - 1))) * error
    return max(0.0, value - reach), min(1.0, value + reach)


def class_table(found: Sequence[Trial], table: pd.DataFrame, clean: Trace, level: float) -> pd.DataFrame:
    """By predicted class: how well the best monitor tells unknown inputs that end there from known ones.

    `score` is the AUROC over all pseudo-unknowns together, `left_out` that of the class itself, had it been
    unknown; NaN where there are no rows.
    """
    place, best = best_place(table), best_rows(table)["auroc"]
    predicted = clean.predictions.numpy()
    mixed = [trial for trial in found if trial.predictions is not None]
    known = mixed[0].scores[place][0]
    unknown = np.concatenate([trial.scores[place][1] for trial in mixed])
    ends = np.concatenate([trial.predictions for trial in mixed if trial.predictions is not None])
    rows = []
    for label in range(clean.logits.shape[1]):
        here = auroc(known[predicted == label], unknown[ends == label], level)
        rows.append(
            {
                "label": label,
                "inputs": int((predicted == label).sum()),
                "unknown_inputs": int((ends == label).sum()),
                "score": here.value,
                "lower": here.lower,
                "upper": here.upper,
                "left_out": float(best.get(f"{LEFT_OUT}: {label}", math.nan)),
            }
        )
    return pd.DataFrame(rows)
