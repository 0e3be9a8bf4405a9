"""The reservoir keeps a uniform sample that depends on rows and seed alone."""

import pytest
import torch

from assay.errors import InputError
from assay.monitors.parts.reservoir import Reservoir
from assay.monitors.parts.row_keys import RowKeys


def kept(rows, cuts, size, seed):
    """The rows of a sample of all parts, each gathered by itself; in their own order."""
    whole = Reservoir(size)
    for part in rows.tensor_split(cuts):
        other = Reservoir(size)
        other.add(RowKeys(seed).next(part[:, None]), part)
        whole.merge(other)
    return whole.rows()


def numbers(count):
    return torch.arange(count, dtype=torch.float32)


def test_the_sample_does_not_depend_on_split_or_order():
    rows = numbers(1000)
    whole = kept(rows, [], 50, seed=3)
    assert len(whole) == 50
    assert torch.equal(whole, kept(rows, [1, 10, 500, 999], 50, seed=3))
    assert torch.equal(whole, kept(rows[torch.randperm(1000)], [300, 301], 50, seed=3))
    assert not torch.equal(whole, kept(rows, [], 50, seed=4))


def test_one_stream_cut_anywhere_has_the_same_keys_even_where_rows_repeat():
    rows = torch.randint(0, 3, (5000, 1), generator=torch.Generator().manual_seed(0)).float()
    keys = RowKeys(1)
    cut = torch.cat([keys.next(part) for part in rows.tensor_split([1, 1000, 1024, 4000])])
    assert torch.equal(cut, RowKeys(1).next(rows))
    # Of 1024 rows with three values, each draws a key of its own.
    assert len(cut[:1024].unique()) == 1024


def test_every_row_is_equally_likely():
    counts = torch.zeros(20)
    for seed in range(2000):
        counts[kept(numbers(20), [7], 5, seed).long()] += 1
    # Binomial(2000, 1/4): standard deviation 19.4; five of them.
    assert (counts - 500).abs().max() < 97


def test_a_row_that_is_repeated_stays_in_proportion():
    """A third of all rows are equal; together they would fill the sample or be missing from it."""
    rows = torch.cat([torch.zeros(10_000), 1 + numbers(20_000)])
    shares = [float((kept(rows, [9_000], 1000, seed) == 0).float().mean()) for seed in range(20)]
    # 342 keys, each of about ten equal rows per 1024: standard deviation of one share below 0.05.
    assert sum(shares) / 20 == pytest.approx(1 / 3, abs=0.04)
    assert all(0.15 < share < 0.55 for share in shares)


def test_fewer_rows_than_the_size_are_all_kept():
    rows = numbers(10)
    assert torch.equal(kept(rows, [4], 50, seed=0).sort().values, rows)
    assert torch.equal(kept(rows, [4], None, seed=0).sort().values, rows)


def test_rows_that_cannot_stay_need_not_be_made():
    keys = torch.rand(900, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows, plain, lazy = numbers(900), Reservoir(50), Reservoir(50)
    made = 0
    for part, drawn in zip(rows.split(300), keys.split(300), strict=True):
        plain.add(drawn, part)
        near = lazy.near(drawn)
        lazy.add(drawn[near], part[near])
        made += len(near)
    assert torch.equal(lazy.rows(), rows[keys.argsort()[:50]])
    assert torch.equal(lazy.rows(), plain.rows())
    assert made <= 150
    assert len(Reservoir(None).near(keys)) == 900


def test_rows_without_a_part_that_others_have_are_refused():
    sample = Reservoir(5)
    sample.add(torch.rand(2, dtype=torch.float64), {"a": numbers(2)})
    with pytest.raises(InputError, match=r"with and some without \['b'\]"):
        sample.add(torch.rand(2, dtype=torch.float64), {"a": numbers(2), "b": numbers(2)})
