"""Outputs are recognised by what they are, and become logits whose softmax is what the network said."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import InputError
from assay.outputs import (
    ENOUGH,
    KINDS,
    Finding,
    as_logits,
    check_kind,
    expect_kind,
    found_in,
    found_in_single,
)

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def logits(rows, classes, seed=0, scale=3.0):
    return scale * torch.randn(rows, classes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_softmax_is_recognised_in_every_precision_and_logits_are_not(dtype, classes):
    rows = logits(ENOUGH, classes).to(dtype)
    assert found_in(rows.softmax(dim=1)) is Finding.PROBABILITIES
    assert found_in(rows) is Finding.LOGITS
    assert found_in(rows.log_softmax(dim=1)) is Finding.LOGITS
    assert found_in(rows.sigmoid()) is Finding.SEVERAL_LABELS


@pytest.mark.parametrize("rows", [1, 5])
def test_few_rows_do_where_they_add_up_as_only_a_softmax_does(rows):
    chances = logits(rows, 4).softmax(dim=1)
    assert found_in(chances) is Finding.PROBABILITIES
    assert found_in(chances.round(decimals=3) * 0.9995) is Finding.EITHER
    assert found_in(chances.half()) in (Finding.EITHER, Finding.PROBABILITIES)
    assert found_in(chances * 0.5) is Finding.TOO_FEW
    assert found_in(torch.eye(4)[:rows]) is Finding.ONE_HOT


def test_chance_hardly_ever_makes_probabilities_of_logits():
    # Among a million rows of two positive logits, those within 1e-5 of one: a density of about 0.2 on a width
    # of 2e-5, so 4 are expected, and 13 would be five standard deviations more.
    rows = logits(1_000_000, 2, scale=2.0).abs()
    assert int(((rows.sum(dim=1) - 1).abs() <= 1e-5).sum()) < 13


def test_rows_that_are_not_finite_do_not_count():
    chances = logits(ENOUGH, 3).softmax(dim=1)
    chances[0], chances[1] = torch.nan, torch.inf
    assert found_in(chances) is Finding.PROBABILITIES
    assert found_in(chances[:2]) is Finding.NONE_FINITE
    assert found_in(chances[:0]) is Finding.NONE_FINITE


def test_one_column_is_probabilities_where_both_answers_occur():
    column = logits(ENOUGH, 1)
    assert found_in_single(column.sigmoid()) is Finding.PROBABILITIES
    assert found_in_single(column) is Finding.LOGITS
    assert found_in_single(column[:5].sigmoid()) is Finding.EITHER
    assert found_in_single(0.5 + column.sigmoid() / 2) is Finding.EITHER
    assert found_in_single(column * torch.nan) is Finding.NONE_FINITE


@given(st.integers(2, 6), st.integers(0, 2**30))
def test_the_softmax_of_what_becomes_logits_is_what_was_said(classes, seed):
    raw = logits(4, classes, seed).double()
    chances = raw.softmax(dim=1)
    for kind, values in (("probabilities", chances), ("log-probabilities", chances.log()), ("logits", raw)):
        expect_kind(values, kind, "a network")
        torch.testing.assert_close(as_logits(values, kind).softmax(dim=1), chances)


@pytest.mark.parametrize("kind", KINDS)
def test_one_column_becomes_two_classes(kind):
    column = torch.tensor([[-3.0], [0.0], [0.5]], dtype=torch.float64)
    shown = {"logits": column, "probabilities": column.sigmoid(), "log-probabilities": column.sigmoid().log()}
    found = as_logits(shown[kind], kind)
    torch.testing.assert_close(found, torch.cat([torch.zeros_like(column), column], dim=1))


def test_zeros_are_clipped_and_nothing_else_changes():
    certain = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    found = as_logits(certain, "probabilities")
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.softmax(dim=1), certain)
    assert torch.isfinite(as_logits(certain.log(), "log-probabilities")).all()
    assert torch.isfinite(as_logits(torch.tensor([[0.0], [1.0]]), "probabilities")).all()
    assert as_logits(certain.half(), "probabilities").dtype == torch.float32


def test_gradients_go_through():
    moving = logits(5, 3).requires_grad_()
    as_logits(moving.softmax(dim=1), "probabilities")[:, 0].sum().backward()
    expected = torch.autograd.functional.jacobian(
        lambda rows: rows.log_softmax(dim=1)[:, 0].sum(), moving.detach()
    )
    torch.testing.assert_close(moving.grad, expected)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (torch.tensor([[0.5, 0.4]]), "probabilities"),
        (torch.tensor([[1.5, -0.5]]), "probabilities"),
        (torch.tensor([[1.5]]), "probabilities"),
        (torch.tensor([[0.0, 0.0]]), "log-probabilities"),
    ],
)
def test_what_is_stated_must_be_true(values: Tensor, kind):
    with pytest.raises(InputError, match=rf"expected {kind} from a forest.*in row 0.*outputs=\"logits\""):
        expect_kind(values, kind, "a forest")
    expect_kind(values, "logits", "a forest")
    expect_kind(values * torch.nan, kind, "a forest")


def test_other_words_are_refused():
    with pytest.raises(InputError, match=r"outputs to be one of .*got 'scores'"):
        check_kind("scores")
