"""The shuffle score where its answer is known."""

import pytest
import torch
from torch import nn

import assay
from assay.mira.shuffle import shuffled


class Product(nn.Module):
    """Sure of itself where both values agree."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[5.0], [0.0]]))

    def forward(self, inputs):
        return self.head(inputs[:, :1] * inputs[:, 1:])


def twins(count):
    signs = torch.randint(0, 2, (count, 1), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    return signs.expand(-1, 2).contiguous()


def test_values_that_belong_together_and_are_parted_are_noticed_as_often_as_they_are_parted():
    found = assay.shuffle_score(assay.Network(Product()), twins(2_000))
    # Parted half of the time, then always noticed; else a tie: 1/2 + 1/2 * 1/2.
    assert found.score == pytest.approx(0.75, abs=0.03)  # three standard errors of a share of 2,000
    low, high = found.interval
    assert low < 0.75 < high
    assert "tend to show" in found.summary()


def test_a_network_of_one_value_cannot_notice():
    network = assay.Network(nn.Sequential(nn.Linear(1, 3)))
    found = assay.shuffle_score(network, torch.randn(300, 1, generator=torch.Generator().manual_seed(0)))
    assert found.score == pytest.approx(0.5, abs=1e-9)


def test_shuffling_keeps_the_values_of_every_place_and_follows_from_the_seed():
    values = torch.randn(50, 2, 3, generator=torch.Generator().manual_seed(0))
    mixed = shuffled(values, seed=1)
    assert torch.equal(mixed.sort(dim=0).values, values.sort(dim=0).values)
    assert not torch.equal(mixed, values)
    assert torch.equal(mixed, shuffled(values, seed=1))


def test_it_is_a_whole_answer(tmp_path):
    found = assay.shuffle_score(assay.Network(Product()), twins(100))
    assay.save(found, tmp_path / "shuffle.safetensors")
    again = assay.load(tmp_path / "shuffle.safetensors")
    assert again.to_frame().equals(found.to_frame())
    assay.write_report([again], tmp_path / "report.html")
    with pytest.raises(assay.AssayError, match="at least two inputs"):
        assay.shuffle_score(assay.Network(Product()), twins(1))


def test_whole_numbers_are_shuffled_among_the_rows_that_are_free_in_a_place():
    values = torch.randint(0, 9, (60, 7), generator=torch.Generator().manual_seed(2))
    free = values > 2
    mixed = shuffled(values, 1, free)
    assert torch.equal(mixed[~free], values[~free])
    for place in range(7):
        own = free[:, place]
        assert mixed[own, place].sort().values.tolist() == values[own, place].sort().values.tolist()
    assert not torch.equal(mixed, values)
    assert torch.equal(shuffled(values, 1, torch.ones_like(free)), shuffled(values, 1))


def test_padding_special_tokens_and_fixed_values_stay_where_they_are():
    seen = []

    class Recording(nn.Module):
        def __init__(self):
            super().__init__()
            self.letters = nn.Embedding(20, 3, padding_idx=0)
            self.head = nn.Linear(3, 2)

        def forward(self, input_ids):
            seen.append(input_ids)
            return self.head(self.letters(input_ids).sum(dim=1))

    rows = torch.randint(1, 20, (50, 6), generator=torch.Generator().manual_seed(3))
    rows[:, 4:] = 0
    rows[::2, 0] = 7
    assay.shuffle_score(assay.Network(Recording()), rows, fixed=(7,))
    before, after = seen
    held = (rows == 0) | (rows == 7)
    assert torch.equal(before, rows)
    assert torch.equal(after[held], rows[held])
    assert not torch.equal(after, rows)
    found = assay.shuffle_score(assay.Network(Recording()), {"input_ids": rows})
    assert 0 <= found.score <= 1
