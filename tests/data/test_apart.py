"""Rows that were learned from do not pass for test rows, whatever their order, their number or their form."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from assay.data.apart import check_apart, shared_rows
from assay.errors import InputError

ROWS = torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
OTHERS = torch.rand(60, 3, generator=torch.Generator().manual_seed(1))
LABELS = torch.zeros(60, dtype=torch.long)


@pytest.mark.parametrize(
    ("second", "shared"),
    [
        (ROWS, 60),
        (ROWS.flip(0), 60),
        (ROWS[10:30], 20),
        (torch.cat([ROWS, OTHERS[:20]]), 60),
        (torch.cat([ROWS[:5], OTHERS]), 0),  # a few rows occur twice in many data
        (OTHERS, 0),
    ],
)
def test_most_rows_shared_are_counted_and_a_few_are_not(second, shared):
    assert shared_rows((ROWS, LABELS), (second, torch.ones(len(second)))) == shared
    assert shared_rows(ROWS.numpy(), second.numpy()) == shared
    texts = [[str(row) for row in rows.tolist()] for rows in (ROWS, second)]
    assert shared_rows(*texts) == shared
    named = [{"a": rows[:, :1], "b": rows[:, 1:]} for rows in (ROWS, second)]
    assert shared_rows(*named) == shared


def test_the_sentence_names_both_sets_and_how_many_rows():
    with pytest.raises(InputError, match=r"expected --test with .* those of --train \(20 of its rows\)"):
        check_apart((ROWS, LABELS), (ROWS[:20], LABELS[:20]), ("--train", "--test"))
    check_apart((ROWS, LABELS), (OTHERS, LABELS), ("--train", "--test"))


def test_tables_of_few_values_repeat_by_nature():
    first, second = (np.random.default_rng(seed).integers(0, 2, (200, 3)) for seed in (0, 1))
    assert shared_rows(first, second) == 0
    assert shared_rows(first, first[::-1].copy()) == 200


def test_loaders_are_not_read_and_known_by_themselves_only():
    loader, other = (DataLoader(TensorDataset(ROWS, LABELS)) for _ in range(2))
    assert shared_rows(loader, other) == 0
    assert shared_rows(loader, loader) == 60
