"""The range search against accuracies whose crossing is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.mira.crossing import first_crossing


def falling(margins):
    """Accuracy of inputs that each flip at their own margin, as in a linear network."""
    return lambda epsilon: float((margins > epsilon).mean())


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    threshold=st.floats(0.05, 0.95),
    scale=st.floats(1e-6, 1e3),
    start=st.floats(1e-4, 10),
    growth=st.sampled_from([1.1, 2.0]),
)
def test_the_crossing_of_falling_accuracy_is_found_to_tolerance(seed, threshold, scale, start, growth):
    margins = scale * np.random.default_rng(seed).gamma(2, size=301)
    accuracy = falling(margins)
    truth = np.sort(margins)[301 - int(np.floor(threshold * 301)) - 1]  # as many flips as it takes
    found = first_crossing(
        accuracy, 1.0, threshold, start=start * scale, limit=1e5 * scale, growth=growth, tolerance=1e-3
    )
    assert accuracy(found.below) > threshold >= accuracy(found.epsilon)
    assert found.below <= truth <= found.epsilon
    assert found.epsilon - found.below <= 1e-3 * found.epsilon


def test_a_good_start_needs_few_evaluations():
    margins = np.random.default_rng(0).gamma(2, size=10_000)
    truth = float(np.median(margins))
    cold = first_crossing(falling(margins), 1.0, 0.5, start=0.01 * truth, limit=1e4)
    warm = first_crossing(falling(margins), 1.0, 0.5, start=1.03 * truth, limit=1e4, growth=1.1)
    assert warm.evaluations <= 6
    assert cold.evaluations <= 14
    assert warm.epsilon == pytest.approx(cold.epsilon, rel=2e-3)


def test_the_first_of_several_crossings_is_taken_where_the_search_can_see_it():
    def accuracy(epsilon):
        return 0.9 if epsilon < 1 else 0.4 if epsilon < 4 else 0.8 if epsilon < 50 else 0.1

    assert first_crossing(accuracy, 0.9, 0.5, start=0.1, limit=1e3).epsilon == pytest.approx(1, rel=1e-3)


def test_accuracy_that_never_falls_says_how_low_it_came():
    with pytest.raises(
        InputError, match=r"lowest was 0\.6 at epsilon 1, the largest tried 1;.*epsilon_range"
    ):
        first_crossing(lambda e: 1 - 0.4 * e, 1.0, 0.5, start=0.01, limit=1.0)


def test_accuracy_that_is_too_low_to_begin_with_says_so():
    with pytest.raises(InputError, match=r"above the threshold 0\.5, got 0\.5; train"):
        first_crossing(lambda e: 0.1, 0.5, 0.5, start=0.01, limit=1.0)


def test_a_cliff_at_zero_is_an_error_and_not_an_endless_search():
    with pytest.raises(InputError, match="check that the inputs lie within the bounds"):
        first_crossing(lambda e: 0.1, 0.9, 0.5, start=0.01, limit=1.0)
