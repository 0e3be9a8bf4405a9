"""precision_recall: from an output distribution and judgements to a curve."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.omniinput.annotation.audit import Audit, audit_of
from assay.omniinput.annotation.scores import Annotations, Scores, scores_of
from assay.omniinput.precision.bin_bootstrap import (
    audited_precision_resamples,
    bin_precision_resamples,
    log_density_resamples,
)
from assay.omniinput.precision.curve import PrecisionRecall, cumulative
from assay.omniinput.sampling.convergence import LEAST_EFFECTIVE
from assay.omniinput.sampling.distribution import OutputDistribution, Samples
from assay.statistics import check_level

RESAMPLES = 500
EXAMPLES = 8
DIRECTIONS = ("low", "high")


def precision_recall(
    dist: OutputDistribution,
    annotations: Annotations,
    confident: str = "low",
    *,
    audit: pd.DataFrame | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> PrecisionRecall:
    """Precision and unnormalised recall of a model over its whole input space (paper Eqs. 3, 4, appendix A).

    confident: whether the model is confident where its output is "low" (a negative log-likelihood) or "high"
    (a logit). annotations: a function of (n, *shape) inputs that returns scores from 0 to 1, which then
    judges every kept input, or a DataFrame with columns bin, score, annotator and optionally item, weight and
    repeat, as `read_annotations` returns. The curve covers the bins that were judged; more confident bins
    before the first of them are left out, as the paper does with its lowest bins, and the summary says so.

    audit: people's labels of some of the inputs that `annotations`, a function or a model as judge, scores.
    They correct it without bias (prediction-powered inference, Angelopoulos et al. 2023).
    """
    if audit is not None:
        return curve_of(dist, audit_of(dist, annotations, audit), confident, level=level, seed=seed)
    return curve_of(dist, scores_of(dist, annotations), confident, level=level, seed=seed)


def curve_of(
    dist: OutputDistribution, judgements: Scores | Audit, confident: str, level: float = 0.95, seed: int = 0
) -> PrecisionRecall:
    """The curve from checked scores, or from a judge's scores and people's."""
    check_level(level)
    scores = judgements.people if isinstance(judgements, Audit) else judgements
    count = len(dist.log_density)
    order, left_out = judged_bins(dist, scores, confident)
    generator = np.random.default_rng(seed)
    by_bin = judgements.bin_precision(count)[order]
    if isinstance(judgements, Audit):
        bin_resamples = audited_precision_resamples(judgements, count, RESAMPLES, generator)[:, :, order]
    else:
        bin_resamples = bin_precision_resamples(judgements, count, RESAMPLES, generator)[:, :, order]
    density_resamples = log_density_resamples(dist, RESAMPLES, generator)[:, order]
    precision, log_recall, log_false_positive = cumulative(dist.log_density[order], by_bin)
    precision_resamples, log_recall_resamples, _ = cumulative(density_resamples, bin_resamples)
    examples, example_scores = _examples(dist, scores)
    edges = dist.edges[1:] if confident == "low" else dist.edges[:-1]
    return PrecisionRecall(
        confident=confident,
        bins=order,
        threshold=edges[order],
        log_density=dist.log_density[order],
        bin_precision=by_bin,
        bin_resamples=bin_resamples,
        precision=precision,
        precision_resamples=precision_resamples,
        log_recall=log_recall,
        log_recall_resamples=log_recall_resamples,
        log_false_positive=log_false_positive,
        items=np.bincount(scores.item_bins, minlength=count)[order],
        trusted=_trusted(dist)[order],
        annotators=scores.annotators,
        examples=examples,
        example_scores=example_scores,
        log_size=dist.space.log_size,
        values=dist.space.values,
        shape=dist.space.shape,
        normalisation=dist.normalisation,
        output_name=dist.output_name,
        left_out=left_out,
        reasons=dist.reasons,
        level=level,
        audit=judgements.summary() if isinstance(judgements, Audit) else None,
    )


def judged_bins(dist: OutputDistribution, scores: Scores, confident: str) -> tuple[NDArray[np.int64], int]:
    """Visited bins from the most confident judged one to the least, and how many before them are left out."""
    if confident not in DIRECTIONS:
        raise InputError(
            f"expected confident='low' or 'high', got {confident!r}; choose low for a negative "
            "log-likelihood, high for a logit"
        )
    judged = np.bincount(scores.item_bins, minlength=len(dist.log_density)) > 0
    visited = np.flatnonzero(dist.visited)
    visited = visited if confident == "low" else visited[::-1]
    places = np.flatnonzero(judged[visited])
    if not len(places):
        raise InputError(
            "expected annotations of inputs in bins that the sampler visited, got none; annotate inputs of "
            "this distribution"
        )
    order = visited[places[0] : places[-1] + 1]
    without = order[~judged[order]]
    if len(without):
        shown = ", ".join(map(str, np.sort(without)[:8]))
        raise InputError(
            f"expected annotations in every visited bin between the first and the last annotated one, got "
            f"none in bin {shown}{' and others' if len(without) > 8 else ''}; annotate inputs there (labels "
            "already given stay as they are)"
        )
    return order, int(places[0])


def _trusted(dist: OutputDistribution) -> NDArray[np.bool_]:
    """Bins whose density has a finite error and enough effective samples."""
    effective = dist.diagnostics.get("effective_sample_size")
    enough = np.ones(len(dist.error), dtype=bool) if effective is None else effective >= LEAST_EFFECTIVE
    return np.asarray(np.isfinite(dist.error) & enough)


def _examples(dist: OutputDistribution, scores: Scores) -> tuple[Samples, NDArray[np.float64]]:
    """A few judged inputs per bin, those of largest weight first, if their rows are known."""
    known = np.flatnonzero(scores.item_rows >= 0)
    ranked = known[np.lexsort((-scores.item_weights[known], scores.item_bins[known]))]
    bins = scores.item_bins[ranked]
    chosen = ranked[np.arange(len(ranked)) - np.searchsorted(bins, bins) < EXAMPLES]
    rows = scores.item_rows[chosen]
    return dist.kept.rows(rows), scores.item_scores[chosen]
