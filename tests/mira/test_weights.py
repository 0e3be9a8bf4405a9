"""Weights integrate what they should and refuse what does not normalise."""

import numpy as np
import pytest

from assay.errors import InputError
from assay.mira.weights import epsilon_steps, step_weights


def test_uniform_weights_integrate_straight_lines_exactly():
    epsilons = epsilon_steps(0.2, 0.4, 30)
    weights = step_weights(epsilons)
    assert weights.sum() == pytest.approx(1)
    assert weights @ (3 * epsilons - 1) == pytest.approx(3 * 0.3 - 1)


def test_a_density_counts_as_much_as_it_says():
    epsilons = epsilon_steps(1.0, 2.0, 200)
    rising = step_weights(epsilons, lambda e: 2 * (e - 1))
    # E[e] = 5/3 under 2(e - 1); the trapezoid rule is off by h^2 / 6.
    assert rising @ epsilons == pytest.approx(5 / 3, abs=1e-5)


def test_one_weight_per_step_is_taken_as_it_is():
    assert step_weights(epsilon_steps(1, 2, 2), [0.25, 0.75]).tolist() == [0.25, 0.75]
    assert step_weights(epsilon_steps(1, 2, 1)).tolist() == [1.0]
    assert epsilon_steps(1, 2, 1).tolist() == [1.5]


@pytest.mark.parametrize(
    "weight", [[0.5, 0.6], [1.5, -0.5], [1.0], lambda e: 1.0, lambda e: 2 - e, lambda e: np.nan]
)
def test_weights_that_do_not_normalise_are_refused(weight):
    with pytest.raises(InputError, match=r"expected .* of at least 0"):
        step_weights(epsilon_steps(1, 4, 2), weight)
