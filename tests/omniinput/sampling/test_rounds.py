"""Rounds of selected sequences: every beta once, in parts that fit, also when interrupted between two."""

import numpy as np
import torch
from exact import all_inputs, long_memory_logits
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

import assay
from assay.omniinput.sampling.checkpoint import Checkpoint
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.samplers import importance
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.rounds import Round

LM = assay.CausalLM(long_memory_logits, 4, 6)
OUTPUTS = LM.negative_log_likelihood(all_inputs(6, 4)).numpy()
EDGES = np.quantile(OUTPUTS, np.linspace(0, 1, 9)) + np.array([-1e-3, *[0] * 7, 1e-3])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 120))
def test_parts_cover_every_beta_once_and_stay_within_the_limit(sizes, most):
    one = Round(np.array(sizes))
    covered = []
    while not one.whole:
        part = one.part(most)
        assert sum(sizes[part]) <= most or part.stop - part.start == 1
        covered += range(len(sizes))[part]
        one.add(part, {"rows": np.log(sum(sizes[part]))})
    assert covered == list(range(len(sizes)))
    assert np.isclose(np.exp(one.log_sums["rows"]), one.rows)


def selecting_run(budget, seed, monkeypatch, lm=LM, edges=EDGES):
    monkeypatch.setattr(importance, "ENOUGH_PARTICLES", 2.0)
    monkeypatch.setattr(importance, "ROUND_BATCH", 256)  # less than a round
    problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
    run = Importance(problem, Plan(edges), Budget(budget, None), torch.Generator().manual_seed(seed))
    run.begin()
    return run


def test_a_run_interrupted_within_a_round_goes_on_as_if_it_had_not_been(monkeypatch, tmp_path):
    run = selecting_run(12_000, 0, monkeypatch)
    while run.round is None or len(run.blocks) < 3:
        assert not run.finished
        run.advance()
    assert 0 < run.round.done < len(run.betas)
    assert run.selecting
    assay.save(Checkpoint(run.plan, LM.space, "importance", None, 0.0, run.snapshot()), tmp_path / "run")
    again = selecting_run(12_000, 0, monkeypatch)
    again.restore(assay.load(tmp_path / "run").snapshot)
    for one in (run, again):
        while not one.finished:
            one.advance()
    assert run.problem.evaluations == again.problem.evaluations
    np.testing.assert_array_equal(run.estimate().log_density, again.estimate().log_density)


def test_the_budget_is_used_up_by_whole_rounds(monkeypatch):
    run = selecting_run(12_000, 1, monkeypatch)
    while not run.finished:
        run.advance()
    assert run.round is None
    assert 0.97 * 12_000 < run.problem.evaluations <= 12_000
    assert len(run.blocks) >= 10
    assert np.isclose(np.exp(run.blocks.whole()["rows"]).sum(), run.draws)


def test_a_beta_with_more_sequences_than_fit_one_call_gets_them_in_several(monkeypatch):
    """Against the enumeration: four runs of rounds whose coldest beta has some selections side by side."""
    exact = np.log(np.histogram(OUTPUTS, EDGES)[0] / len(OUTPUTS))
    scaled = []
    for seed in range(4):
        run = selecting_run(12_000, seed, monkeypatch)
        monkeypatch.setattr(importance, "ROUND_BATCH", 40)
        groups = []
        while not run.finished:
            run.advance()
            if run.round is not None and run.selecting and not run.piloting:
                groups.append(np.unique(run.betas, return_counts=True)[1].max())
                assert run.round.sizes.max() <= 40
        assert max(groups) >= 3
        assert 0.97 * 12_000 < run.problem.evaluations <= 12_000
        assert 20 <= round(float(np.exp(run.blocks.whole()["batches"]).sum())) <= 28  # as planned, not more
        found = run.estimate()
        scaled.append((found.log_density - exact) / found.error)
    assert np.mean(np.abs(scaled) <= 2) >= 0.85  # 95 % of some 16 independent values, give or take two errors
    assert np.abs(scaled).max() < 4.5


OPENINGS, VALUES, LENGTH = 20, 400, 8


def certain_after_an_unlikely_opening(tokens):
    """The last 20 of 400 tokens are e times less likely to come first, and each is followed by itself."""
    follows = torch.zeros(VALUES, VALUES)
    follows[:, -OPENINGS:] = -8.0
    follows[-OPENINGS:] = 18 * torch.eye(VALUES)[-OPENINGS:]
    return follows[tokens]


def test_unlikely_openings_that_lead_to_what_is_certain_are_found(monkeypatch):
    """Of all 400^8 texts exactly 20 have less than 8.5 nats. A selection that is cold from the first token
    gives their openings up, and states errors of 0.4 and more; cooled step by step it has 0.02 to 0.03."""
    first = torch.zeros(VALUES)
    first[-OPENINGS:] = -1.0
    lm = assay.CausalLM(certain_after_an_unlikely_opening, VALUES, LENGTH, start=first)
    edges = np.array([6.5, 8.5, 30.0, 40.0, 44.0, 47.0, 50.0])
    scaled = []
    for seed in range(3):
        run = selecting_run(12_000, seed, monkeypatch, lm, edges)
        while not run.finished:
            run.lookahead, run._log_psi = Lookahead.none(run.betas, LENGTH - 1, VALUES), None
            run.advance()
        assert run.selecting
        assert (run.betas == 1).any()
        found = run.estimate()
        assert found.error[0] < 0.1
        scaled.append((found.log_density[0] - np.log(OPENINGS) + LENGTH * np.log(VALUES)) / found.error[0])
    assert np.abs(scaled).max() < 3


def test_a_run_learns_how_many_sequences_have_each_output_and_chooses_its_betas_by_it(monkeypatch):
    """ln of the sum of p^beta over all beginnings, against all 4^5 of them, written out."""
    run = selecting_run(12_000, 0, monkeypatch)
    while run.piloting:
        run.advance()
    chosen = [run.betas]
    while not run.finished:
        run.advance()
        if run.betas is not chosen[-1]:
            chosen.append(run.betas)
    assert len(chosen) == 6  # by the pilot, and after 1, 2, 4, 8 and 16 rounds
    beginnings = assay.CausalLM(long_memory_logits, 4, 5)
    outputs = beginnings.negative_log_likelihood(all_inputs(5, 4)).numpy()
    betas = np.linspace(0, 2, 5)
    exact = logsumexp(-betas[:, None] * outputs, axis=1)
    found = run.output_counts.log_totals(betas)
    assert np.abs(np.diff(found) - np.diff(exact)).max() < 0.05  # 0.01 here
