"""Pseudo-faults lie a stated part of the way from known inputs to mixtures of them."""

import pytest
import torch

from assay.errors import InputError
from assay.faults.pseudo_fault import STRENGTHS, pseudo_faults
from assay.faults.pseudo_unknown import FAULTS, mixtures_for


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("inputs", [torch.rand(8, 3, 8, 8, generator=seeded()), torch.randn(20, 5)])
def test_numbers_are_moved_by_the_strength(inputs):
    found = dict(pseudo_faults(inputs, seed=3))
    mixtures = mixtures_for(inputs)
    assert len(found) == len(mixtures) * len(STRENGTHS)
    for name, mixture in mixtures.items():
        for strength in STRENGTHS:
            expected = (1 - strength) * inputs + strength * mixture(inputs, 3)
            torch.testing.assert_close(found[f"{name} {strength}"], expected)


def test_pixels_stay_whole_and_within_their_range():
    pixels = torch.randint(0, 256, (8, 1, 8, 8), generator=seeded(), dtype=torch.uint8)
    for _, faulty in pseudo_faults(pixels):
        assert faulty.dtype == torch.uint8
    mixed = mixtures_for(pixels)["mirrored"](pixels, 0)
    faulty = dict(pseudo_faults(pixels))["mirrored 0.25"]
    expected = (0.75 * pixels.double() + 0.25 * mixed.double()).round()
    assert (faulty - expected).abs().max() <= 1  # single precision may round a half the other way


@pytest.mark.parametrize("as_dict", [False, True])
def test_of_symbols_that_share_is_exchanged_and_padding_stays(as_dict):
    ids = torch.randint(1, 90, (400, 30), generator=seeded())
    ids[:, 20:] = 0
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()} if as_dict else ids
    for name, faulty in pseudo_faults(inputs):
        found = faulty["input_ids"] if as_dict else faulty
        strength = float(name.split()[-1])
        assert torch.equal(found[:, 20:], ids[:, 20:])
        changed = (found != ids)[:, :20].double().mean()
        # A mixture may put the same symbol there, and of 8,000 places a share has an error of 0.005.
        assert changed < strength + 0.02
        if name.startswith("shuffled_values"):
            assert changed > 0.9 * strength


def test_no_fault_of_the_library_teaches():
    for inputs in (torch.rand(8, 3, 8, 8), torch.randn(8, 5), torch.randint(1, 9, (8, 5))):
        names = {name.split()[0] for name, _ in pseudo_faults(inputs)}
        assert not names & {fault for faults in FAULTS.values() for fault in faults}


def test_what_cannot_be_mixed_is_refused_at_once():
    with pytest.raises(InputError, match="encode them first"):
        pseudo_faults(["a text", "another"])
