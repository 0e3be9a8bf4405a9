"""k-means from starts on a sample is that on all rows, where there is something to find."""

import pytest
import torch
from sklearn.cluster import KMeans

from assay.monitors.parts.clusters import SAMPLE, _distinct, _fitted, assigned


def blobs(rows, size=8, apart=1.0):
    generator = torch.Generator().manual_seed(0)
    centres = apart * torch.randn(3, size, generator=generator)
    return centres[torch.arange(rows) % 3] + torch.randn(rows, size, generator=generator)


def test_separate_blobs_are_found_among_more_rows_than_a_sample():
    rows = blobs(3 * SAMPLE, apart=20.0)
    found = assigned(rows, 3, seed=0)
    own = found[:3]
    assert sorted(own.tolist()) == [0, 1, 2]
    assert torch.equal(found, own[torch.arange(len(rows)) % 3])


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_clusters_are_about_as_tight_as_those_from_starts_on_all_rows(apart):
    rows = blobs(4 * SAMPLE, apart=apart)
    everything = KMeans(3, n_init=3, random_state=0).fit(rows.numpy())
    # With nothing to find (0.0) steps go on for long and gain little: 1 % is far less than the gain of
    # clusters at all, 20 % here.
    assert _fitted(rows, 3, seed=0).inertia_ <= 1.01 * everything.inertia_


def test_rows_that_a_sample_may_miss_still_get_clusters_of_their_own():
    rows = torch.zeros(2 * SAMPLE, 2)
    rows[7], rows[1500] = 1.0, 5.0
    assert len(torch.unique(assigned(rows, 3, seed=0))) == 3
    assert len(torch.unique(assigned(rows, "elbow", seed=0))) <= 3


def test_distinct_rows_are_counted_as_far_as_needed():
    rows = torch.tensor([0.0, 0, 0, 0, 0, 0, 0, 0, 1, 2])[:, None]
    assert [_distinct(rows, most) for most in (1, 2, 3, 4)] == [1, 2, 3, 3]
