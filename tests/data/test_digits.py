"""The bundled digits: real, split by seed, each class in both parts by its share."""

import pytest
import torch
from sklearn.datasets import load_digits

import assay
from assay.errors import InputError


def test_train_and_test_together_are_the_digits_of_scikit_learn():
    train, test = assay.data.digits()
    bundle = load_digits()
    ours = torch.cat([train[0], test[0]]).reshape(-1, 64) * 16
    labelled = torch.cat([ours, torch.cat([train[1], test[1]])[:, None]], dim=1).tolist()
    theirs = [[*image, label] for image, label in zip(bundle.data, bundle.target, strict=True)]
    assert sorted(labelled) == sorted(theirs)


def test_types_shapes_and_range_are_as_stated():
    for inputs, labels in assay.data.digits():
        assert inputs.shape[1:] == (1, 8, 8)
        assert inputs.dtype == torch.float32
        assert labels.dtype == torch.int64
        assert (inputs.min(), inputs.max()) == (0, 1)


def test_the_split_is_stratified():
    train, test = assay.data.digits(test_share=0.3)
    share = test.labels.bincount() / (train.labels.bincount() + test.labels.bincount())
    # A class has about 180 images, so rounding moves its share by less than one in a hundred.
    assert torch.allclose(share, torch.full((10,), 0.3), atol=0.01)
    assert train.classes == tuple("0123456789")


def test_the_seed_alone_decides():
    before = torch.random.get_rng_state()
    (first, _), (again, _), (other, _) = (assay.data.digits(seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.inputs, again.inputs)
    assert not torch.equal(first.labels, other.labels)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan"), 1e-9])
def test_a_share_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises(InputError, match="test_share"):
        assay.data.digits(test_share=share)
