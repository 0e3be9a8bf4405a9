"""The MIRA score: how monitorable a network is, from in-distribution data alone (MIRA, Definition 2)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from assay.errors import InputError
from assay.faults.norms import Norm
from assay.mira.bootstrap import interval, relative_rise, resampled_scores
from assay.mira.chi_square import surprisal
from assay.mira.crossing import first_crossing
from assay.mira.distance import FeatureDistance, Reference
from assay.mira.perturbation import Attack, Perturbation
from assay.mira.result import FeatureSample, MiraResult
from assay.mira.settings import Form, Settings
from assay.mira.sweep import Sweep, labelled, watching
from assay.mira.weights import Weight, epsilon_steps, step_weights
from assay.network import Network

Array = NDArray[np.float64]
Layers = str | Sequence[str]

_SMALL = 0.01  # where the search for the range starts, in standard deviations of the inputs
_SHOWN = 150  # inputs in the t-SNE picture, clean and perturbed each


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
    form: Form = "squared",
    tolerance: float = 5e-3,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> MiraResult:
    """MIRA(f, D, l) = 1/S0 * integral of E[S(f^l(x + delta)) - S0] p(epsilon) d epsilon (Eq. 4).

    Features of `train` (DataLoader or (inputs, labels)) say what is normal: class means and a covariance.
    S is the surprisal of the squared Mahalanobis distance (`assay.mira.surprisal`), S0 its mean over the
    clean `test` inputs. The inputs are then moved by FGSM over [epsilon_min, 2 epsilon_min], where
    epsilon_min is the smallest perturbation that brings accuracy down to `accuracy_threshold`.

    Where this differs from the paper: Eq. 3 puts the distance itself into the chi-square survival
    function, but it is the squared distance that has this distribution; form="literal" is Eq. 3 as it
    stands. The integral is the trapezoid rule over `steps` values.

    layer: a layer, or several, whose features are then joined. epsilon_range: instead of the search.
    weight: p(epsilon), see `assay.mira.Weight`. perturbation: "fgsm", "pgd", "random_sign" or a function
    (network, inputs, labels, epsilon) -> inputs; norm: "linf", "l2", "l1"; low, high: bounds that moved
    inputs are cut to (Eq. 2 has none). covariance: "tied" or "per_class"; estimator: "empirical",
    "ledoit_wolf" or "oas"; reference: distance to the "nearest" class or the "predicted" one. tolerance:
    of epsilon_min, relative. resamples, confidence: of the bootstrap interval.

    Costs a forward pass over `train`, one backward pass over `test`, a forward pass for each step and about
    six for the range. Memory is one direction per test input and the features of one pass.
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
        form=form,
        tolerance=tolerance,
        resamples=resamples,
        confidence=confidence,
    )
    return scores(network, train, test, [layer], settings)[0]


def scores(
    network: Network, train: Any, test: Any, layers: Sequence[Layers], settings: Settings
) -> list[MiraResult]:
    """One result per layer (or group of joined layers), all from the same forward passes."""
    groups = [(names,) if isinstance(names, str) else tuple(names) for names in layers]
    return results_over(swept(network, train, test, groups, settings), settings)


def results_over(sweep: Sweep, settings: Settings) -> list[MiraResult]:
    """The range, the steps and what they give, for every distance of the sweep."""
    low, high = settings.epsilon_range or _found_range(sweep, settings)
    epsilons = epsilon_steps(low, high, settings.steps)
    weights = step_weights(epsilons, settings.weight)
    for epsilon in (0.0, *epsilons):
        sweep.at(float(epsilon))
    return [
        _result(sweep, number, distance, epsilons, weights, settings)
        for number, distance in enumerate(sweep.distances)
    ]


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


def _found_range(sweep: Sweep, settings: Settings) -> tuple[float, float]:
    """[epsilon_min, 2 epsilon_min] (Section 4.2)."""
    clean, limit = sweep.at(0.0).accuracy, sweep.perturbation.limit()
    guess = _guessed_epsilon(sweep, settings, limit) if clean > settings.accuracy_threshold else None
    found = first_crossing(
        lambda epsilon: sweep.at(epsilon).accuracy,
        clean,
        settings.accuracy_threshold,
        start=guess or _SMALL * sweep.perturbation.scale(),
        limit=limit,
        growth=1.1 if guess else 2.0,
        tolerance=settings.tolerance,
    )
    return found.epsilon, 2 * found.epsilon


def _guessed_epsilon(sweep: Sweep, settings: Settings, limit: float) -> float | None:
    """epsilon_min of a sample of the test inputs; None where a sample is no help."""
    pilot = sweep.pilot(settings.seed)
    if pilot is None:
        return None
    try:
        return first_crossing(
            pilot.accuracy,
            pilot.accuracy(0.0),
            settings.accuracy_threshold,
            start=_SMALL * sweep.perturbation.scale(),
            limit=limit,
            tolerance=0.02,
        ).epsilon
    except InputError:
        return None  # its accuracy starts too low or never falls far enough; all inputs decide


def surprisals(squared: Array, dimensions: int, form: Form) -> Array:
    """Eq. 3, of the squared distance or, literally, of the distance."""
    statistic = squared if form == "squared" else np.sqrt(squared)
    return np.asarray(surprisal(statistic, dimensions))


def _result(
    sweep: Sweep,
    number: int,
    distance: FeatureDistance,
    epsilons: Array,
    weights: Array,
    settings: Settings,
) -> MiraResult:
    readings = [sweep.at(float(epsilon)) for epsilon in epsilons]
    clean, *moved = (
        surprisals(reading.distances[number].numpy(), distance.dimensions, settings.form)
        for reading in (sweep.at(0.0), *readings)
    )
    _check_baseline(float(clean.mean()), distance, settings.form)
    # The integral is linear, so one number per input is enough for the score, its interval and the classes.
    integrated = np.einsum("k,kn->n", weights, np.stack(moved))
    draws = resampled_scores(integrated, clean, settings.resamples, settings.seed)
    low = float(epsilons[0])
    return MiraResult(
        score=float(integrated.mean() / clean.mean() - 1),
        epsilon_min=low,
        epsilon_max=float(epsilons[-1]),
        baseline=float(clean.mean()),
        curve=pd.DataFrame(
            {
                "epsilon": epsilons,
                "weight": weights,
                "surprisal": [float(values.mean()) for values in moved],
                "accuracy": [reading.accuracy for reading in readings],
            }
        ),
        per_class=_per_class(sweep, integrated, clean, low, settings),
        interval=interval(draws, settings.confidence),
        confidence=settings.confidence,
        accuracy=sweep.at(0.0).accuracy,
        accuracy_threshold=settings.accuracy_threshold,
        layer=distance.name,
        dimensions=distance.dimensions,
        fitted_rows=distance.rows,
        warnings=distance.warnings,
        draws=draws,
        sample=_sample(sweep, distance, low, settings.seed),
    )


def _check_baseline(baseline: float, distance: FeatureDistance, form: Form) -> None:
    if not baseline > 0:
        remedy = "use form='squared'" if form == "literal" else "choose a layer whose features vary"
        raise InputError(
            f"expected clean inputs with a surprisal above 0 at layer {distance.name}, got {baseline:g} on "
            f"average ({distance.dimensions} dimensions); {remedy}"
        )


def _per_class(sweep: Sweep, moved: Array, clean: Array, low: float, settings: Settings) -> pd.DataFrame:
    """Definition 2 on the inputs of each label, with their own baseline; NaN where that is 0."""
    labels = sweep.perturbation.labels
    rows = []
    for label in np.unique(labels.numpy()).tolist():
        own = (labels == label).numpy()
        draws = resampled_scores(moved[own], clean[own], settings.resamples, settings.seed)
        lower, upper = interval(draws, settings.confidence)
        rows.append(
            {
                "label": label,
                "inputs": int(own.sum()),
                "baseline": float(clean[own].mean()),
                "score": float(
                    relative_rise(moved[own].mean(keepdims=True), clean[own].mean(keepdims=True))[0]
                ),
                "lower": lower,
                "upper": upper,
                "accuracy": float(sweep.at(0.0).correct.numpy()[own].mean()),
                "accuracy_at_epsilon_min": float(sweep.at(low).correct.numpy()[own].mean()),
            }
        )
    return pd.DataFrame(rows)


def _sample(sweep: Sweep, distance: FeatureDistance, epsilon: float, seed: int) -> FeatureSample:
    count = len(sweep)
    chosen = np.random.default_rng(seed).choice(count, min(_SHOWN, count), replace=False)
    rows = torch.from_numpy(np.sort(chosen))
    before, after = (sweep.observe(size, rows) for size in (0.0, epsilon))
    return FeatureSample(
        distance.features(before), distance.features(after), sweep.perturbation.labels[rows], after.correct
    )
