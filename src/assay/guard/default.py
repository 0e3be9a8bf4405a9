"""The guard to start with: the input, the features and the output of a network, each watched by its own
monitor, and their evidence combined by what each sees of faint faults of this network's own inputs.

Monitors, combination and what teaches it were decided on two networks, a LeNet on GTSRB and an MLP on
Sensorless (`benchmarks/default_guard.py choose`), and measured on others (docs/default-guard.md).
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.pseudo_fault import pseudo_faults
from assay.guard.group_threshold import group_numbers
from assay.guard.guard import Guard
from assay.monitors.gen import GEN
from assay.monitors.input_statistics import InputStatistics
from assay.monitors.knn import KNN
from assay.monitors.likelihood_ratio import LikelihoodRatio
from assay.monitors.monitor import Monitor
from assay.monitors.parts.head import HeadFit
from assay.monitors.parts.joint_fit import fit_together
from assay.monitors.relative_mahalanobis import RelativeMahalanobis
from assay.monitors.vim import ViM
from assay.network import ENCODED, Network, length, rows
from assay.trace import Inputs, Trace

INPUT, NEIGHBOURS, RESIDUAL, CLASSES, OUTPUT = "input", "neighbours", "residual", "classes", "output"
"""The members' names: what is unusual where one of them objects."""

WIDE = 768
"""Features from which ViM takes the place of KNN: a bank of such rows is large, and ViM's rule for how many
directions to leave out begins here."""

NUMBERS = 2**18
"""Numbers that a member keeps, about: a megabyte in single precision."""

FEWEST = 100
"""Rows with which a guard can be fitted and calibrated at all."""

CALIBRATING = 0.25
"""Share of the data that sets the threshold; the rest fits the monitors."""

TEACHING = 300
"""Inputs, at most, that are made faulty to teach the monitor: a forward pass over them for each kind."""


def default_guard(
    network: Network,
    data: Any,
    false_alarm_rate: float = 0.05,
    *,
    train: Any = None,
    groups: Any = None,
    level: float | None = None,
    seed: int = 0,
) -> Guard:
    """A guard of `network` that is fitted and calibrated on `data`, which the network was not trained on.

    `data` are a DataLoader, (inputs, labels) or inputs; labels are used where there are some. A quarter, at
    random by `seed`, sets the threshold. With `train`, the network's own training data, the monitors are
    fitted on these, and all of `data` is left for p-values and the threshold. `groups` says which rows of
    `data` belong together, such as frames of one track: they are then not torn apart, and the promise holds
    on average over groups. `level` as in `Guard.calibrate`.

    Members: "input" (InputStatistics), "neighbours" (KNN; "residual", ViM, from 768 features), "classes"
    (RelativeMahalanobis) and "output" (GEN), as far as the network has features. `LikelihoodRatio` combines
    their evidence. It is taught by faint pseudo-faults, made of at most 300 of the inputs themselves, so that
    members weigh what they see on this very network; that costs about 20 forward passes over these inputs.
    `verdict.reasons` says which member raised an alarm.
    """
    watched = network.observe(data, keep_inputs=ENCODED)
    if len(watched) < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} inputs to fit and calibrate on, got {len(watched)}; pass more"
        )
    numbers = None if groups is None else group_numbers(groups, len(watched))
    share = CALIBRATING if train is None else 0.5
    rest, held = _apart(len(watched), numbers, share, seed)
    learned = None if train is None else network.observe(train, keep_inputs=ENCODED)
    monitor = fitted_monitor(network, watched[rest], learned, seed=seed)
    guard = Guard(network, monitor)
    held_groups = None if numbers is None else numbers[held]
    return guard.calibrate(watched[held], false_alarm_rate, level=level, groups=held_groups)


def fitted_monitor(
    network: Network, trace: Trace, train: Trace | None = None, *, seed: int = 0
) -> LikelihoodRatio:
    """The default guard's monitor, fitted on a Trace with its inputs, and taught by faults made of these; its
    members are fitted on the training data, where there are some."""
    if train is None:
        monitor = default_monitor(network, trace, seed=seed).fit(trace)
    else:
        monitor = default_monitor(network, train, seed=seed, prefit=True)
        fit_together(monitor.members, iter([train]))
        monitor.fit(trace)
    return monitor if trace.inputs is None else taught(monitor, network, trace.inputs, seed)


def default_monitor(
    network: Network, trace: Trace, *, seed: int = 0, prefit: bool = False
) -> LikelihoodRatio:
    """The default guard's monitor, to be fitted on Traces like this one, which has its inputs."""
    members: dict[str, Monitor] = {}
    if trace.inputs is not None:
        limit = _rows_within(NUMBERS // 4, _width(trace.inputs))
        members[INPUT] = InputStatistics.of(network, limit=limit, seed=seed)
    if network.layers:
        layer = network.layers[0]
        width = trace.layer(layer).shape[1]
        if width >= WIDE and _feeds_the_head(trace, layer):
            members[RESIDUAL] = ViM(layer=layer, seed=seed)
        else:
            members[NEIGHBOURS] = KNN(layer=layer, k=10, limit=_rows_within(NUMBERS, width), seed=seed)
        members[CLASSES] = RelativeMahalanobis(layer=layer, estimator="oas")
    members[OUTPUT] = GEN()
    return LikelihoodRatio(list(members.values()), names=list(members), prefit=prefit, seed=seed)


def taught(monitor: LikelihoodRatio, network: Network, inputs: Inputs, seed: int) -> LikelihoodRatio:
    """Taught by pseudo-faults of some inputs; as it was fitted where none can be made or run."""
    order = torch.randperm(length(inputs), generator=torch.Generator().manual_seed(seed))
    some = rows(inputs, order[:TEACHING].sort().values)
    try:
        return monitor.teach(_answered(network, pseudo_faults(some, network, seed=seed)))
    except InputError as error:
        monitor.remedy_ = (
            f"it weighs its members equally, since faults of these inputs taught nothing ({error})"
        )
        return monitor


def _answered(network: Network, made: Iterator[tuple[str, Inputs]]) -> Iterator[Trace]:
    """What the network does on these inputs, without those that it refuses, such as categories that are
    none."""
    for _, faulty in made:
        with suppress(ValueError, TypeError, LookupError, RuntimeError):
            yield network.observe(faulty, keep_inputs=ENCODED, allow_nonfinite=True)


def _apart(rows: int, groups: Tensor | None, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """The numbers of the rows to fit on and of those to calibrate on; no group is in both."""
    generator = np.random.default_rng(seed)
    units = torch.arange(rows) if groups is None else groups
    count = int(units.max()) + 1
    held = np.zeros(count, dtype=np.bool_)
    held[generator.permutation(count)[: round(share * count)]] = True
    chosen = torch.from_numpy(held)[units]
    return (~chosen).nonzero().flatten(), chosen.nonzero().flatten()


def _rows_within(numbers: int, width: int) -> int:
    """Rows of this width that keep to so many numbers: at most 2000, and at least 100, whatever they take."""
    return max(100, min(2000, numbers // width))


def _width(inputs: Inputs) -> int:
    """Numbers that InputStatistics keeps of a row, about: those of a table or a text, a few of an image."""
    named = {"": inputs} if isinstance(inputs, Tensor) else inputs
    return sum(part[0].numel() if part.ndim < 3 else 16 for part in named.values())


def _feeds_the_head(trace: Trace, layer: str) -> bool:
    """Whether the layer determines the logits linearly, as ViM needs."""
    features = trace.layer(layer)
    head = HeadFit(layer, features.shape[1], trace.logits.shape[1])
    try:
        head.add(features, trace.logits)
        head.head()
    except InputError:
        return False
    return True
