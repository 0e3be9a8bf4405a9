"""The MIRA score: how monitorable a network is, from in-distribution data alone (MIRA, Definition 2)."""

from collections.abc import Sequence
from typing import Any

from assay.errors import InputError
from assay.faults.norms import Norm
from assay.mira.distance import Reference, Still
from assay.mira.measurement import results_over
from assay.mira.perturbation import Attack, Perturbation
from assay.mira.result import MiraResult
from assay.mira.settings import Form, Settings
from assay.mira.sweep import Sweep, labelled, watching
from assay.mira.weights import Weight
from assay.network import Network

Layers = str | Sequence[str]


def mira_score(
    network: Network,
    train: Any,
    test: Any,
    layer: Layers = "penultimate",
    accuracy_threshold: float = 0.5,
    steps: int = 30,
    seed: int = 0,
    *,
    epsilon_range: tuple[float, float] | None = None,
    weight: Weight | None = None,
    perturbation: Attack = "fgsm",
    norm: Norm = "linf",
    low: float | None = None,
    high: float | None = None,
    covariance: str = "tied",
    estimator: str = "empirical",
    reference: Reference = "nearest",
    still: Still = "drop",
    form: Form = "squared",
    tolerance: float = 5e-3,
    resamples: int = 1000,
    level: float = 0.95,
) -> MiraResult:
    """MIRA(f, D, l) = 1/S0 * integral of E[S(f^l(x + delta)) - S0] p(epsilon) d epsilon (Eq. 4).

    Features of `train` (DataLoader or (inputs, labels)) say what is normal. S is the surprisal of the squared
    Mahalanobis distance, S0 its mean over the clean `test` inputs, which FGSM then moves over [epsilon_min,
    2 epsilon_min]; epsilon_min is the smallest epsilon that brings accuracy down to `accuracy_threshold`.
    Eq. 3 puts the distance itself into the chi-square survival function, but the squared distance has this
    distribution; form="literal" is Eq. 3 as it stands. The integral is the trapezoid rule over `steps`.

    layer: one, or several to be joined. epsilon_range: instead of the search. weight: p(epsilon), a `Weight`.
    perturbation: "fgsm", "pgd", "random_sign" or a function (network, inputs, labels, epsilon) -> inputs.
    norm: "linf", "l2", "l1". low, high: bounds of moved inputs. covariance: "tied", "per_class". estimator:
    "empirical", "ledoit_wolf", "oas". reference: the "nearest" or the "predicted" class. still: "drop" or
    "shrink" directions in which training features do not vary. tolerance: of epsilon_min, relative.
    Costs a pass over `train`, a backward pass over `test`, a forward pass per step and about six for the
    range; memory is one direction per test input and the features of one pass.
    """
    settings = Settings(
        accuracy_threshold=accuracy_threshold,
        steps=steps,
        seed=seed,
        epsilon_range=epsilon_range,
        weight=weight,
        perturbation=perturbation,
        norm=norm,
        low=low,
        high=high,
        covariance=covariance,
        estimator=estimator,
        reference=reference,
        still=still,
        form=form,
        tolerance=tolerance,
        resamples=resamples,
        level=level,
    )
    return scores(network, train, test, [layer], settings)[0]


def scores(
    network: Network, train: Any, test: Any, layers: Sequence[Layers], settings: Settings
) -> list[MiraResult]:
    """One result per layer (or group of joined layers), all from the same forward passes."""
    groups = [(names,) if isinstance(names, str) else tuple(names) for names in layers]
    return results_over(swept(network, train, test, groups, settings), settings)


def swept(
    network: Network, train: Any, test: Any, groups: Sequence[Sequence[str]], settings: Settings
) -> Sweep:
    """Features fitted on `train`, and `test` ready to be moved."""
    if not groups or not all(groups):
        raise InputError("expected at least one layer, got none; pass layer='penultimate'")
    watched = watching(network, [name for group in groups for name in group])
    inputs, labels = labelled(watched, test, "test")
    fitted = watched.observe(train)
    distances = [settings.distance(group).fit(fitted) for group in groups]
    perturbation = Perturbation(
        settings.perturbation,
        watched,
        inputs,
        labels,
        norm=settings.norm,
        bounds=(settings.low, settings.high),
        seed=settings.seed,
    )
    return Sweep(watched, perturbation, distances)
