"""assay.monitorability: the best-of protocol of MIRA's validation, on a panel made of known inputs."""

from collections.abc import Iterable
from typing import Any

import torch

from assay.data.apart import check_apart
from assay.errors import InputError
from assay.faults.lessons import labelled_rows
from assay.faults.pseudo_unknown import FEWEST, PseudoUnknown, pseudo_unknowns_for
from assay.mira.left_out_class import class_trials
from assay.mira.panel import (
    LEFT_OUT,
    Trial,
    best_of,
    class_table,
    fitted_monitors,
    score_error,
    score_interval,
    trial_table,
    trials,
    usual_monitors,
)
from assay.mira.panel_result import Monitorability
from assay.network import Network, length
from assay.statistics import check_level
from assay.trace import Inputs, Trace

TESTED, FITTED = 1000, 5000
"""Most test rows that pseudo-unknowns are made of, and most training rows that monitors are fitted on."""


def monitorability(
    network: Network,
    train: Any,
    test: Any,
    *,
    pseudo_unknowns: Iterable[str] | None = None,
    rows_at_most: int = TESTED,
    level: float = 0.95,
    seed: int = 0,
) -> Monitorability:
    """How well a network's failures should be visible, from in-distribution data alone.

    MIRA's validation (Section 4.1) asks how well the best of several monitors tells known from unknown
    inputs, averaged over unknown sets. This asks the same of a panel of pseudo-unknowns, inputs made of the
    test inputs (`assay.faults.pseudo_unknowns_for`), and of each class in turn, with head and monitors fitted
    without it. It is not from the paper; docs/monitorability.md says on which networks its definition was
    decided and what it predicted on others.

    `train` and `test` are labelled: DataLoaders or (inputs, labels), and `train` may be a Trace of this
    network; monitors are fitted on at most 5,000 rows of the first, and at most `rows_at_most` of the second
    are used, drawn at random. `pseudo_unknowns` names some of the panel; all by default. Every layer that the
    network watches is tried.

    Costs a forward pass over these rows of `train`, and one over the test rows for each pseudo-unknown. It
    needs no gradients: black boxes can be asked, too.
    """
    check_level(level)
    network.expect_one_row_per_input("monitorability")
    check_apart(train, test, ("train", "test"))
    inputs, labels = labelled_rows(network, test, rows_at_most, seed)
    inputs = network.encode(inputs)
    if length(inputs) < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} test inputs to exchange parts between, got {length(inputs)}; "
            "pass more"
        )
    panel = _named(inputs, network, pseudo_unknowns)
    reasons: dict[str, str] = {}
    fitted, clean = _fitted(network, train, seed), network.observe((inputs, labels))
    monitors = fitted_monitors(usual_monitors(network, network.layers), fitted, reasons)
    found = list(trials(network, inputs, clean, panel, monitors, seed))
    found += _left_out(network, fitted, clean, seed, reasons)
    return _result(found, clean, len(fitted), level, reasons)


def _fitted(network: Network, train: Any, seed: int) -> Trace:
    """At most so many training rows, as the network sees them; those of a Trace are not observed again."""
    if not isinstance(train, Trace):
        return network.observe(labelled_rows(network, train, FITTED, seed))
    train.known_labels  # noqa: B018  # an error that says so if there are none
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    return train if len(train) <= FITTED else train[order[:FITTED].sort().values]


def _named(inputs: Inputs, network: Network, names: Iterable[str] | None) -> dict[str, PseudoUnknown]:
    there = pseudo_unknowns_for(inputs, network)
    chosen = list(there if names is None else names)
    if not chosen or (missing := [name for name in chosen if name not in there]):
        raise InputError(f"expected some of the pseudo-unknowns {sorted(there)}, got {missing or chosen}")
    return {name: there[name] for name in chosen}


def _left_out(
    network: Network, fitted: Trace, clean: Trace, seed: int, reasons: dict[str, str]
) -> list[Trial]:
    if not network.layers:
        reasons[LEFT_OUT] = "no layer is watched, and the head cannot be fitted again without features"
        return []
    found = list(class_trials(network, fitted, clean, network.layers[-1], seed))
    if not found:
        reasons[LEFT_OUT] = "fewer than three classes have rows, so none can be spared"
    return found


def _result(
    found: list[Trial], clean: Trace, fitted_rows: int, level: float, reasons: dict[str, str]
) -> Monitorability:
    table = trial_table(found, level)
    best = best_of(table)
    error = score_error(found, table, len(clean))
    score = float(best.mean())
    lower, upper = score_interval(score, error, len(best), level)
    return Monitorability(
        score=score,
        lower=lower,
        upper=upper,
        level=level,
        accuracy=float(clean.correct.double().mean()),
        inputs=len(clean),
        fitted_rows=fitted_rows,
        table=table,
        per_class=class_table(found, table, clean, level),
        left_out=reasons,
    )
