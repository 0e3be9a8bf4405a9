"""Krippendorff's alpha against his own worked examples, and what it is made of."""

import numpy as np
import pandas as pd
import pytest

import assay
from assay.errors import InputError
from assay.omniinput.annotation.annotator_agreement import krippendorff_alpha

MISSING = np.nan
# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): example C, four observers, twelve units.
FOUR_OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, MISSING, MISSING, MISSING],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, MISSING, 3],
        [MISSING, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, MISSING],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, MISSING],
    ]
).T
# Example A: two observers, ten units, binary.
TWO_OBSERVERS = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]).T.astype(float)


@pytest.mark.parametrize(
    ("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_the_published_example_of_four_observers(metric, published):
    assert krippendorff_alpha(FOUR_OBSERVERS, metric) == pytest.approx(published, abs=5e-4)


def test_the_published_example_of_two_observers():
    assert krippendorff_alpha(TWO_OBSERVERS, "nominal") == pytest.approx(0.095, abs=5e-4)


def test_alpha_by_its_definition():
    """Sums over all pairs of ratings, written out."""
    ratings = np.random.default_rng(0).choice([0, 0.25, 0.5, 0.75, 1, np.nan], size=(30, 4))
    units = [unit[~np.isnan(unit)] for unit in ratings]
    units = [unit for unit in units if len(unit) > 1]
    values = np.concatenate(units)
    observed = sum(((u[:, None] - u) ** 2).sum() / (len(u) - 1) for u in units) / len(values)
    expected = ((values[:, None] - values) ** 2).sum() / (len(values) * (len(values) - 1))
    assert krippendorff_alpha(ratings) == pytest.approx(1 - observed / expected)


def test_perfect_agreement_is_one_and_chance_is_zero():
    generator = np.random.default_rng(0)
    same = np.tile(generator.integers(5, size=(50, 1)), 3).astype(float)
    assert krippendorff_alpha(same) == 1.0
    assert krippendorff_alpha(generator.integers(5, size=(4_000, 3)).astype(float)) == pytest.approx(
        0, abs=0.04
    )
    assert np.isnan(krippendorff_alpha(np.ones((10, 2))))


def labels():
    rows = [
        {
            "item": item,
            "annotator": name,
            "score": (item % 5) / 4 - (0.25 if name == "bob" and item % 5 else 0),
            "repeat": 0,
        }
        for item in range(20)
        for name in ("ann", "bob")
    ]
    rows += [{"item": 1, "annotator": "ann", "score": 0.75, "repeat": 1}]
    return pd.DataFrame([*rows, {"item": 99, "annotator": "cy", "score": np.nan, "repeat": 0}])


def test_people_are_compared_with_the_others_and_with_themselves(tmp_path):
    found = assay.annotator_agreement(labels())
    people = found.to_frame().set_index("annotator")
    assert people.loc["ann", "difference"] == pytest.approx(0.25 * 16 / 20)
    assert people.loc["bob", "difference"] == pytest.approx(-0.25 * 16 / 20)
    assert people.loc["ann", "self_difference"] == pytest.approx(0.5)
    assert found.shared == 20
    assert found.interval[0] <= found.krippendorff_alpha <= found.interval[1]
    assert "alpha" in found.summary()
    assert "shown twice differ by 0.50" in found.summary()
    assay.save(found, tmp_path / "agreement")
    assert assay.load(tmp_path / "agreement").to_frame().equals(found.to_frame())
    assay.write_report([found], tmp_path / "report.html")


def test_one_annotator_alone_agrees_with_nobody():
    found = assay.annotator_agreement(labels().query("annotator == 'ann'"))
    assert "unknown" in found.summary()
    with pytest.raises(InputError, match="got no item"):
        assay.annotator_agreement(labels().drop(columns="item"))
    with pytest.raises(InputError, match="metric"):
        krippendorff_alpha(TWO_OBSERVERS, "ratio")
