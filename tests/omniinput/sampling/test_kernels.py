"""Every kernel keeps its target: detailed balance, by enumeration of a space of three sites."""

import numpy as np
import pytest
import torch
from exact import all_inputs

from assay.errors import GradientError
from assay.omniinput.sampling.kernels import KERNELS, kernels_of
from assay.omniinput.sampling.kernels.block import Block
from assay.omniinput.sampling.kernels.chain import Tempered, init
from assay.omniinput.sampling.kernels.crossover import Crossover
from assay.omniinput.sampling.kernels.langevin import Langevin
from assay.omniinput.sampling.kernels.learned import Learned
from assay.omniinput.sampling.kernels.suffix import LanguageProblem, Suffix
from assay.omniinput.sampling.kernels.surrogate import Surrogate
from assay.omniinput.sampling.language_model import CausalLM
from assay.omniinput.sampling.problem import Problem
from assay.omniinput.sampling.samplers.multicanonical import Flat
from assay.omniinput.sampling.space import InputSpace

SITES, VALUES = 3, 3
SPACE = InputSpace((SITES,), VALUES)
WEIGHTS = torch.randn(SITES, VALUES, generator=torch.Generator().manual_seed(0))
COUPLING = torch.randn(VALUES, VALUES, generator=torch.Generator().manual_seed(1))
REPEATS = 6_000


def relaxed(one_hot):
    """Differentiable, and not linear in the one-hot inputs, so that gradients are only first-order right."""
    pairs = torch.einsum("bsv,vw,bsw->b", one_hot[:, :-1], COUPLING, one_hot[:, 1:])
    return torch.einsum("bsv,sv->b", one_hot, WEIGHTS) + pairs


def output(inputs):
    return relaxed(torch.nn.functional.one_hot(inputs, VALUES).float())


def ordinal(inputs):
    return (inputs.float() * WEIGHTS[:, 0]).sum(dim=1) + (inputs.float() ** 2 @ WEIGHTS[:, 1]) / 3


def learned_kernel():
    """One that has watched states which have nothing to do with the target."""
    kernel = Learned()
    return taught(kernel)


def surrogate_kernel():
    return taught(Surrogate())


def taught(kernel):
    states = SPACE.draw(40, torch.Generator().manual_seed(9)) // 2
    kernel.watch(states, states.double() @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), 1, VALUES)
    kernel.learn(np.zeros(1, dtype=np.int64), np.array([0.7]), VALUES, True)
    return kernel


FLAT = Flat(
    torch.tensor([-3.0, -1.0, 0.5, 3.0], dtype=torch.float64),
    torch.tensor([0.0, 1.0, 0.5, -1.0], dtype=torch.float64),
)


def code(sites):
    return (sites @ (VALUES ** torch.arange(sites.shape[1] - 1, -1, -1))).numpy()


def flows(kernel, problem, target_of, groups_of=lambda rows: 1):
    """How often each state went to each other state, from every state REPEATS times over."""
    states = all_inputs(SITES, VALUES).repeat_interleave(REPEATS, dim=0)
    start = init(states, problem)
    target = target_of(len(states))
    after, info = kernel.step(
        start, target, problem, torch.Generator().manual_seed(7), groups=groups_of(len(states))
    )
    size = VALUES**SITES
    moved = np.zeros((size, size))
    np.add.at(moved, (code(states), code(after.sites)), 1 / REPEATS)
    assert np.isclose(info.probability.mean(), info.accepted.float().mean(), atol=0.01)
    return moved, start.outputs[::REPEATS], target


def assert_detailed_balance(moved, log_weight):
    """pi(x) P(x, y) = pi(y) P(y, x), within five standard errors (Poisson) of the two estimated flows."""
    weights = np.exp(log_weight - log_weight.max())
    weights /= weights.sum()
    flow = weights[:, None] * moved
    grain = (weights[:, None] + weights) / REPEATS
    allowed = 5 * np.sqrt(grain * (flow + flow.T) / 2) + 5 * grain
    assert np.all(np.abs(flow - flow.T) <= allowed)
    assert (moved - np.diag(np.diag(moved)) > 0).any()


@pytest.mark.parametrize("target", ["tempered", "flat"])
@pytest.mark.parametrize(
    ("kernel", "function", "relaxation"),
    [
        ("single-site", output, None),
        (Block(longest=2), output, None),
        ("shift", output, None),
        (learned_kernel(), output, None),
        (surrogate_kernel(), output, None),
        ("informed", output, relaxed),
        ("informed", ordinal, None),
        (Langevin(step_size=0.5), output, relaxed),
        (Langevin(step_size=0.5), ordinal, None),
        ("tilted", output, relaxed),
        ("tilted", ordinal, None),
        ("hamiltonian", ordinal, None),
    ],
)
def test_detailed_balance_holds(kernel, function, relaxation, target):
    (chosen,) = kernels_of(kernel)
    problem = Problem(function, SPACE, gradients=chosen.gradients, relaxed=relaxation)
    build = {
        "tempered": lambda rows: Tempered(torch.full((rows,), 0.8, dtype=torch.float64)),
        "flat": lambda rows: FLAT,
    }
    moved, outputs, aimed = flows(chosen, problem, build[target], groups_of=lambda rows: rows)
    weight = FLAT if target == "flat" else Tempered(aimed.betas[: len(outputs)])
    assert_detailed_balance(moved, weight.log_weight(outputs).numpy())


def test_a_hamiltonian_move_is_always_accepted_and_forgets_where_it_was_without_a_force():
    space = InputSpace((400,), 50)
    problem = Problem(lambda inputs: inputs.float().sum(dim=1), space, gradients=True)
    state = init(torch.full((30, 400), 49), problem)
    (kernel,) = kernels_of("hamiltonian")
    target = Tempered(torch.zeros(30, dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        state, info = kernel.step(state, target, problem, generator)
        assert info.probability.min() > 1 - 1e-3
    # Uniform again: the mean of 12,000 values within four standard errors.
    assert state.sites.double().mean() == pytest.approx(24.5, abs=4 * 14.43 / 12_000**0.5)
    assert problem.evaluations == 30 + 3 * 4 * 30


def test_a_hamiltonian_move_learns_its_step_and_carries_it_to_a_new_ladder():
    """A rung that rejects gets shorter steps; one that accepts everything none beyond a quarter turn."""
    space = InputSpace((40,), 256)
    problem = Problem(lambda inputs: (inputs.float() - 100).square().sum(dim=1) / 1e4, space, gradients=True)
    state = init(space.draw(8, torch.Generator().manual_seed(1)), problem)
    (kernel,) = kernels_of("hamiltonian")
    target = Tempered(torch.tensor([0.0, 200.0], dtype=torch.float64).repeat(4))
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        for _ in range(4):
            state, _ = kernel.step(state, target, problem, generator, groups=4)
        kernel.watch(state.sites, state.outputs, 2, 256)
    free, bound = kernel.angles.tolist()
    assert free == pytest.approx(np.pi / 8)
    assert bound < 0.3 * free
    found = torch.stack([kernel.step(state, target, problem, generator, 4)[1].probability for _ in range(20)])
    assert 0.4 < found.reshape(20, 4, 2)[:, :, 1].mean() < 0.9
    kernel.learn(np.array([0, 0, 1]), np.zeros(3), 256, True)
    assert kernel.angles.tolist() == [free, free, bound]


def test_a_hamiltonian_move_needs_ordered_values():
    problem = Problem(output, SPACE, gradients=True, relaxed=relaxed)
    state = init(SPACE.draw(4, torch.Generator().manual_seed(0)), problem)
    (kernel,) = kernels_of("hamiltonian")
    with pytest.raises(GradientError, match="ordered values"):
        kernel.step(state, Tempered(torch.ones(4, dtype=torch.float64)), problem, torch.Generator())


def test_a_tilted_redraw_is_always_accepted_where_the_output_is_linear():
    """Then the proposal is the target itself, at any temperature and for any part of the sites."""
    weights = torch.randn(20, generator=torch.Generator().manual_seed(1))
    space = InputSpace((20,), 7)
    problem = Problem(lambda inputs: inputs.float() @ weights, space, gradients=True)
    state = init(space.draw(300, torch.Generator().manual_seed(2)), problem)
    betas = torch.linspace(-3, 3, 300, dtype=torch.float64)
    (kernel,) = kernels_of("tilted")
    after, info = kernel.step(state, Tempered(betas), problem, torch.Generator().manual_seed(3))
    assert info.probability.min() > 0.999
    assert (after.sites != state.sites).float().mean() > 0.1


def test_a_learned_chain_redraws_a_markov_black_box_whole():
    """Told the true chain, proposals of any stretch are the target itself, and are always accepted."""
    steps = torch.softmax(torch.randn(6, 5, generator=torch.Generator().manual_seed(4)).double() * 2, dim=1)
    space = InputSpace((12,), 5)
    problem = Problem(
        lambda x: -(steps[-1][x[:, 0]].log() + steps[x[:, :-1], x[:, 1:]].log().sum(dim=1)), space
    )
    state = init(space.draw(200, torch.Generator().manual_seed(5)), problem)
    kernel, target = Learned(weights=steps[None]), Tempered(torch.ones(200, dtype=torch.float64))
    changed = 0.0
    for seed in range(20):
        after, info = kernel.step(state, target, problem, torch.Generator().manual_seed(seed), groups=200)
        assert info.probability.min() > 1 - 1e-9
        changed = max(changed, float((after.sites != state.sites).float().mean()))
    assert changed > 0.5


def test_a_surrogate_of_a_sum_of_neighbours_is_always_accepted():
    """Fitted to enough inputs it is the output itself: every stretch comes from the target, at any beta."""
    table = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    space = InputSpace((12,), 5)
    problem = Problem(lambda x: table[-1][x[:, 0]] + table[x[:, :-1], x[:, 1:]].sum(dim=1) + 7, space)
    state = init(space.draw(4_000, torch.Generator().manual_seed(5)), problem)
    (kernel,) = kernels_of("surrogate")
    kernel.watch(state.sites, state.outputs, 2, 5)
    betas = np.array([-1.5, 2.0])
    kernel.learn(np.arange(2), betas, 5, True)
    target = Tempered(torch.from_numpy(betas).repeat(2_000))
    for seed in range(20):
        state, info = kernel.step(state, target, problem, torch.Generator().manual_seed(seed), groups=2_000)
        assert info.probability.mean() > 0.97
    # Where the two rungs ended up: means of the tilted sums, from long sums over all chains of 12 values.
    means = state.outputs.reshape(-1, 2).mean(dim=0)
    exact = [_tempered_mean(table.numpy(), 12, beta) + 7 for beta in betas]
    assert means.numpy() == pytest.approx(exact, abs=0.15)


def _tempered_mean(table, sites, beta, step=1e-4):
    """-d ln Z / d beta by transfer matrices."""

    def log_total(at):
        total = np.exp(-at * table[-1])
        for _ in range(sites - 1):
            total = total @ np.exp(-at * table[:-1])
        return np.log(total.sum())

    return -(log_total(beta + step) - log_total(beta - step)) / (2 * step)


def test_crossover_keeps_the_joint_target_of_a_pair():
    """Two replicas at different temperatures over two sites of two values: 16 joint states."""
    space = InputSpace((2,), 2)
    problem = Problem(
        lambda inputs: 1.3 * inputs[:, 0] - 0.7 * inputs[:, 1] + inputs[:, 0] * inputs[:, 1], space
    )
    singles = all_inputs(2, 2)
    pairs = torch.stack([singles[[i, j]] for i in range(4) for j in range(4)])
    start = pairs.repeat_interleave(REPEATS, dim=0).reshape(-1, 2)
    betas = torch.tensor([0.3, 1.5], dtype=torch.float64).repeat(len(start) // 2)
    state = init(start, problem)
    joint = lambda sites: (sites.reshape(-1, 4) @ torch.tensor([8, 4, 2, 1])).numpy()  # noqa: E731
    moved = np.zeros((16, 16))
    generator = torch.Generator().manual_seed(3)
    after, _ = Crossover().step(state, Tempered(betas), problem, generator, groups=len(start) // 2)
    np.add.at(moved, (joint(state.sites), joint(after.sites)), 1 / REPEATS)
    if (moved == np.eye(16)).all():  # the odd pairing was drawn, which leaves a group of two alone
        after, _ = Crossover().step(state, Tempered(betas), problem, generator, groups=len(start) // 2)
        moved = np.zeros((16, 16))
        np.add.at(moved, (joint(state.sites), joint(after.sites)), 1 / REPEATS)
    log_weight = Tempered(betas).log_weight(state.outputs).reshape(-1, 2).sum(dim=1)[::REPEATS].numpy()
    assert_detailed_balance(moved, log_weight)


@pytest.mark.parametrize("beta", [-0.4, 0.0, 0.6, 1.0, 2.0])
def test_suffix_proposals_keep_their_target(beta):
    """Balance over many steps, since all rows share one cut: the exact target stays as it is."""
    table = torch.randn(VALUES, VALUES, generator=torch.Generator().manual_seed(5))
    lm = CausalLM(lambda tokens: table[tokens] * (1 + 0.3 * tokens[:, :1, None]), VALUES, SITES)
    problem = LanguageProblem(lm.negative_log_likelihood, lm.space, lm=lm)
    problem.prepare(np.array([beta]))
    states = all_inputs(SITES, VALUES)
    outputs = lm.negative_log_likelihood(states)
    target = torch.softmax(-beta * outputs, dim=0)
    generator = torch.Generator().manual_seed(2)
    rows = 40_000
    state = init(states[torch.multinomial(target, rows, replacement=True, generator=generator)], problem)
    for _ in range(6):
        aimed = Tempered(torch.full((rows,), beta, dtype=torch.float64))
        state, info = Suffix().step(state, aimed, problem, generator, groups=rows)
        if beta in (0.0, 1.0):
            assert info.accepted.all()
    share = np.bincount(code(state.sites), minlength=VALUES**SITES) / rows
    # Five binomial standard errors of an exact sample of the target.
    assert np.all(np.abs(share - target.numpy()) < 5 * np.sqrt(target.numpy() / rows))
    assert torch.allclose(state.outputs, lm.negative_log_likelihood(state.sites), atol=1e-5)


def test_every_named_kernel_is_built():
    assert len(kernels_of(list(KERNELS))) == len(KERNELS)
