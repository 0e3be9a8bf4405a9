"""The MIRA score: how monitorable a network is, from in-distribution data alone (MIRA, Definition 2)."""

from collections.abc import Sequence
from typing import Any

from assay.data.apart import shared_rows
from assay.errors import InputError
from assay.mira.measurement import results_over
from assay.mira.perturbation import Perturbation
from assay.mira.result import MiraResult
from assay.mira.settings import MiraSettings, shows_mira_options
from assay.mira.sweep import Sweep, labelled_inputs, watching
from assay.network import Network

Layers = str | Sequence[str]


@shows_mira_options
def mira_score(
    network: Network, train: Any, test: Any, layer: Layers = "penultimate", **options: Any
) -> MiraResult:
    """How much more surprising the features of test inputs become as these cross the decision boundary.

    MIRA(f, D, l) = 1/S0 * integral of E[S(f^l(x + delta)) - S0] p(epsilon) d epsilon (Eq. 4). The features of
    `train` (DataLoader or (inputs, labels)) define what is normal. S is the surprisal of the squared
    Mahalanobis distance, S0 its mean over the clean `test` inputs. FGSM then moves these over [epsilon_min,
    2 epsilon_min], where epsilon_min is the smallest epsilon that brings accuracy down to
    `accuracy_threshold`. The integral is the trapezoid rule over `steps`.

    Eq. 3 puts the distance itself into the chi-square survival function, but it is the squared distance that
    has this distribution; form="literal" is Eq. 3 as printed. `layer` is one layer, or several to be joined.
    `assay.mira.MiraSettings` documents all options.

    Costs a pass over `train`, a backward pass over `test`, a forward pass per step and about six to find the
    range. Memory is one direction per test input and the features of one pass.
    """
    return scores(network, train, test, [layer], MiraSettings(**options))[0]


def scores(
    network: Network, train: Any, test: Any, layers: Sequence[Layers], settings: MiraSettings
) -> list[MiraResult]:
    """One result per layer (or group of joined layers), all from the same forward passes."""
    groups = [layer_group(names) for names in layers]
    return results_over(prepared_sweep(network, train, test, groups, settings), settings)


def layer_group(names: Layers) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def prepared_sweep(
    network: Network, train: Any, test: Any, groups: Sequence[Sequence[str]], *readings: MiraSettings
) -> Sweep:
    """Features fitted on `train`, and `test` ready to be moved as the first settings say.

    There is a distance for each group of layers in each reading; readings differ in distances alone.
    """
    if not groups or not all(groups):
        raise InputError("expected at least one layer, got none; pass layer='penultimate'")
    watched = watching(network, [name for group in groups for name in group])
    inputs, labels = labelled_inputs(watched, test, "test")
    fitted, settings = watched.observe(train), readings[0]
    distances = [reading.distance(group).fit(fitted) for reading in readings for group in groups]
    perturbation = Perturbation(
        settings.perturbation,
        watched,
        inputs,
        labels,
        norm=settings.norm,
        bounds=(settings.low, settings.high),
        seed=settings.seed,
    )
    return Sweep(watched, perturbation, distances, tested_on_training=shared_rows(train, test) > 0)
