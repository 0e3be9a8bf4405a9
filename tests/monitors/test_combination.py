"""Combinations are p-values: they keep their promise in distribution, and agree with scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import cauchy as cauchy_distribution
from scipy.stats import chi2, combine_pvalues, gamma, genpareto, hmean

import assay
from assay import Trace
from assay.errors import InputError, NotFittedError, StorageError
from assay.monitors import (
    ActivationBox,
    AllOf,
    AnyOf,
    GaussianInterval,
    InputRange,
    MaxSoftmax,
    Monitor,
    Rule,
    Standardised,
)
from assay.monitors.combination import _harmonic_factor
from assay.monitors.parts.reference_scores import evidence_of, fitted_tail, no_tail
from assay.monitors.parts.upper_gamma import log_upper_gamma


class Feature(Monitor):
    """One feature itself as the score: the p-values are then known."""

    def __init__(self, column=0, layer="penultimate"):
        self.column = column
        self.layer = layer

    def _fit(self, traces):
        self.rows_ = sum(len(trace) for trace in traces)

    def _score(self, trace):
        return trace.layer(self.layer)[:, self.column]


def trace_of(seed, rows=400, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, 3, generator=generator) + shift
    logits = torch.randn(rows, 3, generator=generator)
    return Trace(logits, {"penultimate": features}, inputs=torch.rand(rows, 2, generator=generator))


def p_values(reference, scores):
    return np.array([(1 + (reference >= score).sum()) / (len(reference) + 1) for score in scores])


def expected_p_values(reference, asked, columns=(0, 1)):
    known, new = reference.features["penultimate"].numpy(), asked.features["penultimate"].numpy()
    return np.stack([p_values(known[:, column], new[:, column]) for column in columns])


def test_member_p_values_equal_the_definition():
    reference, asked = trace_of(0, 99), trace_of(1, 50, shift=1.0)
    members = [Feature(0).fit(reference), Feature(1).fit(reference)]

    def fitted(kind, members, **options):
        return kind(members, prefit=True, tail=False, **options).fit(reference)

    combination = fitted(AnyOf, members)
    p = expected_p_values(reference, asked)
    np.testing.assert_allclose(combination.p_values(asked), p)
    np.testing.assert_allclose(combination.score(asked), -np.log(2 * p.min(axis=0)))
    np.testing.assert_allclose(fitted(AllOf, members).score(asked), -np.log(p.max(axis=0)))
    fisher = fitted(Standardised, members).score(asked)
    scipy = [-np.log(combine_pvalues(column, "fisher").pvalue) for column in p.T]
    np.testing.assert_allclose(fisher, scipy, atol=1e-12)
    mean = fitted(Standardised, members, combine="mean").score(asked)
    np.testing.assert_allclose(mean, -np.log(2 * p.mean(axis=0)))
    harmonic = fitted(Standardised, members, combine="harmonic").score(asked)
    np.testing.assert_allclose(harmonic, -np.log(2 * hmean(p, axis=0)))
    weighted = fitted(Standardised, members, combine="harmonic", weights=(3, 1)).score(asked)
    np.testing.assert_allclose(weighted, -np.log(2 * 1.5 / (0.75 / p[0] + 0.25 / p[1])))
    capped = np.minimum(p, 99 / 100)
    cauchy = fitted(Standardised, members, combine="cauchy").score(asked)
    expected = -cauchy_distribution.logsf((1 / np.tan(np.pi * capped)).mean(axis=0))
    np.testing.assert_allclose(cauchy, expected, atol=1e-9)
    for combine in ("fisher", "brown", "mean", "harmonic", "cauchy"):
        alone = fitted(Standardised, members[0], combine=combine).score(asked)
        np.testing.assert_allclose(alone, -np.log(capped[0] if combine == "cauchy" else p[0]), atol=1e-12)


def test_browns_method_is_fishers_sum_against_a_scaled_chi_square():
    reference, asked = trace_of(0, 500), trace_of(1, 50, shift=1.0)
    members = [Feature(0).fit(reference), Feature(0).fit(reference), Feature(1).fit(reference)]
    brown = Standardised(members, combine="brown", prefit=True).fit(reference)
    evidence = brown.evidence(reference).numpy()
    # Moments of -2 sum ln p: mean 2 M; variances are 4 each, covariances those of the reference rows.
    covariance = np.cov(2 * evidence, bias=True)
    variance = 4 * 3 + covariance.sum() - np.trace(covariance)
    scale, degrees = variance / (2 * 6), 2 * 6**2 / variance
    sums = 2 * brown.evidence(asked).sum(dim=0).numpy()
    np.testing.assert_allclose(brown.score(asked), -chi2.logsf(sums / scale, degrees), rtol=1e-9)
    # Two members are one and the same: about four degrees of freedom are left of six.
    assert 3.3 < degrees < 4.3
    fisher = Standardised(members, prefit=True).fit(reference).score(asked)
    assert (fisher.argsort() == brown.score(asked).argsort()).all()
    assert (brown.score(asked) < fisher).double().mean() > 0.7


def test_the_upper_gamma_function_is_scipys_and_goes_on_where_it_underflows():
    values = np.concatenate([np.linspace(0, 12, 200), np.geomspace(12, 700, 50)])
    for shape in (0.8, 1.0, 1.7, 3.0, 6.4, 12.0):
        found = log_upper_gamma(shape, torch.from_numpy(values)).numpy()
        np.testing.assert_allclose(found, gamma.logsf(values, shape), rtol=1e-10, atol=1e-14)
    far = log_upper_gamma(2.5, torch.tensor([1e4, 1e8], dtype=torch.float64)).numpy()
    assert np.isfinite(far).all()
    np.testing.assert_allclose(far, -np.array([1e4, 1e8]), rtol=1e-2)


def test_the_factor_of_the_harmonic_mean_is_that_of_vovk_and_wang():
    # It never exceeds e ln K, and nears ln K as K grows.
    factors = [_harmonic_factor(count) for count in (3, 5, 10, 100, 10_000)]
    assert all(
        factor <= np.e * np.log(count) for factor, count in zip(factors, (3, 5, 10, 100, 10_000), strict=True)
    )
    assert factors == sorted(factors)
    assert _harmonic_factor(10**6) / np.log(10**6) < _harmonic_factor(100) / np.log(100)


def dependent(kind, rows, generator):
    """Three columns of uniform p-values: independent, all the same, or one the opposite of another."""
    p = generator.random((3, rows))
    if kind == "same":
        p[:] = p[0]
    if kind == "opposite":
        p[1] = 1 - p[0]
    return p


@pytest.mark.parametrize("kind", ["independent", "same", "opposite"])
@pytest.mark.parametrize(
    "combine", ["fisher", "brown", "cauchy", "harmonic", "weighted", "root", "weighted root", "mean"]
)
def test_combined_p_values_of_uniform_ones(kind, combine):
    options = {"combine": combine}
    if combine.startswith("weighted"):
        options = {"combine": "root" if "root" in combine else "harmonic", "weights": (3, 1, 1)}
    generator = np.random.default_rng(0)
    evidence = torch.from_numpy(-np.log(dependent(kind, 40_000, generator)))
    combination = Standardised([Feature(0), Feature(1), Feature(2)], **options)
    combination.reference_ = torch.zeros(3, 10**6)
    combination._weigh(torch.from_numpy(-np.log(dependent(kind, 40_000, generator))))
    p = torch.exp(-combination.combined(evidence)).numpy()
    # Standard errors of a share of 40,000: 0.0011 at 0.05, 0.0005 at 0.01.
    for level, allowed in ((0.05, 0.004), (0.01, 0.002)):
        share = (p <= level).mean()
        if combine not in ("fisher", "brown", "cauchy") or kind == "independent":
            assert share < level + allowed
        if kind == "independent" and combine in ("fisher", "brown", "cauchy"):
            assert share > level - allowed  # exact, not only valid
        if kind == "same" and combine == "fisher":
            assert share > 1.3 * level  # what Brown's method corrects
        if kind == "same" and combine in ("brown", "cauchy"):
            assert share == pytest.approx(level, abs=allowed)


def test_the_tail_is_a_generalised_pareto_distribution():
    for shape in (0.2, 0.5, 1.0):
        draws = genpareto.rvs(shape, scale=2.0, size=20_000, random_state=1)
        reference = torch.from_numpy(np.sort(draws))
        largest, scale, found = fitted_tail(reference).tolist()
        # Excesses over a threshold have the same shape, and a scale grown by shape * threshold.
        assert found == pytest.approx(shape, abs=0.1)  # 2,000 excesses: a standard error of (1 + shape) / 45
        assert scale == pytest.approx(2.0 + shape * largest, rel=0.2)  # those of scale and shape together
        asked = torch.tensor([largest + 1, 3 * largest, 1e4 * largest], dtype=torch.float64)
        expected = genpareto.logsf(asked - largest, found, scale=scale)
        np.testing.assert_allclose(
            evidence_of(asked, reference, fitted_tail(reference)), np.log(20_001) - expected, rtol=1e-9
        )


def test_a_tail_that_would_end_is_exponential_and_one_that_is_not_there_is_left_out():
    uniform = torch.linspace(0, 1, 1000, dtype=torch.float64)
    tail = fitted_tail(uniform)
    assert tail[2] == 0  # its own shape is -1: beyond 1 all would be impossible
    assert torch.isfinite(
        evidence_of(torch.tensor([2.0, 50.0, torch.inf], dtype=torch.float64), uniform, tail)
    ).all()
    for reference in (torch.zeros(1000), torch.linspace(0, 1, 19), torch.tensor([*range(99), torch.inf])):
        assert torch.equal(fitted_tail(reference), no_tail(reference))
    tied = torch.zeros(1000, dtype=torch.float64)
    asked = torch.tensor([0.0, 1e300, torch.inf, torch.nan], dtype=torch.float64)
    found = evidence_of(asked, tied, fitted_tail(tied))
    np.testing.assert_allclose(found, [0, np.log(1001), np.log(1001), np.nan])


@given(st.integers(20, 300), st.integers(0, 10**6))
def test_within_the_reference_the_tail_changes_nothing_and_beyond_it_grows(count, seed):
    reference = torch.from_numpy(np.sort(np.random.default_rng(seed).normal(size=count)))
    tail = fitted_tail(reference)
    inside = torch.linspace(float(reference[0]) - 1, float(reference[-1]), 50, dtype=torch.float64)
    assert torch.equal(
        evidence_of(inside, reference, tail), evidence_of(inside, reference, no_tail(reference))
    )
    beyond = reference[-1] + torch.linspace(0.1, 60.0, 50, dtype=torch.float64)
    found = evidence_of(beyond, reference, tail)
    assert (found.diff() > 0).all()
    assert (found > evidence_of(beyond, reference, no_tail(reference))).all()


def test_far_faults_no_longer_tie():
    train, far = trace_of(0, 300), trace_of(1, 2)
    far.features["penultimate"][:] = torch.tensor([[6.0, 0, 0], [60.0, 0, 0]])
    members = [Feature(column).fit(train) for column in range(3)]
    for combine in ("fisher", "brown", "cauchy", "harmonic"):
        near, farther = Standardised(members, combine=combine, prefit=True).fit(train).score(far)
        assert 4 < near < farther < torch.inf
    tied = AnyOf(members, tail=False, prefit=True).fit(train).score(far)
    assert tied[0] == tied[1]


def test_members_have_names():
    names = Standardised([Feature(0), MaxSoftmax(), Feature(1)]).member_names
    assert names == ("Feature 1", "MaxSoftmax", "Feature 2")
    assert AnyOf([Feature(0), MaxSoftmax()], names=("features", "output")).member_names == (
        "features",
        "output",
    )
    for options in (
        {"weights": (1, 2)},
        {"weights": (1,), "combine": "harmonic"},
        {"weights": (1, -1), "combine": "harmonic"},
    ):
        with pytest.raises(InputError, match="positive weight for each of 2 members"):
            Standardised([Feature(0), MaxSoftmax()], **options)
    for wrong in (("one",), ("same", "same")):
        with pytest.raises(InputError, match="name of its own"):
            AnyOf([Feature(0), MaxSoftmax()], names=wrong)


def test_files_from_before_there_were_tails_give_the_scores_they_gave():
    train, asked = trace_of(0), trace_of(1, 60, shift=3.0)
    combination = AnyOf([GaussianInterval(), MaxSoftmax()], tail=False).fit(train)
    state = combination.state()
    old = {
        "parameters": {
            name: value for name, value in state["parameters"].items() if name not in ("tail", "names")
        },
        "fitted": {name: value for name, value in state["fitted"].items() if name != "tails_"}
        | {"reference_": list(combination.reference_)},
    }
    assert torch.equal(AnyOf.from_state(old).score(asked), combination.score(asked))


@pytest.mark.parametrize("kind", [AnyOf, AllOf, Standardised])
def test_false_alarms_stay_below_the_level_asked_for(kind):
    reference, asked = trace_of(0, 1000), trace_of(1, 20_000)
    members = [Feature(column).fit(reference) for column in range(3)]
    scores = kind(members, prefit=True).fit(reference).score(asked)
    # A p-value at most 0.05: 0.05 of 20,000, and 1000 reference rows add 0.007 of standard error.
    assert (scores >= -np.log(0.05)).double().mean() < 0.07


def test_any_hears_one_member_and_all_waits_for_every_one():
    train, asked = trace_of(0), trace_of(1, 2)
    asked.features["penultimate"][:] = torch.tensor([[9.0, 0.0, 0.0], [9.0, 9.0, 9.0]])
    members = [Feature(column).fit(train) for column in range(3)]
    any_of = AnyOf(members, tail=False, prefit=True).fit(train).score(asked)
    all_of = AllOf(members, prefit=True).fit(train).score(asked)
    assert any_of[0] == any_of[1] > 4
    assert all_of[0] < 1.5 < 4 < all_of[1]


def test_rules_and_data_work_together():
    train = trace_of(0)
    rule = Rule(lambda trace: trace.inputs.amax(dim=1) > 1, name="overexposed")
    combination = AnyOf([GaussianInterval(), rule, MaxSoftmax()]).fit(train)
    assert combination.needs.inputs
    assert combination.layers == ("penultimate",)
    bright = Trace(train.logits, train.features, inputs=train.inputs + 1)
    # Never violated in n reference rows: p = 1 / (n + 1), the least there is.
    assert combination.p_values(bright)[1].max() == pytest.approx(1 / (len(combination.reference_[1]) + 1))
    assert (combination.score(bright) > combination.score(train).median()).all()


def test_members_never_meet_the_reference_rows():
    seen = []

    class Watching(Feature):
        def _fit(self, traces):
            seen.extend(float(value) for trace in traces for value in trace.layer(self.layer)[:, 0])

    train = trace_of(0)
    combination = Standardised(Watching(), held_out=0.3).fit(train)
    reference = combination.reference_[0].tolist()
    assert not set(seen) & set(reference)
    assert sorted(seen + reference) == sorted(train.features["penultimate"][:, 0].tolist())


@pytest.mark.parametrize("prefit", [False, True])
def test_a_stream_read_once_gives_the_state_of_the_whole_and_files_keep_it(prefit, tmp_path):
    train, asked = trace_of(0), trace_of(1, 60, shift=0.5)

    def combination():
        members = [ActivationBox(clusters=2), GaussianInterval(), InputRange(low=0.0, high=0.9)]
        if prefit:
            members = [member.fit(train) for member in members]
        return AnyOf(members, limit=50, prefit=prefit, seed=4)

    whole = combination().fit(train)
    streamed = combination().fit(train[start : start + 37] for start in range(0, 400, 37))
    assert len(whole.reference_[0]) == 50
    torch.testing.assert_close(streamed.score(asked), whole.score(asked))
    assert torch.equal(torch.cat([whole.score(asked[row]) for row in range(60)]), whole.score(asked))
    assert whole.nbytes > sum(member.nbytes for member in whole.members)
    assay.save(whole, tmp_path / "any")
    assert torch.equal(assay.load(tmp_path / "any").score(asked), whole.score(asked))
    assert torch.equal(combination().fit(train).fit(train).score(asked), whole.score(asked))


def test_a_combination_passes_on_what_its_members_remedied():
    train = trace_of(0)
    known = train[train.predictions != 2]
    assert "class 2" in AnyOf([MaxSoftmax(), GaussianInterval()]).fit(known).remedy_
    assert AnyOf([MaxSoftmax(), GaussianInterval()]).fit(train).remedy_ == ""


def test_combinations_nest():
    train = trace_of(0)
    nested = AnyOf([AllOf([Feature(0), Feature(1)]), MaxSoftmax()]).fit(train)
    assert nested.score(train).isfinite().all()


def test_a_failing_member_or_stream_leaves_nothing_fitted():
    train = trace_of(0)
    good, bad = MaxSoftmax(), Rule(lambda trace: True)
    with pytest.raises(InputError, match="per row"):
        AnyOf([good, bad, GaussianInterval()]).fit(train[start : start + 9] for start in range(0, 400, 9))
    with pytest.raises(NotFittedError):
        good.score(train)
    broken = Trace(train.logits * torch.nan, train.features)
    with pytest.raises(InputError, match="finite logits"):
        AnyOf([good, GaussianInterval()]).fit([train, broken])
    with pytest.raises(NotFittedError):
        good.score(train)


def test_a_member_without_a_number_makes_the_combination_so():
    train = trace_of(0)
    asked = trace_of(1, 3)
    asked.features["penultimate"][1, 0] = torch.nan
    asked.features["penultimate"][2, 0] = torch.inf
    for kind in (AnyOf, AllOf, Standardised):
        scores = kind([Feature(0), Feature(1)]).fit(train).score(asked)
        assert scores.isnan().tolist() == [False, True, False]


def test_a_rule_inside_cannot_be_saved(tmp_path):
    combination = AnyOf([MaxSoftmax(), Rule(lambda trace: trace.logits[:, 0] > 9)]).fit(trace_of(0))
    with pytest.raises(StorageError, match="predicate is code"):
        assay.save(combination, tmp_path / "any")


def test_wrong_members_and_options_are_refused():
    member = MaxSoftmax()
    for members, message in (([], "at least one"), ([MaxSoftmax], "monitor"), ([member, member], "twice")):
        with pytest.raises(InputError, match=message):
            AnyOf(members)
    for options in ({"limit": 0}, {"held_out": 1.0}):
        with pytest.raises(InputError, match=next(iter(options))):
            AllOf([member], **options)
    with pytest.raises(InputError, match="combine"):
        Standardised(member, combine="stouffer")
    with pytest.raises(InputError, match="too few"):
        AnyOf([member]).fit(trace_of(0, 1))
    with pytest.raises(NotFittedError, match="MaxSoftmax"):
        AnyOf([member], prefit=True).fit(trace_of(0))
