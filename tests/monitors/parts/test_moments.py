"""Streamed moments are those of all rows at once, to rounding, wherever the data lies."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay import Trace
from assay.monitors.parts.moments import ClassMoments, add_products, amplification
from assay.monitors.parts.row_blocks import in_blocks


def data(rows, size, classes, seed, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    return torch.randn(rows, size, generator=generator) + shift + labels[:, None], labels


def by_hand(features, labels, classes):
    values = features.double().numpy()
    means, scatters, fourths = [], [], []
    for number in range(classes):
        rows = values[labels.numpy() == number]
        means.append(rows.mean(axis=0) if len(rows) else np.zeros(values.shape[1]))
        centred = rows - means[-1]
        scatters.append(centred.T @ centred)
        fourths.append((np.square(centred).sum(axis=1) ** 2).sum())
    return np.array(means), np.array(scatters), np.array(fourths)


@settings(max_examples=25)
@given(
    rows=st.integers(1, 60),
    size=st.integers(1, 5),
    classes=st.integers(1, 4),
    shift=st.sampled_from([0.0, 1e3]),
    seed=st.integers(0, 99),
    cut=st.integers(1, 60),
    merged=st.booleans(),
)
def test_moments_agree_with_the_definition(rows, size, classes, shift, seed, cut, merged):
    features, labels = data(rows, size, classes, seed, shift)
    moments = ClassMoments(classes, size, each_class=True)
    for part in range(0, rows, cut):
        other = ClassMoments(classes, size, each_class=True) if merged else moments
        other.add(features[part : part + cut], labels[part : part + cut])
        if merged:
            moments.merge(other)
    means, scatters, fourths = by_hand(features, labels, classes)
    # Rounding of double precision, relative to values of up to (size * spread^2)^2 * rows.
    assert np.allclose(moments.means, means, rtol=1e-12)
    found = [moments.class_scatter(number) for number in range(classes)]
    assert np.allclose(torch.stack(found), scatters, atol=1e-9)
    assert np.allclose(moments.scatter, scatters.sum(axis=0), atol=1e-9)
    assert np.allclose(moments.class_fourth, fourths, atol=1e-7)
    centred = features.double().numpy() - features.double().numpy().mean(axis=0)
    assert np.allclose(moments.scatter + moments.between, centred.T @ centred, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_pooled_moments_and_running_fourths_merge(monkeypatch, parts):
    monkeypatch.setattr("assay.monitors.parts.moments._EXACT", 0)  # as for many classes of wide layers
    features, labels = data(4000, 5, 4, seed=2)
    few = (labels != 3) | ((labels == 3).cumsum(0) <= 70)
    features, labels = features[few], labels[few]
    moments = ClassMoments(4, 5, fourth=True)
    for rows, classes in zip(features.chunk(parts), labels.chunk(parts), strict=True):
        other = ClassMoments(4, 5, fourth=True)
        for part, numbers in in_blocks([(rows, classes)]):
            other.add(part, numbers)
        moments.merge(other)
    means, scatters, fourths = by_hand(features, labels, 4)
    assert np.allclose(moments.means, means, rtol=1e-6)
    assert np.allclose(moments.scatter, scatters.sum(axis=0), rtol=1e-5, atol=1e-3)
    # What a move of the mean adds is guessed from the first rows of a class (see FourthMoments).
    assert moments.total_fourth == pytest.approx(fourths.sum(), rel=5e-4)


def test_nothing_cancels_far_from_the_origin():
    # A variance of 1 at 1e6: sums of squares about the origin would lose twelve of sixteen digits.
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(1000, 2, generator=generator, dtype=torch.float64) + 1e6
    moments = ClassMoments(1, 2)
    for part in features.split(100):
        moments.add(part, torch.zeros(len(part), dtype=torch.long))
    assert np.allclose(moments.scatter / 1000, np.cov(features.T, bias=True), rtol=1e-10)


def test_a_stream_gives_the_same_moments_to_the_last_bit():
    features, labels = data(9000, 6, 3, seed=1)
    trace = Trace(torch.zeros(9000, 3), {"layer": features}, labels)
    whole = ClassMoments.of(iter([trace]), "layer")
    cut = ClassMoments.of((trace[start : start + 700] for start in range(0, 9000, 700)), "layer")
    assert torch.equal(whole.scatter, cut.scatter)
    assert torch.equal(whole.means, cut.means)


def correlated(rows, correlation):
    """Rows of two features with this correlation and scales 1 and 1000, about (7, 7)."""
    noise = torch.randn(rows, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    second = correlation * noise[:, 0] + (1 - correlation**2) ** 0.5 * noise[:, 1]
    return (torch.stack([noise[:, 0], 1000 * second], dim=1) + 7).float()


@pytest.mark.parametrize("correlation", [0.0, 0.9, -0.999])
def test_amplification_of_two_features_is_known(correlation):
    scatter = torch.tensor([[4.0, 200 * correlation], [200 * correlation, 1e4]], dtype=torch.float64)
    assert amplification(scatter) == pytest.approx((1 - correlation**2) ** -0.5, rel=1e-4)  # single precision


def test_amplification_is_infinite_where_a_feature_is_constant_or_repeated():
    assert amplification(torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64))) == np.inf
    assert amplification(torch.ones(2, 2, dtype=torch.float64)) > 1e7


@pytest.mark.parametrize(("correlation", "dtype"), [(0.5, torch.float32), (0.99999, torch.float64)])
def test_sums_are_single_only_where_rounding_cannot_show(correlation, dtype):
    features = correlated(30_000, correlation)
    moments = ClassMoments(1, 2)
    for block in features.split(1000):
        moments.add(block, torch.zeros(len(block), dtype=torch.long))
    assert moments._single == (dtype == torch.float32)
    exact = np.cov(features.double().T, bias=True)
    whitener = np.linalg.inv(np.linalg.cholesky(exact))
    changed = whitener @ (moments.scatter.numpy() / 30_000) @ whitener.T - np.eye(2)
    # Squared distances change by at most this share; 4e-6 is promised where the sums are single.
    assert np.linalg.norm(changed, 2) < (4e-6 if dtype == torch.float32 else 1e-9)


def test_units_that_never_fire_do_not_make_sums_slow():
    features, labels = data(5000, 4, 2, seed=3)
    features[:, 1], features[:, 2] = 0.0, 0.1
    moments = ClassMoments(2, 4)
    for block, classes in zip(features.split(1000), labels.split(1000), strict=True):
        moments.add(block, classes)
    assert moments._single
    assert (moments.scatter[1:3].abs() < 1e-9).all()


def test_products_are_added_to_the_upper_triangle_in_place():
    rows = torch.randn(50, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = torch.ones(300, 300, dtype=torch.float64)
    add_products(total, rows)
    add_products(total, rows[:0])
    assert torch.allclose(total.triu(), (1 + rows.T @ rows).triu(), atol=1e-12)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 7))
def test_blocks_hold_the_same_rows_in_equal_lengths(lengths, rows):
    whole = torch.arange(sum(lengths))
    blocks = [block for (block,) in in_blocks([(part,) for part in whole.split(lengths)], rows)]
    assert torch.equal(torch.cat([*blocks, whole[:0]]), whole)
    assert all(len(block) == rows for block in blocks[:-1])
    assert all(0 < len(block) <= rows for block in blocks[-1:])
