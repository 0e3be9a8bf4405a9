"""Models are compared over the recalls they share, on one scale."""

import numpy as np
import pytest
import torch
from exact import all_inputs
from exact_precision import enumerated, weighted_sum, without

import assay
from assay.errors import InputError
from assay.omniinput.precision.area import area_up_to

EDGES = np.arange(-0.5, 48.0, 3.0)


def rule(inputs):
    return (inputs.sum(dim=1) % 3 == 0).double()


@pytest.fixture(scope="module")
def dist():
    return enumerated(weighted_sum, 5, 4, EDGES)


@pytest.fixture(scope="module")
def other():
    return enumerated(lambda inputs: 45 - weighted_sum(inputs) ** 2 / 45, 5, 4, EDGES)


def test_areas_between_points_are_exact():
    x, y = np.array([-np.inf, -3.0, -2.0, -2.0, 0.0]), np.array([0.0, 1.0, 0.5, 0.25, 0.75])
    assert np.allclose(
        area_up_to(x, y, np.array([-3.0, -2.5, -2.0, -1.0, 0.0])), [0, 0.4375, 0.75, 1.125, 1.75]
    )
    assert np.allclose(area_up_to(x, y, np.array([-4.0, 1.0])), [-1.0, 2.5])  # level beyond its range


def test_the_ratio_is_that_of_areas_over_the_common_range(dist, other):
    one, two = (assay.precision_recall(d, rule) for d in (dist, other))
    result = assay.compare_precision_recall({"plain": one, "bent": two})
    row = result.to_frame().iloc[0]
    frames = [curve.to_frame().query("log_recall > -inf") for curve in (one, two)]
    low = max(frame["log_recall"].iloc[0] for frame in frames)
    high = min(frame["log_recall"].iloc[-1] for frame in frames)
    assert (row["log_recall_from"], row["log_recall_to"]) == (low, high)
    grid = np.linspace(low, high, 200_001)
    areas = [np.trapezoid(np.interp(grid, frame["log_recall"], frame["precision"]), grid) for frame in frames]
    assert row["reference_aupr"] == pytest.approx(areas[0], rel=1e-4)
    assert row["aupr"] == pytest.approx(areas[1], rel=1e-4)
    assert row["ratio"] == pytest.approx(areas[1] / areas[0], rel=1e-4)
    assert row["ratio_lower"] <= row["ratio"] <= row["ratio_upper"]
    ratios = result.cumulative_ratio("bent", "plain")
    assert ratios["ratio"].iloc[-1] == pytest.approx(row["ratio"])


def test_a_model_is_as_good_as_itself(dist):
    curve = assay.precision_recall(dist, rule)
    result = assay.compare_precision_recall({"a": curve, "b": curve})
    assert np.allclose(result.cumulative_ratio("b", "a")["ratio"], 1.0)
    assert "no difference is shown" in result.summary()


def test_a_judge_who_finds_more_right_gives_a_larger_area(dist):
    strict = assay.precision_recall(dist, lambda inputs: 0.2 * rule(inputs) + 0.1)
    mild = assay.precision_recall(dist, lambda inputs: 0.2 * rule(inputs) + 0.75)
    result = assay.compare_precision_recall({"strict": strict, "mild": mild})
    assert "area of mild" in result.summary()
    assert "it agrees better with the judges" in result.summary()


def test_a_model_that_is_never_right_cannot_be_compared_and_nothing_breaks(dist):
    curve = assay.precision_recall(dist, rule)
    never = assay.precision_recall(dist, lambda inputs: torch.zeros(len(inputs)))
    result = assay.compare_precision_recall({"a": curve, "never": never})
    assert np.isnan(result.to_frame()["ratio"].iloc[0])
    assert "no recall in common" in result.summary()
    assert result.cumulative_ratio("never", "a").empty
    assert len(result.figures() + never.figures()) == 5


def test_a_comparison_is_a_result(dist, other, tmp_path):
    curves = {"plain": dist, "bent": other, "again": dist}
    result = assay.compare_precision_recall({n: assay.precision_recall(d, rule) for n, d in curves.items()})
    assert len(result.to_frame()) == 3
    assay.save(result, tmp_path / "comparison")
    assert assay.load(tmp_path / "comparison").to_frame().equals(result.to_frame())
    assay.write_report([result], tmp_path / "report.html")


def test_curves_of_different_questions_are_refused(dist, other):
    curve = assay.precision_recall(dist, rule)
    with pytest.raises(InputError, match="at least two"):
        assay.compare_precision_recall({"a": curve})
    smaller = assay.precision_recall(enumerated(weighted_sum, 4, 4, EDGES), rule)
    with pytest.raises(InputError, match="same inputs"):
        assay.compare_precision_recall({"a": curve, "b": smaller})
    crossed = assay.precision_recall(without(other, normalisation="cross-model"), rule)
    with pytest.raises(InputError, match="normalised the same way"):
        assay.compare_precision_recall({"a": curve, "b": crossed})
    with pytest.raises(InputError, match="pair by pair"):
        assay.compare_precision_recall({"a": crossed, "b": crossed, "c": crossed})
    with pytest.raises(InputError, match="name a compared model"):
        assay.compare_precision_recall({"a": curve, "b": curve}).cumulative_ratio("a", "c")


def test_the_example_of_appendix_b():
    """M1 maps 500 inputs into Z, M2 200, both 100: each one's own scale drops out, 5 against 2 remains."""
    inputs = all_inputs(10, 2)
    rank = (inputs @ (2 ** torch.arange(9, -1, -1))).double()  # 0 to 1023

    def first(rows):
        return 100 * ((rows @ (2 ** torch.arange(9, -1, -1))).double() >= 500)

    def second(rows):
        place = (rows @ (2 ** torch.arange(9, -1, -1))).double()
        return 100 * ((place < 400) | (place >= 600))

    assert (int((first(inputs) == 0).sum()), int((second(inputs) == 0).sum())) == (500, 200)
    assert int(((first(inputs) == 0) & (second(inputs) == 0)).sum()) == 100
    edges = np.array([-1.0, 1.0, 99.0, 101.0])
    dists = []
    for function, scale in ((first, 7.0), (second, -3.0)):  # sampled in part: absolute scale unknown
        dist = enumerated(function, 10, 2, edges)
        dists.append(without(dist, log_density=dist.log_density + scale, resamples=dist.resamples + scale))
    crossed = assay.cross_model_normalised(*dists, first, second, -1, 1)
    assert [np.exp(dist.log_density[0]) for dist in crossed] == pytest.approx([5.0, 2.0])
    one, two = (assay.precision_recall(dist, lambda rows: torch.ones(len(rows))) for dist in crossed)
    assert np.exp(one.log_recall[0] - two.log_recall[0]) == pytest.approx(500 / 200)
    assert "rightly confident about 5 times as many inputs as both models share" in one.summary()
    rare = without(one, log_recall=one.log_recall - np.log(1e9))
    assert "rightly confident about 10^-8.3 times as many inputs as" in rare.summary()
    assert rank.max() == 1023
    assert assay.compare_precision_recall({"M1": one, "M2": two}).to_frame().shape == (1, 9)
