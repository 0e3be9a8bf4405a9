"""The reservoir keeps a uniform sample that depends on rows and seed alone."""

import torch

from assay.monitors.parts.reservoir import Reservoir


def kept(rows, cuts, size, seed):
    reservoir = Reservoir(size, seed)
    for part in rows.tensor_split(cuts):
        reservoir.add(part)
    return reservoir.rows()


def test_the_sample_does_not_depend_on_the_cuts():
    rows = torch.arange(1000)
    whole = kept(rows, [], 50, seed=3)
    assert len(whole) == 50
    assert torch.equal(whole, kept(rows, [1, 10, 500, 999], 50, seed=3))
    assert torch.equal(whole, whole.sort().values)
    assert not torch.equal(whole, kept(rows, [], 50, seed=4))


def test_every_row_is_equally_likely():
    counts = torch.zeros(20)
    for seed in range(2000):
        counts[kept(torch.arange(20), [7], 5, seed)] += 1
    # Binomial(2000, 1/4): standard deviation 19.4; five of them.
    assert (counts - 500).abs().max() < 97


def test_fewer_rows_than_the_size_are_all_kept():
    rows = torch.arange(10)
    assert torch.equal(kept(rows, [4], 50, seed=0), rows)
    assert torch.equal(kept(rows, [4], None, seed=0), rows)
