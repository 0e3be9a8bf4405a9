"""Pseudo-unknowns: what each keeps and what it changes, on every kind of input."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.faults import pseudo_unknown, pseudo_unknowns_for
from assay.faults.partners import partners, shuffled_values


def images(count=12, channels=1, size=8):
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(0))


def table(count=40, columns=6):
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(0)) * 3 + 5


def made(name, inputs, seed=0, network=None):
    return pseudo_unknowns_for(inputs, network)[name](inputs, seed)


def same_values(one, other, dim):
    return torch.equal(one.sort(dim=dim).values, other.sort(dim=dim).values)


@pytest.mark.parametrize(
    "inputs",
    [
        images(),
        images(channels=3)[:, :, :, :],
        images()[:, 0],
        (images(channels=3) * 255).to(torch.uint8),
        images() * 7 - 3,
        images().half(),
        table(),
        torch.randint(1, 99, (20, 9), generator=torch.Generator().manual_seed(0)),
        torch.randint(0, 256, (20, 9), generator=torch.Generator().manual_seed(0)).to(torch.uint8),
        {"input_ids": torch.arange(1, 61).reshape(10, 6), "attention_mask": torch.ones(10, 6).long()},
    ],
)
def test_every_member_keeps_the_form_changes_something_and_follows_from_the_seed(inputs):
    ids = inputs["input_ids"] if isinstance(inputs, dict) else inputs
    before = ids.clone()
    for name, member in pseudo_unknowns_for(inputs).items():
        found, again, other = member(inputs), member(inputs), member(inputs, seed=1)
        if isinstance(inputs, dict):
            assert torch.equal(found["attention_mask"], inputs["attention_mask"]) or name == "truncation"
            found, again, other = (part["input_ids"] for part in (found, again, other))
        assert (found.shape, found.dtype) == (ids.shape, ids.dtype), name
        assert torch.equal(found, again), name
        assert not torch.equal(found, ids), name
        if ids.is_floating_point() and ids.ndim > 2:  # images stay within the range they came in
            assert ids.min() - 1e-2 <= found.min() <= found.max() <= ids.max() + 1e-2, name
    assert torch.equal(ids, before)  # nothing is changed in place


def test_values_of_every_place_stay_and_rows_part():
    values = table()
    found = made("shuffled_values", values)
    assert same_values(found, values, dim=0)
    assert not torch.equal(found[:, 0].argsort(), found[:, 1].argsort())


def test_a_jigsaw_keeps_the_pieces_and_the_edge():
    pictures = images(size=10)  # cells of 2 x 2, and two rows and columns that fill none
    found = made("jigsaw", pictures)

    def cells(some):
        return some[:, 0, :8, :8].unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(some), 16, 4)

    for one, other in zip(cells(found), cells(pictures), strict=True):
        assert sorted(one.tolist()) == sorted(other.tolist())
    assert torch.equal(found[:, :, 8:], pictures[:, :, 8:])


def test_patches_and_halves_come_from_one_other_image_in_the_same_place():
    pictures = torch.arange(6.0)[:, None, None, None].expand(6, 1, 8, 8) / 5  # one shade each
    patched = made("exchanged_patches", pictures)
    assert all(len(set(image.flatten().tolist())) == 2 for image in patched)
    split = made("halves", pictures)
    assert torch.equal(split[:, :, :4], pictures[:, :, :4])
    assert not (split[:, :, 4:] == pictures[:, :, 4:]).any()


def test_amplitudes_stay_and_phases_are_those_of_another():
    from assay.faults.image_mixtures import exchanged_phase

    pictures = images(size=9)
    found = exchanged_phase(pictures, torch.Generator().manual_seed(0))
    other = pictures[partners(len(pictures), torch.Generator().manual_seed(0))]
    spectra = [torch.fft.fft2(some) for some in (pictures, other, found)]
    torch.testing.assert_close(spectra[2].abs(), spectra[0].abs(), atol=1e-4, rtol=1e-4)
    # Where amplitudes are not tiny, the phase is that of the other image (rounding decides elsewhere).
    strong = (spectra[0].abs() > 0.1) & (spectra[1].abs() > 0.1)
    turned = (spectra[2] / spectra[1])[strong].angle()
    assert turned.abs().max() < 1e-3


def test_a_table_is_mirrored_about_its_means_and_matched_in_mean_and_spread():
    rows = table(4000)
    torch.testing.assert_close((made("mirrored", rows) + rows) / 2, rows.mean(0).expand_as(rows))
    noise = made("matched_noise", rows)
    # Four standard errors of a mean of 4,000, and of a deviation (a bit less).
    assert ((noise.mean(0) - rows.mean(0)).abs() < 4 * 3 / 4000**0.5).all()
    assert ((noise.std(0) - rows.std(0)).abs() < 4 * 3 / 4000**0.5).all()


def test_images_are_mixed_in_blocks_of_bounded_size(monkeypatch):
    pictures = images(200)
    monkeypatch.setattr(pseudo_unknown, "BLOCK", 64 * 100)
    found = made("shuffled_values", pictures)
    for part in (slice(0, 100), slice(100, 200)):
        assert same_values(found[part], pictures[part], dim=0)


def test_padding_and_special_tokens_stay():
    class Tokenizer:
        all_special_ids = (1, 2)
        unk_token_id = 3

    class Network:
        tokenizer = Tokenizer()
        padding = 0

    ids = torch.randint(10, 99, (12, 8), generator=torch.Generator().manual_seed(0))
    ids[:, 0] = 1
    ids[::2, 6:] = 0
    mask = (ids != 0).long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    for name, member in pseudo_unknowns_for(inputs, Network()).items():
        found = member(inputs)
        assert (found["input_ids"][:, 0] == 1).all(), name
        if name != "truncation":  # which loses tokens, and so has more padding
            assert torch.equal(found["input_ids"] == 0, ids == 0), name


def test_orders_of_tokens_keep_the_tokens_of_a_row():
    ids = torch.arange(1, 41).reshape(5, 8)
    for name in ("jigsaw", "reversed_order", "random_order"):
        assert same_values(made(name, ids), ids, dim=1), name
    assert torch.equal(made("reversed_order", ids), ids.flip(1))
    pieces = {tuple(piece.tolist()) for piece in made("jigsaw", ids).reshape(-1, 4)}
    assert pieces == {tuple(piece.tolist()) for piece in ids.reshape(-1, 4)}


@given(st.integers(2, 30), st.integers(0, 99))
def test_everybody_has_a_partner_and_nobody_is_their_own(count, seed):
    found = partners(count, torch.Generator().manual_seed(seed))
    assert sorted(found.tolist()) == list(range(count))
    assert (found != torch.arange(count)).all()


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_what_is_held_stays_and_the_rest_is_permuted(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(rows, columns, generator=generator)
    held = torch.rand(rows, columns, generator=generator) < 0.4
    found = shuffled_values(values, generator, held)
    assert torch.equal(found[held], values[held])
    assert same_values(found, values, dim=0)


def test_too_few_inputs_and_texts_are_one_sentence():
    with pytest.raises(InputError, match="at least 4 inputs to exchange parts between, got 3"):
        made("blended", table(3))
    with pytest.raises(InputError, match="expected token ids, got texts"):
        pseudo_unknowns_for(["one", "two"])
