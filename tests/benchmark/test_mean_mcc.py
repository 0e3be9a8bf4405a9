"""The interval of a mean MCC covers it: over rows, which scenarios share, and not over scenarios."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

import assay
from assay.benchmark import Scenario
from assay.benchmark.mean_mcc import MeanMcc
from assay.benchmark.measures import counted_measures, mcc_slopes, outcome_counts

CAUGHT = 0.8  # of the rows are faults


def scenario(is_fault, rows):
    count = len(is_fault)
    rows = None if rows is None else torch.as_tensor(rows)
    return Scenario("x", "noise", 1, torch.zeros(count), torch.as_tensor(is_fault), lambda: None, "", rows)


def mcc(is_fault, alarm):
    outcomes = np.where(alarm, np.where(is_fault, 0, 1), np.where(is_fault, 3, 2))
    return float(counted_measures(outcome_counts(outcomes))["mcc"])


def test_slopes_are_the_derivatives_of_mcc():
    counts = np.array([40.0, 3.0, 17.0, 20.0])
    step = 1e-5
    for outcome, slope in enumerate(mcc_slopes(counts)):
        moved = [counts + 0.5 + side * step * np.eye(4)[outcome] for side in (-1, 1)]
        low, high = (counted_measures(one)["mcc"] for one in moved)
        assert slope == pytest.approx((high - low) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_the_interval_holds_in_95_of_100_draws_of_rows_with_four_scenarios(alike):
    """Scores are normal, alarms lie above the 95 % point: rates and MCC are known in closed form."""
    generator = np.random.default_rng(0)
    threshold, shifts, count = norm.ppf(0.95), (0.3, 1.0, 2.0, 3.0), 100
    rates = [norm.sf(threshold - shift) for shift in shifts]
    shares = [
        (CAUGHT * rate, 0.2 * 0.05, 0.2 * 0.95, CAUGHT * (1 - rate)) for rate in rates
    ]  # in the order of Outcome
    truth = np.mean([counted_measures(np.array(share))["mcc"] for share in shares])
    held, errors, means = 0, [], []
    for _ in range(300):
        own, mean, values = generator.normal(size=count), MeanMcc(), []
        for shift in shifts:
            rows, is_fault = generator.permutation(count), generator.permutation(count) >= 0.2 * count
            scores = np.sqrt(alike) * own[rows] + np.sqrt(1 - alike) * generator.normal(size=count)
            alarm = scores + shift * is_fault > threshold
            mean.add(scenario(is_fault, rows), alarm)
            values.append(mcc(is_fault, alarm))
        means.append(np.mean(values))
        errors.append(mean.error)
        held += abs(means[-1] - truth) < 1.96 * errors[-1]
    assert 0.92 < held / 300 <= 1
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.2)


def test_scenarios_that_are_one_and_the_same_are_no_more_than_one():
    generator = np.random.default_rng(1)
    is_fault = generator.random(200) < CAUGHT
    alarm = generator.random(200) < np.where(is_fault, 0.6, 0.1)

    def error(*scenarios):
        mean = MeanMcc()
        for one in scenarios:
            mean.add(one, alarm)
        return mean.error

    once = error(scenario(is_fault, np.arange(200)))
    same = error(*[scenario(is_fault, np.arange(200))] * 4)
    apart = error(*(scenario(is_fault, np.arange(200) + 200 * place) for place in range(4)))
    recorded = error(*[scenario(is_fault, None)] * 4)
    assert same == pytest.approx(once, rel=0.05)
    assert apart == pytest.approx(once / 2, rel=1e-9)
    assert recorded == pytest.approx(once, rel=1e-9)


def test_rows_of_built_scenarios_say_what_they_were_made_of(network, data):
    noise, novelty = assay.build_scenarios(
        *data, faults=["gaussian"], severities=(1,), novelty={"zeros": torch.zeros(30, 1, 8, 8)}
    )
    clean = ~noise.is_fault
    assert torch.equal(noise.inputs[clean], data[0][noise.rows[clean]])
    assert torch.equal(novelty.rows < 0, novelty.is_fault)
    known = novelty.rows >= 0
    assert torch.equal(novelty.inputs[known], data[0][novelty.rows[known]])


def test_four_scenarios_are_enough_to_tell_a_monitor_from_chance(guards, data):
    """A signed-rank test over four scenarios has no p-value below 0.0625, whatever they show."""
    scenarios = assay.build_scenarios(*data, faults=["gaussian", "contrast"])
    found = assay.run_benchmark({name: guards[name] for name in ("maha", "coin")}, scenarios)
    facts = found.by_guard().set_index("guard")
    assert facts["specific_mcc_lower"]["maha"] > 0.1
    assert facts["specific_mcc_lower"]["coin"] < 0 < facts["specific_mcc_upper"]["coin"]
    assert "1 did no better than chance" in found.summary()
    pooled = assay.BenchmarkResult(found.table)  # as put together from other results
    assert pooled.interval("maha")[0] < found.interval("maha")[0]
