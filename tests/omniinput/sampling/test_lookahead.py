"""Looking ahead changes the draws and never what they estimate."""

import dataclasses

import numpy as np
import torch
from exact import log_density_of, markov_table
from scipy.special import logsumexp

import assay
from assay.omniinput.sampling.kernels.suffix import LanguageProblem
from assay.omniinput.sampling.lookahead import Lookahead
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.samplers import importance
from assay.omniinput.sampling.samplers.importance import Importance
from assay.omniinput.sampling.samplers.proposal_betas import proposal_betas

VALUES, LENGTH = 6, 5
TABLE = markov_table(VALUES, seed=3)
STEPS = torch.from_numpy(TABLE).float()
LM = assay.CausalLM(lambda tokens: STEPS[tokens], VALUES, LENGTH, start=STEPS[-1])
EDGES = np.linspace(2.0, 26.0, 13)


def run_of(budget, lm=LM, edges=EDGES):
    problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
    run = Importance(problem, Plan(edges), Budget(budget, None), torch.Generator().manual_seed(0))
    run.begin()
    return run


def exact():
    inputs = torch.cartesian_prod(*[torch.arange(VALUES)] * LENGTH)
    return log_density_of(LM.negative_log_likelihood(inputs).numpy(), EDGES)


def test_any_lookahead_gives_the_exact_density():
    """A random psi makes worse draws; their weights still count all inputs."""
    run = run_of(60_000)
    while run.piloting:
        run.advance()
    sums = torch.randn(run.lookahead.sums.shape, generator=torch.Generator().manual_seed(1)).double()
    changed = dataclasses.replace(run.lookahead, sums=3 * sums, weights=torch.ones_like(sums))
    run.lookahead, run._log_psi = changed, None
    run.lookahead.watch = lambda tokens, following, own: None
    while not run.finished:
        run.advance()
    found, truth = run.estimate().log_density, exact()
    known = np.isfinite(truth)
    assert np.abs(found - truth)[known].max() < 0.25
    assert abs(run.anchors()[0]) < 0.05
    assert abs(run.anchors()[1]) < 0.05


def test_a_markov_model_is_looked_through_to_its_end():
    """psi_t(v) is proportional to the sum of p^beta over all that may follow v, by backward recursion."""
    run = run_of(400_000)
    while run.piloting:
        run.advance()
    beta = len(run.betas) - 1
    tempered = run.betas[beta] * TABLE[:-1]
    log_psi = np.zeros(VALUES)
    learned = run.lookahead.log_values()[beta].numpy()
    for place in range(LENGTH - 2, -1, -1):
        log_psi = logsumexp(tempered + log_psi, axis=1)
        often = run.lookahead.weights[beta, place].numpy() > 50 * run.lookahead.batches
        apart = (learned[place] - log_psi)[often]
        assert often.sum() >= 3
        assert np.ptp(apart) < 0.1
        assert np.ptp(log_psi[often]) > 0.5


def test_looking_ahead_makes_rare_outputs_several_times_better_known(monkeypatch):
    """Effective sequences of the lowest bin of the benchmark's model, drawn with and without what was
    learned."""
    monkeypatch.setattr(importance, "LEAST_GROUP", 10**6)  # so that none are selected
    steps = torch.from_numpy(markov_table(50, seed=0, scale=2.0)).float()
    lm = assay.CausalLM(lambda t: steps[t], 50, 25, start=steps[-1], cached=lambda t, cache: (steps[t], t))
    effective = {}
    for name in ("ahead", "plain"):
        run = run_of(6_000, lm, np.linspace(30.0, 140.0, 12))
        while not run.finished:
            if name == "plain" and run.lookahead.batches:
                run.lookahead = Lookahead.none(run.betas, 24, 50)
                run._log_psi = None
            run.advance()
        effective[name] = run.effective()[0]
    assert effective["ahead"] > 3 * effective["plain"]  # 3.9 and 5 on two kinds of processors


def test_of_many_tokens_the_most_drawn_have_entries_of_their_own():
    """Token 7 leads to one nat more than the others, and is drawn every third time."""
    table = Lookahead.none(np.arange(3.0), 24, 50_000)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        tokens = torch.randint(50_000, (30, 24), generator=generator)
        tokens[::3] = 7
        following = (tokens == 7).double()[:, :, None].expand(-1, -1, 3)
        table.watch(tokens, following, torch.arange(30) // 10)
    learned = table.log_values()
    assert learned.shape == (3, 24, 4097)
    assert table.entry[7] == 0
    assert (table.entry != 4096).sum() < 20
    apart = learned[:, :, 0] - learned[:, :, 4096]
    # Pseudo-counts of two per batch pull the table of 200 draws per position towards zero.
    assert ((apart > 0.7) & (apart < 1.01)).all()


def test_proposals_stand_closer_where_outputs_are_narrow():
    betas = np.linspace(-0.5, 4, 10)
    deviations = np.linspace(12, 2, 10)
    means = -np.concatenate(
        [[0], np.cumsum((deviations[1:] ** 2 + deviations[:-1] ** 2) / 2 * np.diff(betas))]
    )
    found = proposal_betas(betas, means, deviations, means[-1], means[1])
    assert 0.0 in found
    outputs = np.interp(found, betas, means)
    steps = -np.diff(outputs) / np.interp((found[1:] + found[:-1]) / 2, betas, deviations)
    assert (steps < 2.0).all()
    assert found[0] == 0.0
    assert np.isclose(found[-1], 4.0)
