"""Bounds are sound: no input in the box leaves them, also where one tries hard."""

import pytest
import torch
import torch.nn.functional as F
from soundness import assert_sound, seeded
from torch import nn

from assay import Bins, Network, neuron_bounds
from assay.errors import InputError


class Block(nn.Module):
    """A residual block with everything that is easy to get wrong: batch norm, padding, addition."""

    def __init__(self, channels, activation):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.activation = activation

    def forward(self, x):
        return self.activation(self.second(self.activation(self.norm(self.first(x)))) + x)


class Forked(nn.Module):
    """Concatenation, methods and functions in place of modules."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Conv2d(1, 3, 3, stride=2), nn.Conv2d(1, 2, 3, stride=2)
        self.head = nn.Linear(5 * 9, 6)
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        x = 2 * x - 1
        y = torch.cat([self.left(x).tanh(), F.elu(self.right(x), alpha=0.7)], dim=1)
        y = F.adaptive_avg_pool2d(y, 3).view(x.size(0), -1)
        return self.last(F.silu(self.head(y)) * 0.5)


ACTIVATIONS = [
    nn.ReLU(), nn.LeakyReLU(0.1), nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.Softplus(), nn.Hardtanh(), nn.GELU(),
    nn.GELU(approximate="tanh"), nn.SiLU(), nn.Mish(), nn.Hardswish(), nn.PReLU(), nn.SELU(),
]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda layer: str(layer))
def test_no_input_leaves_the_bounds_of_a_residual_network(activation):
    module = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            Block(4, activation),
            nn.MaxPool2d(2),
            Block(4, activation),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 5),
            activation,
            nn.Linear(5, 3),
        )
    )
    network = Network(module, layers=("penultimate",), batch_size=512)
    assert_sound(network, (1, 8, 8), low=-1.0, high=2.0)


def test_functions_methods_and_concatenation_are_sound():
    assert_sound(Network(seeded(Forked), batch_size=512), (1, 12, 12))


def test_maps_are_bounded_by_the_mean_over_space_and_containers_by_their_output():
    module = seeded(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(Block(4, nn.ReLU()), nn.ReLU()), nn.Flatten(),
                              nn.Linear(4 * 36, 3))
    )  # fmt: skip
    network = Network(module, layers=("0", "1", "1.0.norm", "penultimate"), batch_size=512)
    bounds = assert_sound(network, (1, 8, 8), layers=network.layers)
    assert bounds["1"][0].shape == (4,)


def test_bounds_of_one_linear_layer_are_reached():
    layer = nn.Linear(3, 2)
    layer.weight.data = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0]])
    layer.bias.data = torch.tensor([1.0, -1.0])
    network = Network(nn.Sequential(layer, nn.Linear(2, 2)))
    low, high = neuron_bounds(network, ["penultimate"], -1.0, 2.0)["penultimate"]
    # By hand: 1 - 1 - 4 - 0.5 = -4.5, 1 + 2 + 2 + 1 = 6; -1 - 2 = -3, -1 + 4 = 3. Rounding adds under 1e-5.
    assert low.tolist() == pytest.approx([-4.5, -3.0], abs=1e-5)
    assert high.tolist() == pytest.approx([6.0, 3.0], abs=1e-5)


def test_the_dip_of_gelu_counts():
    network = Network(nn.Sequential(nn.Linear(1, 1), nn.GELU(), nn.Linear(1, 2)))
    network.module[0].weight.data.fill_(1.0)
    network.module[0].bias.data.fill_(0.0)
    low, high = neuron_bounds(network, ["penultimate"], -5.0, 0.0)["penultimate"]
    # The minimum of x * Phi(x) is -0.16997120747 at x = -0.7517916.
    assert float(low) == pytest.approx(-0.16997120747, abs=1e-6)
    assert float(high) == pytest.approx(0.0, abs=1e-6)


def example_one():
    """A network with the bounds of Example 1: 14 and 5 for inputs in [-1, 1]^3."""
    first, second = nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)
    first.weight.data = torch.tensor([[1.0, -2.0, 1.0], [2.0, 1.0, 0.0]])  # after ReLU at most 4 and 3
    second.weight.data = torch.tensor([[2.0, 2.0], [1.25, -1.0]])  # at most 14 and 5
    return Network(nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(2, 2)))


def test_example_1_gives_c_0_and_n_5():
    bins = Bins.from_bounds(example_one(), layer="penultimate", low=-1.0, high=1.0, width=3.0)
    assert (bins.origin, bins.last, bins.width) == (0.0, 5, 3.0)


def test_example_1_with_one_binning_per_neuron():
    bins = Bins.from_bounds(example_one(), low=-1.0, high=1.0, width=3.0, per_neuron=True)
    assert bins.origin == (0.0, 0.0)
    assert bins.last == (5, 2)


def test_bounds_that_are_a_multiple_of_the_width_do_not_get_another_bin():
    # max = 14 and width 7: N = 2 exactly, although rounding moves the bound a little above 14.
    assert Bins.from_bounds(example_one(), low=-1.0, high=1.0, width=7.0).last == 2


@pytest.mark.parametrize("convolutional", [False, True])
def test_sharper_bounds_are_sound_and_lie_inside_the_plain_ones(convolutional):
    front = [nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU()] if convolutional else []
    module = seeded(
        lambda: nn.Sequential(
            *front,
            nn.Flatten(),
            nn.Linear(108 if convolutional else 64, 20),
            nn.ReLU(),
            nn.Linear(20, 10),
            nn.ReLU(),
            nn.Linear(10, 3),
        )
    )
    network = Network(module, batch_size=512)
    plain = neuron_bounds(network, ["penultimate"], shape=(1, 8, 8))["penultimate"]
    sharp = assert_sound(network, (1, 8, 8), sharper=True)["penultimate"]
    assert (sharp[0] >= plain[0]).all()
    assert (sharp[1] <= plain[1]).all()
    assert sharp[1].sum() < 0.9 * plain[1].sum()


def test_an_activation_that_falls_is_named():
    module = nn.Sequential(nn.Linear(4, 4), nn.PReLU(init=-0.5), nn.Linear(4, 2))
    with pytest.raises(InputError, match=r"PReLU \(1\)"):
        neuron_bounds(Network(module), ["penultimate"])


def test_an_unknown_operation_is_named_with_its_remedy():
    module = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 2))
    with pytest.raises(InputError, match=r"lstm in LSTM \(1\).*Bins.from_data"):
        neuron_bounds(Network(module), ["penultimate"])


def test_the_size_of_images_is_found_where_the_module_tells():
    module = seeded(
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2))
    )
    found = neuron_bounds(Network(module), ["penultimate"])["penultimate"]
    # 3 x 3 after pooling comes from 6 or 7 after the convolution: inputs of 8 or 9.
    eight = neuron_bounds(Network(module), ["penultimate"], shape=(1, 8, 8))["penultimate"]
    assert (found[0] <= eight[0]).all()
    assert (found[1] >= eight[1]).all()


def test_the_shape_must_be_given_where_any_size_runs():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
    with pytest.raises(InputError, match="pass shape="):
        neuron_bounds(Network(module), ["penultimate"])


def test_a_shape_that_does_not_fit_is_refused_in_one_sentence():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"inputs that Sequential takes, got float32 \(rows, 3\)") as caught:
        neuron_bounds(Network(module), ["penultimate"], shape=(3,))
    assert "\n" not in str(caught.value)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_a_module_that_decides_by_values_is_refused_with_the_remedy():
    module = nn.Sequential(nn.Linear(2, 2), Branching(), nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"a decision by values in Branching \(1\).*from_data"):
        neuron_bounds(Network(module), ["penultimate"])


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_limits_that_make_no_sense_are_refused(low, high):
    with pytest.raises(InputError, match="low"):
        neuron_bounds(Network(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))), ["penultimate"], low, high)


class Activated(nn.BatchNorm2d):
    """A layer of another author, with more in it than the layer it comes from."""

    def forward(self, x):
        return F.relu(super().forward(F.pad(x, (1, 0, 1, 0), value=1.0))) - 1


def test_layers_that_build_on_others_are_run_as_they_are_written():
    module = seeded(lambda: nn.Sequential(nn.Conv2d(1, 3, 3), Activated(3), nn.Flatten(), nn.Linear(147, 2)))
    low, _ = assert_sound(Network(module, batch_size=512), (1, 8, 8))["penultimate"]
    assert low.min() == pytest.approx(-1, abs=1e-5)


class InPlace(nn.Module):
    """What an activation in place changes goes into the sum as well: max(x, 0) twice, and not x."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = 1 * x
        part = y[:, :2]
        total = self.relu(part) + part
        y[:, 2] = 7.0
        return torch.cat([total, y], dim=1)


def test_operations_in_place_change_what_views_see():
    module = nn.Sequential(InPlace(), nn.Linear(5, 2))
    low, high = neuron_bounds(Network(module), ["penultimate"], -1.0, 2.0, shape=(3,))["penultimate"]
    assert low.tolist() == pytest.approx([0, 0, 0, 0, 7], abs=1e-4)
    assert high.tolist() == pytest.approx([4, 4, 2, 2, 7], abs=1e-4)


def deep(gain):
    """Thirty layers with weights of one sign or the other, by which intervals widen and values do not."""
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16, bias=False) for _ in range(30)]
    for layer in layers:
        layer.weight.data = gain * torch.randn(16, 16) / 4
    return Network(
        nn.Sequential(*(part for layer in layers for part in (layer, nn.Tanh())), nn.Linear(16, 2))
    )


def test_bounds_that_say_nothing_are_called_vacuous_and_refused_for_bins():
    network = Network(nn.Sequential(*[part for part in deep(1.0).module if isinstance(part, nn.Linear)]))
    bounds = neuron_bounds(network, ["penultimate"], -1.0, 1.0)
    assert bounds.vacuous == ("penultimate",)
    assert "wide, where sample inputs span" in bounds.warnings[0]
    with pytest.raises(InputError, match=r"'penultimate' are vacuous.*Bins\.from_data"):
        Bins.from_bounds(network, low=-1.0, high=1.0)


def test_bounds_that_inputs_come_near_are_not_vacuous():
    bounds = neuron_bounds(deep(1.0), ["penultimate"], -1.0, 1.0)
    assert (bounds.vacuous, bounds.warnings) == ((), ())
    least, most = bounds.reached["penultimate"]
    assert (least >= bounds["penultimate"][0]).all()
    assert (most <= bounds["penultimate"][1]).all()


def test_bounds_that_are_not_finite_are_vacuous():
    network = Network(nn.Sequential(*(nn.Linear(8, 8) for _ in range(60)), nn.Linear(8, 2)))
    for layer in network.module:
        layer.weight.data.mul_(1e6)
    bounds = neuron_bounds(network, ["penultimate"])
    assert not torch.isfinite(bounds["penultimate"][1]).all()
    assert bounds.vacuous == ("penultimate",)


@pytest.mark.filterwarnings("ignore:.*LeafSpec")  # in torch.export itself
def test_compiled_and_exported_modules_have_the_bounds_of_the_module():
    module = seeded(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(),
                                          nn.Linear(72, 4), nn.GELU(), nn.Linear(4, 2)))  # fmt: skip
    expected = neuron_bounds(Network(module), ["penultimate"], shape=(1, 8, 8))["penultimate"]
    rows = torch.export.Dim("rows", min=1)
    exported = torch.export.export(module, (torch.zeros(2, 1, 8, 8),), dynamic_shapes=({0: rows},))
    for other in (torch.compile(module, backend="eager"), exported):
        found = neuron_bounds(Network(other), ["penultimate"], shape=(1, 8, 8))["penultimate"]
        assert torch.equal(torch.stack(found), torch.stack(expected))


def test_modules_without_bounds_say_what_to_pass_instead():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(InputError, match="in_single_precision"):
        neuron_bounds(Network(module.to(torch.bfloat16)), ["penultimate"])
    with pytest.raises(InputError, match="runs elsewhere; pass the module it was made from"):
        neuron_bounds(Network.from_function(lambda rows: rows), [])
