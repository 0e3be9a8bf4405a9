"""Combinations are p-values: they keep their promise in distribution, and agree with scipy."""

import numpy as np
import pytest
import torch
from scipy.stats import combine_pvalues

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
    combination = AnyOf(members, prefit=True).fit(reference)
    p = expected_p_values(reference, asked)
    np.testing.assert_allclose(combination.p_values(asked), p)
    np.testing.assert_allclose(combination.score(asked), -np.log(2 * p.min(axis=0)))
    np.testing.assert_allclose(
        AllOf(members, prefit=True).fit(reference).score(asked), -np.log(p.max(axis=0))
    )
    fisher = Standardised(members, prefit=True).fit(reference).score(asked)
    scipy = [-np.log(combine_pvalues(column, "fisher").pvalue) for column in p.T]
    np.testing.assert_allclose(fisher, scipy, atol=1e-12)
    mean = Standardised(members, combine="mean", prefit=True).fit(reference).score(asked)
    np.testing.assert_allclose(mean, -np.log(2 * p.mean(axis=0)))
    for combine in ("fisher", "mean"):
        alone = Standardised(members[0], combine=combine, prefit=True).fit(reference).score(asked)
        np.testing.assert_allclose(alone, -np.log(p[0]), atol=1e-12)


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
    any_of = AnyOf(members, prefit=True).fit(train).score(asked)
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
    assert combination.p_values(bright)[1].max() == 1 / (len(combination.reference_[1]) + 1)
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
