"""The alarm against its stated false-alarm rate, and the pieces it is made of against closed forms."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binomtest

from assay.volatility import VolatilityWatch, compare_volatility
from assay.volatility.clean_reference import CleanReference
from assay.volatility.comparison import compare_log_vcs, window_log_vcs
from assay.volatility.evidence import Evidence, Stakes, _calibrator


def certainties(generator, count):
    return generator.beta(5.0, 0.6, count)


def sequential(clean, stream, rate, window=50, block=1):
    reference = CleanReference.of_margins(clean, window, block=block, resamples=200)
    evidence = Evidence(reference, rate)
    evidence.add_rows(stream[::block])
    for log_vc in window_log_vcs(stream, window):
        evidence.add_window(float(log_vc))
    return evidence


def not_above(alarms, trials, rate):
    """Whether so many alarms could come from the stated rate (one-sided binomial test at 1 in 1,000)."""
    return binomtest(alarms, trials, rate, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("count", [100, 1000])
def test_on_clean_streams_the_alarm_keeps_its_rate_though_looked_at_all_the_time(count):
    # A rate of 20 %, so that 150 streams can tell; 20 windows and 1,000 rows each, all looked at.
    generator = np.random.default_rng(count)
    alarms = sum(
        sequential(certainties(generator, count), certainties(generator, 1000), rate=0.2).alarm
        for _ in range(150)
    )
    assert not_above(alarms, 150, 0.2)


def test_where_neighbours_are_alike_blocks_keep_the_rate_and_single_rows_do_not():
    generator = np.random.default_rng(0)

    def video(frames):
        return np.repeat(certainties(generator, frames), 10) + generator.normal(0, 1e-3, 10 * frames)

    pairs = [(np.abs(video(200)), np.abs(video(200))) for _ in range(60)]
    alone = sum(sequential(clean, stream, 0.2, window=200).alarm for clean, stream in pairs)
    blocks = sum(sequential(clean, stream, 0.2, window=200, block=10).alarm for clean, stream in pairs)
    assert not_above(blocks, 60, 0.2)
    assert alone > blocks


def test_the_t_test_of_disjoint_windows_keeps_its_rate():
    generator = np.random.default_rng(1)
    alarms = sum(
        compare_log_vcs(*(window_log_vcs(certainties(generator, 500), 50) for _ in range(2)), 50, 0.1).alarm
        for _ in range(300)
    )
    assert not_above(alarms, 300, 0.1)
    assert alarms > 10  # it does sound, so the rate is a rate and not a test asleep


def test_the_t_test_of_overlapping_sets_does_not_which_is_why_it_is_not_offered():
    generator = np.random.default_rng(2)

    def sets(pool):
        return np.array([float(window_log_vcs(generator.choice(pool, 50, False), 50)[0]) for _ in range(25)])

    alarms = sum(
        compare_log_vcs(*(sets(certainties(generator, 100)) for _ in range(2)), 50, 0.05).alarm
        for _ in range(60)
    )
    assert alarms > 0.3 * 60


def test_a_late_change_is_found_after_a_long_clean_stream():
    generator = np.random.default_rng(3)
    clean = certainties(generator, 5000)
    stream = np.concatenate([certainties(generator, 50_000), generator.uniform(0, 0.6, 300)])
    evidence = sequential(clean, stream[:50_000], rate=0.01, window=1000)
    assert not evidence.alarm
    evidence.add_rows(stream[50_000:])
    assert evidence.alarm


def test_the_calibrator_is_a_fair_bet():
    # Its integral over uniform p is 1; it has an integrable pole at 0.
    below, _ = quad(lambda x: _calibrator(np.exp(x)) * np.exp(x), -200, np.log(0.999))
    # f(p) p log^2 p -> 1, so what lies below exp(-200) is 1/200.
    assert below + 1 / 200 == pytest.approx(1.0, abs=2e-3)
    for p in (0.001, 0.1, 0.7):
        mixed, _ = quad(lambda k, p=p: k * p ** (k - 1), 0, 1)
        assert _calibrator(p) == pytest.approx(mixed, rel=1e-6)


def test_capital_is_staked_piece_by_piece_and_none_is_made_or_lost():
    stakes = Stakes.on(7)
    for _ in range(20):
        stakes.play(0.0)
        assert stakes.log_capital == pytest.approx(0.0, abs=1e-12)


def test_capital_by_brute_force_over_all_start_times():
    returns = np.random.default_rng(4).normal(size=(6, 3))
    stakes = Stakes.on(3)
    for row in returns:
        stakes.play(row)
    # Start at round j with prior 1/(j (j+1)), or never (1/7); three bets, evenly.
    by_hand = 1 / 7 + sum(np.exp(returns[j - 1 :].sum(axis=0)).mean() / (j * (j + 1)) for j in range(1, 7))
    assert stakes.log_capital == pytest.approx(np.log(by_hand))


def test_the_odds_are_never_better_than_fair_on_clean_rows():
    # Given the clean rows, the chance of a hit must lie below the one the odds are set by, except with the
    # stated doubt; margins are uniform here, so that the chance is the limit itself.
    generator = np.random.default_rng(5)
    beaten = 0
    for _ in range(200):
        evidence = Evidence(CleanReference.of_margins(generator.uniform(size=300), 50, resamples=20), 0.2)
        chances = np.concatenate([evidence._lower, 1 - evidence._upper])
        # _log_hit = log(1 + share (1/chance - 1)) for the last share, 0.9
        odds = 0.9 / (np.expm1(evidence._log_hit[:, -1]) + 0.9)
        beaten += bool((chances > odds).any())
    assert not_above(beaten, 200, 0.1)


def test_two_streams_are_compared_and_explained():
    generator = np.random.default_rng(6)
    clean, same = (generator.dirichlet((9.0, 0.5, 0.3), size=2000) for _ in range(2))
    changed = same.copy()
    changed[::5] = generator.dirichlet((1.0, 1.0, 1.0), size=400)
    quiet, loud = (compare_volatility(clean, other, window=200) for other in (same, changed))
    assert not quiet.alarm
    assert loud.alarm
    assert loud.statistic > 0
    assert "p =" in loud.summary()
    assert len(loud.to_frame()) == 20
    assert loud.plot().axes
    from scipy.stats import ttest_ind

    assert loud.p_value == pytest.approx(ttest_ind(loud.suspect, loud.reference, equal_var=False).pvalue)


def watched(margins_of_clean, margins_of_stream, window):
    def rows(margins):
        return np.stack([(1 + margins) / 2, (1 - margins) / 2], axis=1)

    watch = VolatilityWatch(window).calibrate(rows(margins_of_clean), resamples=200)
    return watch, watch.update(rows(margins_of_stream))


def a_fifth(margins, value):
    return np.where(np.arange(len(margins)) % 5, margins, value)


def test_a_window_has_one_p_value_and_it_allows_for_a_small_reference():
    # One clean window as reference: its centre is as uncertain as the window judged. p-values that ignore it
    # fall below 0.1 in 25 % of clean windows (a normal beyond 1.645 / sqrt(2)) instead of 10 %.
    generator = np.random.default_rng(7)
    found = []
    for _ in range(200):
        watch, state = watched(certainties(generator, 50), certainties(generator, 50), window=50)
        assert watch.to_frame()["p_value"].tolist() == [state.p_value]
        found.append(state.p_value)
    assert not_above(int(np.sum(np.array(found) <= 0.1)), 200, 0.1)


@pytest.mark.parametrize("window", [50, 1000])
@pytest.mark.parametrize(
    ("margins", "direction"),
    [
        (lambda generator, count: 0.5 * certainties(generator, count), "less certain"),
        (lambda generator, count: generator.beta(50.0, 0.6, count), "more certain"),
        (lambda generator, count: a_fifth(certainties(generator, count), 0.1), "less certain"),
        (lambda generator, count: a_fifth(certainties(generator, count), 1.0), "more certain"),
    ],
    ids=["all lower", "all higher", "a fifth lower", "a fifth higher"],
)
def test_the_alarm_says_which_way_the_certainties_went(window, margins, direction):
    generator = np.random.default_rng(8)
    watch, state = watched(certainties(generator, 5000), margins(generator, 3000), window)
    assert state.direction == direction
    assert state.alarms[0].startswith(f"{direction} than the reference")
    assert direction in state.summary()
    assert (watch.to_frame()["direction"] == direction).mean() > 0.7  # a window of 50 may fall on either side
    assert state.to_frame()["direction"].tolist() == [direction]


def test_where_volatility_alone_sounds_its_side_is_the_direction():
    clean = certainties(np.random.default_rng(9), 2000)
    for shift, direction in ((3.0, "less certain"), (-3.0, "more certain")):
        evidence = Evidence(CleanReference.of_margins(clean, 50, resamples=1000), 0.1)
        assert evidence.direction == ""
        for _ in range(10):
            evidence.add_window(evidence.reference.mean + shift)
        assert (evidence.alarm, evidence.direction) == (True, direction)


def test_the_t_test_says_which_way_the_certainties_went():
    generator = np.random.default_rng(10)
    clean, lower = certainties(generator, 1000), 1 - certainties(generator, 1000)
    first, second = window_log_vcs(clean, 50), window_log_vcs(lower, 50)
    assert compare_log_vcs(first, second, 50).direction == "less certain"
    assert "the suspect being less certain" in compare_log_vcs(first, second, 50).summary()
    assert "the suspect being more certain" in compare_log_vcs(second, first, 50).summary()
