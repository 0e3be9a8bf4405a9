"""Rules: the user's code and declared ones."""

import numpy as np
import pytest
import torch

import assay
from assay import Trace
from assay.errors import InputError, NotFittedError, StorageError
from assay.monitors import AllowedClasses, InputRange, Rule


@pytest.fixture
def trace():
    generator = torch.Generator().manual_seed(0)
    return Trace(
        torch.randn(20, 3, generator=generator),
        {"penultimate": torch.randn(20, 2, generator=generator)},
        inputs=torch.rand(20, 1, 4, 4, generator=generator),
    )


def brightness(trace):
    return trace.inputs.flatten(1).mean(dim=1)


def dark(trace):
    return brightness(trace) < 0.5


def test_a_rule_scores_one_where_it_is_violated_and_numbers_pass_through(trace):
    assert torch.equal(Rule(dark).fit(trace).score(trace), dark(trace).double())
    assert torch.equal(Rule(brightness).fit(trace).score(trace), brightness(trace).double())
    as_array = Rule(lambda trace: np.arange(len(trace))).fit(trace)
    assert as_array.score(trace).tolist() == list(range(20))


def test_a_rule_names_what_it_reads(trace):
    rule = Rule(lambda trace: trace.layer("penultimate")[:, 0], layers="penultimate", needs_inputs=False)
    assert rule.layers == ("penultimate",)
    assert not rule.needs.inputs
    assert Rule(dark).needs.inputs
    with pytest.raises(InputError, match="penultimate"):
        rule.fit(Trace(trace.logits))


@pytest.mark.parametrize("answer", [True, torch.ones(20, 1), [1.0], "violated", None])
def test_an_answer_of_another_shape_is_refused_at_fit(trace, answer):
    with pytest.raises(InputError, match="per row from the predicate of rule 'odd'"):
        Rule(lambda trace: answer, name="odd").fit(trace)


def test_a_rule_cannot_be_saved_and_says_what_can(trace, tmp_path):
    rule = Rule(dark, name="dark")
    for _ in range(2):  # refitting works without files
        rule.fit(trace)
    with pytest.raises(StorageError, match=r"Rule\(predicate=dark.*InputRange or AllowedClasses"):
        assay.save(rule, tmp_path / "rule")
    assert rule.nbytes == 0


def test_a_rule_needs_a_function_and_a_fit(trace):
    with pytest.raises(InputError, match="takes a Trace"):
        Rule("dark")
    with pytest.raises(NotFittedError):
        Rule(dark).score(trace)


def test_declared_rules_go_through_files(trace, tmp_path):
    low, high = torch.full((1, 4, 4), 0.1), torch.full((1, 4, 4), 0.9)
    for number, rule in enumerate(
        [InputRange(low=0.2, high=0.8), InputRange(low=low, high=high), AllowedClasses([0, 2])]
    ):
        rule.fit(trace)
        assay.save(rule, tmp_path / str(number))
        assert torch.equal(assay.load(tmp_path / str(number)).score(trace), rule.score(trace))


def test_the_range_says_how_far_outside_the_worst_value_is(trace):
    inputs = trace.inputs.clone()
    inputs[3, 0, 1, 2], inputs[4, 0, 0, 0], inputs[5, 0, 0, 0] = 1.5, -0.25, torch.nan
    scores = InputRange(low=0.0, high=1.0).fit(trace).score(Trace(trace.logits, inputs=inputs))
    assert scores[3:5].tolist() == pytest.approx([0.5, 0.25])
    assert scores[5].isnan()
    assert (scores[6:] == 0).all()


def test_wrong_declarations_are_refused(trace):
    with pytest.raises(InputError, match="low at most high"):
        InputRange(low=1.0, high=0.0)
    with pytest.raises(InputError, match="bounds' shape"):
        InputRange(low=torch.zeros(3), high=1.0).fit(trace).score(trace)
    with pytest.raises(InputError, match="one tensor"):
        InputRange(low=0.0, high=1.0).fit(trace).score(Trace(trace.logits, inputs={"a": trace.inputs}))
    with pytest.raises(InputError, match="from 0 to 2"):
        AllowedClasses([3]).fit(trace)
    with pytest.raises(InputError, match="at least one allowed class"):
        AllowedClasses([])
