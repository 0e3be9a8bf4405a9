"""LikelihoodRatio is the ratio of the densities that its alternatives state; examples teach it these."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import expon

import assay
from assay import Trace
from assay.errors import InputError, NotFittedError
from assay.monitors import KNN, Energy, LikelihoodRatio, Rule


def trace_of(seed, rows=2000, shift=(0.0, 0.0, 0.0)):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, 3, generator=generator) + torch.tensor(shift)
    return Trace(torch.randn(rows, 3, generator=generator), {"penultimate": features})


def column(number):
    """One feature itself as the score: independent members with known p-values."""
    return Rule(
        lambda trace: trace.layer("penultimate")[:, number], layers=("penultimate",), needs_inputs=False
    )


def fitted(columns=(0, 1, 2)):
    reference = trace_of(0)
    members = [column(number).fit(reference) for number in columns]
    return LikelihoodRatio(members, prefit=True, limit=None).fit(reference)


def stated(evidence, alternatives, shares):
    """ln of the mixture's density over that of clean inputs, by scipy."""
    ratios = [
        np.log(share)
        + sum(
            expon.logpdf(row, scale=mean) - expon.logpdf(row)
            for row, mean in zip(evidence, means, strict=True)
        )
        for means, share in zip(alternatives, shares, strict=True)
    ]
    return logsumexp(ratios, axis=0)


def test_the_score_is_the_ratio_of_densities_that_the_alternatives_state():
    monitor, asked = fitted(), trace_of(1, 100, (1.0, 0.0, -1.0))
    evidence = monitor.evidence(asked).numpy()
    each_alone = [[4, 1, 1], [1, 4, 1], [1, 1, 4]]
    np.testing.assert_allclose(monitor.score(asked), stated(evidence, each_alone, [1 / 3] * 3), atol=1e-12)
    examples = [trace_of(2, 500, (2.0, 0.0, 0.0)), trace_of(3, 500, (1.0, 0.0, 1.0))]
    monitor.teach(examples)
    means = [np.maximum(monitor.evidence(trace).numpy().mean(axis=1), 1) for trace in examples]
    caught = np.mean([(monitor.evidence(trace).numpy() > np.log(20)).mean(axis=1) for trace in examples], 0)
    alone = np.maximum(caught - 0.05, 0.005)
    shares = [*(0.5 * alone / alone.sum()), 0.25, 0.25]
    np.testing.assert_allclose(
        monitor.score(asked), stated(evidence, [*each_alone, *means], shares), rtol=1e-12
    )


def test_its_mean_over_clean_inputs_is_one_so_that_it_bounds_a_p_value():
    monitor = fitted()
    monitor.teach([trace_of(2, 500, (1.0, 1.0, 0.0))])
    evidence = torch.from_numpy(np.random.default_rng(0).exponential(size=(3, 200_000)))
    ratios = monitor.combined(evidence).exp().numpy()
    assert ratios.mean() == pytest.approx(1, abs=4 * ratios.std() / np.sqrt(len(ratios)))
    for level in (0.05, 0.01, 0.001):
        assert (1 / ratios <= level).mean() <= level


def test_what_was_taught_is_seen_better_and_a_member_that_sees_nothing_counts_less():
    untaught, taught = fitted(), fitted()
    kind = (0.8, 0.8, 0.0)
    taught.teach([trace_of(seed, 1000, kind) for seed in (2, 3)])
    clean, faulty = trace_of(4, 4000), trace_of(5, 4000, kind)

    def caught(monitor):
        threshold = monitor.score(clean).quantile(0.95)
        return float((monitor.score(faulty) > threshold).double().mean())

    # Shares of 4000 have errors of 0.008.
    assert caught(taught) > caught(untaught) + 0.03
    lonely = taught.shares_[:3]
    assert lonely[2] < lonely[0] / 10
    assert taught.shares_.sum() == pytest.approx(1)


def test_teaching_is_kept_by_files_and_left_behind_by_another_fit(tmp_path):
    monitor, trace = LikelihoodRatio([KNN(), Energy()]), trace_of(0, 300)
    plain = monitor.fit(trace).score(trace)
    monitor.teach([trace_of(1, 300, (2.0, 0.0, 0.0))])
    assert not torch.equal(monitor.score(trace), plain)
    assay.save(monitor, tmp_path / "monitor")
    assert torch.equal(assay.load(tmp_path / "monitor").score(trace), monitor.score(trace))
    assert torch.equal(monitor.fit(trace).score(trace), plain)


def test_what_teaches_nothing_is_refused_and_leaves_the_monitor_as_it_was():
    with pytest.raises(NotFittedError):
        LikelihoodRatio([column(0)]).teach([trace_of(0)])
    monitor = fitted()
    before = monitor.score(trace_of(1))
    for examples in ([], [Trace(torch.zeros(2, 3), {"penultimate": torch.full((2, 3), torch.nan)})]):
        with pytest.raises(InputError, match="expected Traces of faulty inputs"):
            monitor.teach(examples)
    assert torch.equal(monitor.score(trace_of(1)), before)
