"""A space says which inputs there are, and which positions may change."""

import math

import pytest
import torch

import assay
from assay.errors import InputError
from assay.omniinput.sampling.space import InputSpace


def test_fixed_positions_keep_their_values():
    template = torch.tensor([[7, 0, 0], [0, 0, 9]])
    free = torch.tensor([[False, True, True], [True, True, False]])
    space = InputSpace((2, 3), 10, template=template, free=free)
    drawn = space.draw(50, torch.Generator().manual_seed(0))
    inputs = space.embed(drawn)
    assert inputs.shape == (50, 2, 3)
    assert (inputs[:, 0, 0] == 7).all()
    assert (inputs[:, 1, 2] == 9).all()
    assert torch.equal(space.extract(inputs), drawn)
    assert space.log_size == pytest.approx(4 * math.log(10))


def test_uniform_draws_are_uniform():
    drawn = InputSpace((3,), 4).draw(40_000, torch.Generator().manual_seed(0))
    share = torch.bincount((drawn @ torch.tensor([16, 4, 1])), minlength=64) / 40_000
    # Five binomial standard errors.
    assert (share - 1 / 64).abs().max() < 5 * math.sqrt(1 / 64 / 40_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (), "values": 2}, "positive sizes"),
        ({"shape": (3,), "values": 0}, "positive sizes"),
        ({"shape": (3,), "values": 2, "free": torch.ones(4)}, "free of shape"),
        ({"shape": (2,), "values": 2, "template": torch.tensor([0, 5])}, "template values"),
    ],
)
def test_a_space_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        InputSpace(**arguments)


def test_a_space_goes_through_a_file(tmp_path):
    space = InputSpace((4,), 5, template=torch.tensor([1, 2, 3, 4]), free=torch.tensor([0, 1, 1, 0]))
    assay.save(space, tmp_path / "space.safetensors")
    back = assay.load(tmp_path / "space.safetensors")
    assert (back.shape, back.values, back.sites) == ((4,), 5, 2)
    assert torch.equal(back.template, space.template)
