"""The smallest contamination found."""

import numpy as np
import pytest

import assay
from assay.errors import InputError


def test_more_rows_find_less_contamination_and_clean_rows_stay_quiet(tmp_path):
    generator = np.random.default_rng(0)
    clean = generator.dirichlet((9.0, 0.5, 0.3), size=4000)
    perturbed = generator.dirichlet((1.0, 1.0, 1.0), size=2000)
    limits = assay.smallest_contamination(
        clean, perturbed, windows=(100,), rows=(200, 2000), shares=(0.0, 0.02, 0.1, 0.5), trials=10
    )
    frame = limits.to_frame().set_index(["test", "rows"])
    for test in ("sequential", "t-test"):
        assert frame.loc[(test, 2000), "smallest"] <= frame.loc[(test, 200), "smallest"]
    assert frame.loc[("sequential", 2000), "smallest"] <= 0.1
    # 10 trials at 5 %: 4 or more have a chance of 1 in 1,000.
    assert (frame["false_alarms"] <= 0.3).all()
    assay.save(limits, tmp_path / "limits")
    again = assay.load(tmp_path / "limits")
    assert again.summary() == limits.summary()
    assert limits.plot().axes[0].get_xlabel() == "rows of the stream"


def test_streams_longer_than_half_the_clean_rows_are_refused():
    rows = np.random.default_rng(0).dirichlet(np.ones(3), size=100)
    with pytest.raises(InputError, match="half of the clean"):
        assay.smallest_contamination(rows, rows, windows=(20,), rows=(60,))
