"""From a sweep to results, layer by layer (MIRA, Eqs. 3 and 4)."""

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from assay.errors import InputError
from assay.mira.chi_square import surprisal
from assay.mira.distance import FeatureDistance
from assay.mira.perturbation_range import found_range
from assay.mira.result import FeatureSample, MiraResult
from assay.mira.settings import MiraSettings, SurprisalForm
from assay.mira.sweep import Sweep
from assay.mira.weights import epsilon_steps, step_weights
from assay.statistics import percentile_interval, resampled_means

Array = NDArray[np.float64]

_SHOWN = 150  # inputs in the t-SNE figure, clean and perturbed each


def results_over(sweep: Sweep, settings: MiraSettings) -> list[MiraResult]:
    """A result for every distance of the sweep, over one range and its steps."""
    low, high = settings.epsilon_range or found_range(sweep, settings)
    epsilons = epsilon_steps(low, high, settings.steps)
    weights = step_weights(epsilons, settings.weight)
    for epsilon in (0.0, *epsilons):
        sweep.at(float(epsilon))
    return [
        _result(sweep, number, distance, (low, high), weights, settings)
        for number, distance in enumerate(sweep.distances)
    ]


def surprisals(squared: Array, dimensions: int, form: SurprisalForm) -> Array:
    """Eq. 3, of the squared distance or, as printed, of the distance."""
    statistic = squared if form == "squared" else np.sqrt(squared)
    return np.asarray(surprisal(statistic, dimensions))


def resampled_scores(moved: Array, clean: Array, resamples: int, seed: int) -> Array:
    """mean(moved) / mean(clean) - 1 over test inputs drawn with replacement, `resamples` times.

    Networks measured on one test set with one seed share their draws, so that they are compared in pairs.
    """
    means = resampled_means(moved + 1j * clean, resamples, seed)  # one draw for the pair
    return relative_rise(means.real, means.imag)


def relative_rise(moved: Array, clean: Array) -> Array:
    """moved / clean - 1; NaN where clean is 0, which is no baseline."""
    ratio: Array = np.divide(moved, clean, out=np.full_like(moved, np.nan), where=clean > 0)
    return ratio - 1


def _result(
    sweep: Sweep,
    number: int,
    distance: FeatureDistance,
    bounds: tuple[float, float],
    weights: Array,
    settings: MiraSettings,
) -> MiraResult:
    epsilons = epsilon_steps(*bounds, settings.steps)
    readings = [sweep.at(float(epsilon)) for epsilon in epsilons]
    clean, *moved = (
        surprisals(reading.distances[number].numpy(), distance.dimensions, settings.form)
        for reading in (sweep.at(0.0), *readings)
    )
    _check_baseline(float(clean.mean()), distance, settings.form)
    # The integral is linear: one number per input is enough for the score, its interval and the classes.
    integrated = np.einsum("k,kn->n", weights, np.stack(moved))
    draws = resampled_scores(integrated, clean, settings.resamples, settings.seed)
    return MiraResult(
        score=float(integrated.mean() / clean.mean() - 1),
        epsilon_min=bounds[0],
        epsilon_max=bounds[1],
        baseline=float(clean.mean()),
        curve=pd.DataFrame(
            {
                "epsilon": epsilons,
                "weight": weights,
                "surprisal": [float(values.mean()) for values in moved],
                "accuracy": [reading.accuracy for reading in readings],
            }
        ),
        per_class=_per_class(sweep, integrated, clean, bounds[0], settings),
        interval=percentile_interval(draws, settings.level),
        level=settings.level,
        accuracy=sweep.at(0.0).accuracy,
        accuracy_threshold=settings.accuracy_threshold,
        layer=distance.name,
        dimensions=distance.dimensions,
        fitted_rows=distance.rows,
        warnings=(
            distance.warnings
            + _outlier_warning(integrated, clean)
            + _order_warning(sweep)
            + _training_warning(sweep)
        ),
        draws=draws,
        sample=_sample(sweep, distance, bounds[0], settings.seed),
    )


def _check_baseline(baseline: float, distance: FeatureDistance, form: SurprisalForm) -> None:
    if not baseline > 0:
        remedy = "use form='squared'" if form == "literal" else "choose a layer whose features vary"
        raise InputError(
            f"expected clean inputs with a surprisal above 0 at layer {distance.name}, got {baseline:g} on "
            f"average ({distance.dimensions} dimensions); {remedy}"
        )


def _training_warning(sweep: Sweep) -> tuple[str, ...]:
    """The paper has one dataset; on unseen rows the baseline is higher."""
    if not sweep.tested_on_training:
        return ()
    return ("test inputs are the training inputs, which flatters the score; pass other rows",)


def _order_warning(sweep: Sweep) -> tuple[str, ...]:
    hint = sweep.at(0.0).order_hint
    return (hint,) if hint else ()


def _outlier_warning(moved: Array, clean: Array) -> tuple[str, ...]:
    """A sentence if the farthest hundredth of clean inputs dominates the baseline, and so the score.

    For Gaussian features it makes up 6 % of the baseline.
    """
    count = math.ceil(len(clean) / 100)
    rest = np.argsort(clean)[:-count]
    share = 1 - clean[rest].sum() / clean.sum()
    if share < 0.3 or not clean[rest].any():
        return ()
    without = moved[rest].mean() / clean[rest].mean() - 1
    return (
        f"{count} of {len(clean)} clean test inputs carry {share:.0%} of the baseline, and without them the "
        f"score would be {without:.4g}; look at them before you trust the score",
    )


def _per_class(sweep: Sweep, moved: Array, clean: Array, low: float, settings: MiraSettings) -> pd.DataFrame:
    """Definition 2 on the inputs of each label, with their own baseline; NaN where that is 0."""
    labels = sweep.perturbation.labels
    rows = []
    for label in np.unique(labels.numpy()).tolist():
        own = (labels == label).numpy()
        draws = resampled_scores(moved[own], clean[own], settings.resamples, settings.seed)
        lower, upper = percentile_interval(draws, settings.level)
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
