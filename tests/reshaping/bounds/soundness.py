"""What the tests of bounds share: seeded modules, and inputs that try hard to leave the bounds."""

import torch
from torch import nn

from assay import neuron_bounds


def seeded(build):
    """A module whose random weights do not depend on what ran before, and leave no trace."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        module = build()
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm1d):
                layer.running_mean.uniform_(-1, 1)
                layer.running_var.uniform_(0.5, 2)
                layer.weight.data.uniform_(-2, 2)
            elif isinstance(layer, nn.LayerNorm | nn.GroupNorm) and layer.weight is not None:
                layer.weight.data.uniform_(-2, 2)
                layer.bias.data.uniform_(-1, 1)
    return module.eval()


def assert_sound(network, shape, low=0.0, high=1.0, sharper=False, layers=("penultimate",)):
    bounds = neuron_bounds(network, layers, low, high, shape=shape, sharper=sharper)
    for inputs in (*random_inputs(shape, low, high), *adversarial_inputs(network, shape, low, high)):
        trace = network.observe(inputs)
        for name in layers:
            assert (trace.features[name] >= bounds[name][0]).all()
            assert (trace.features[name] <= bounds[name][1]).all()
    return bounds


def random_inputs(shape, low, high):
    generator = torch.Generator().manual_seed(0)
    inside = low + (high - low) * torch.rand(300, *shape, generator=generator)
    corners = torch.where(torch.rand(300, *shape, generator=generator) < 0.5, low, high)
    levels = low + (high - low) * torch.rand(100, *(1 for _ in shape), generator=generator)
    return inside, corners, levels.expand(-1, *shape).contiguous()


def adversarial_inputs(network, shape, low, high, steps=15):
    """Signed-gradient ascent and descent on every neuron: where the bounds are closest to being left."""
    neurons = network.observe(torch.full((1, *shape), float(low))).layer("penultimate").shape[1]
    for sign in (1.0, -1.0):
        inputs = torch.full((neurons, *shape), (low + high) / 2.0)
        inputs += 0.1 * (high - low) * torch.rand(inputs.shape, generator=torch.Generator().manual_seed(1))
        for step in range(steps):
            gradient = network.gradient(
                inputs, lambda trace, sign=sign: sign * trace.layer("penultimate").diagonal()
            )
            inputs = (inputs + (high - low) * 0.7**step * gradient.sign()).clamp(low, high)
        yield inputs
