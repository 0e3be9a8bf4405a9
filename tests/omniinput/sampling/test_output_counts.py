"""How many sequences have each output: against direct sums over all of them."""

import numpy as np
import pytest
from scipy.special import logsumexp

import assay
from assay.omniinput.sampling.samplers.output_counts import WIDTH, OutputCounts

BETAS = np.array([-1.0, 0.0, 0.5, 2.0])


@pytest.fixture
def sequences():
    generator = np.random.default_rng(0)
    return generator.normal(20.0, 5.0, 4000), generator.normal(0.0, 3.0, 4000)


def test_sums_and_moments_are_those_of_all_sequences(sequences):
    """An output is off by half a width at most: so is a mean, and ln of a sum by beta times that."""
    outputs, logs = sequences
    counts = OutputCounts()
    for part in np.array_split(np.arange(len(outputs)), 7):
        counts.add(outputs[part], logs[part])
    exponents = logs - BETAS[:, None] * outputs
    exact = logsumexp(exponents, axis=1)
    assert np.abs(counts.log_totals(BETAS) - exact).max() <= 2.0 * WIDTH / 2
    shares = np.exp(exponents - exact[:, None])
    means = shares @ outputs
    deviations = np.sqrt(shares @ outputs**2 - means**2)
    found = counts.moments(BETAS)
    # Moving every output by w/2 also moves each share, by a factor of up to exp(beta w).
    assert np.allclose(found[0], means, atol=WIDTH / 2 + 2 * WIDTH * deviations.max())
    assert np.allclose(found[1], deviations, rtol=0.1)
    assert (np.diff(found[0]) < 0).all()


def test_memory_does_not_grow_with_the_number_of_sequences(sequences):
    outputs, logs = sequences
    counts = OutputCounts()
    counts.add(outputs, logs)
    places = len(counts.places)
    before = counts.log_totals(BETAS)
    for _ in range(5):
        counts.add(outputs, logs)
    assert len(counts.places) == places
    assert np.allclose(counts.log_totals(BETAS) - before, np.log(6))


def test_what_stands_for_nothing_does_not_count(sequences, tmp_path):
    outputs, logs = sequences
    counts, alike = OutputCounts(), OutputCounts()
    counts.add(np.append(outputs, 1e6), np.append(logs, -np.inf))
    alike.add(outputs, logs)
    assay.save(counts, tmp_path / "counts")
    again = assay.load(tmp_path / "counts")
    assert np.array_equal(again.places, alike.places)
    assert np.array_equal(again.logs, alike.logs)
