"""ALOCC's two networks as pure functions of plain tensors, and their adversarial training.

Functions instead of modules: the weights are the fitted state as it is, any number of threads may score at
once, and every random number comes from one generator (modules draw theirs from the global one).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.engine import progress

Weights = dict[str, Tensor]
Sizes = dict[str, tuple[int, ...]]

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
}
SQUARED, CROSS_ENTROPY = "squared", "cross-entropy"
SLOPE = 0.2
"""Of the leaky rectifiers on their negative side."""

COMPRESSION = 8
"""The code between encoder and decoder has about this many times fewer numbers than an image."""


@dataclass(frozen=True)
class Training:
    """The training settings of `Reconstruction`."""

    epochs: int
    batch_size: int
    optimizer: str
    learning_rate: float
    noise: float
    reconstruction_weight: float
    loss: str
    seed: int


def reconstruction_error(loss: str, made: Tensor, real: Tensor) -> Tensor:
    """Of every value: its squared error; or, made being a logit, the cross-entropy of a value in [0, 1]."""
    if loss == CROSS_ENTROPY:
        return F.softplus(made) - real * made  # -x log s(made) - (1 - x) log(1 - s(made)), never infinite
    return (made - real).square()


def seen(loss: str, made: Tensor) -> Tensor:
    """What was made as the discriminator sees it: values like those of inputs."""
    return made.sigmoid() if loss == CROSS_ENTROPY else made


def reconstructed(weights: Weights, inputs: Tensor) -> Tensor:
    """R(x) of images (N, C, H, W) or vectors (N, d); for cross-entropy its logits."""
    return _image(weights, inputs) if inputs.ndim == 4 else _perceptron(weights, inputs)


def realness(weights: Weights, inputs: Tensor) -> Tensor:
    """The logit of D(x): how sure the discriminator is that an input is real, not reconstructed."""
    if inputs.ndim == 4:
        for name in _names(weights, "encode"):
            inputs = _rectified(_convolved(weights, name, inputs, stride=2))
        inputs = inputs.mean(dim=(2, 3))
    return _perceptron(weights, inputs)[:, 0]


def trained(inputs: Tensor, training: Training) -> tuple[Weights, Weights]:
    """Reconstructor and discriminator after adversarial training on standardised inputs.

    Sabokrou et al. 2018, Eqs. 2 to 4: D tells x from R(x + noise); R fools it and keeps the error, squared or
    cross-entropy, small, the latter with `reconstruction_weight` (their lambda).
    """
    generator = torch.Generator().manual_seed(training.seed)
    shape = inputs.shape[1:]
    reconstructor, discriminator = _reconstructor(shape, generator), _discriminator(shape, generator)
    steps = [_optimizer(training, weights) for weights in (reconstructor, discriminator)]
    for _ in progress(range(training.epochs), "training the reconstruction", training.epochs):
        for rows in torch.split(torch.randperm(len(inputs), generator=generator), training.batch_size):
            real = inputs[rows]
            noisy = real + training.noise * torch.randn(real.shape, generator=generator)
            with torch.enable_grad():
                made = reconstructed(reconstructor, noisy)
                shown = seen(training.loss, made)
                _step(steps[1], _telling_apart(discriminator, real, shown.detach()))
                error = reconstruction_error(training.loss, made, real).flatten(1).sum(dim=1).mean()
                fooling = F.softplus(-realness(discriminator, shown)).mean()
                _step(steps[0], fooling + training.reconstruction_weight * error)
    return _plain(reconstructor), _plain(discriminator)


def _telling_apart(discriminator: Weights, real: Tensor, made: Tensor) -> Tensor:
    """-log D(x) - log(1 - D(R(x + noise)))."""
    return (
        F.softplus(-realness(discriminator, real)).mean() + F.softplus(realness(discriminator, made)).mean()
    )


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    # `inputs` keeps the reconstructor's loss from leaving gradients on the discriminator.
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    optimizer.zero_grad()
    torch.autograd.backward(loss, inputs=parameters)
    optimizer.step()


def _optimizer(training: Training, weights: Weights) -> torch.optim.Optimizer:
    kind = OPTIMIZERS[training.optimizer]
    return kind(list(weights.values()), lr=training.learning_rate)  # type: ignore[call-arg]


def _plain(weights: Weights) -> Weights:
    return {name: weight.detach() for name, weight in weights.items()}


def _image(weights: Weights, images: Tensor) -> Tensor:
    """Strided convolutions to a small code; resizing to each earlier size and convolutions back."""
    sizes = []
    for name in _names(weights, "encode"):
        sizes.append(images.shape[2:])
        images = _rectified(_convolved(weights, name, images, stride=2))
    images = _convolved(weights, "code", images)
    for name, size in zip(_names(weights, "decode"), reversed(sizes), strict=True):
        images = _rectified(_convolved(weights, name, F.interpolate(images, size=list(size))))
    return _convolved(weights, "output", images)


def _perceptron(weights: Weights, rows: Tensor) -> Tensor:
    for name in _names(weights, "dense"):
        rows = _rectified(F.linear(rows, weights[name], weights[f"{name}.bias"]))
    return F.linear(rows, weights["output"], weights["output.bias"])


def _convolved(weights: Weights, name: str, images: Tensor, stride: int = 1) -> Tensor:
    kernel = weights[name]
    return F.conv2d(images, kernel, weights[f"{name}.bias"], stride, padding=kernel.shape[2] // 2)


def _rectified(values: Tensor) -> Tensor:
    return F.leaky_relu(values, SLOPE)


def _names(weights: Weights, part: str) -> list[str]:
    return [name for name in weights if name.startswith(part) and not name.endswith(".bias")]


def _reconstructor(shape: Sequence[int], generator: torch.Generator) -> Weights:
    if len(shape) == 1:
        width, hidden = shape[0], _hidden(shape[0])
        code = max(1, width // 4)
        layers: Sizes = {"dense.0": (hidden, width), "dense.1": (code, hidden), "dense.2": (hidden, code)}
        return _initial(layers | {"output": (width, hidden)}, generator)
    channels, height, width = shape
    widths = _widths(shape)
    shrink = 2 ** len(widths)
    area = -(-height // shrink) * -(-width // shrink)
    code = max(1, channels * height * width // (COMPRESSION * area))
    back = [code, *reversed(widths)]
    sizes: Sizes = _encoder(channels, widths) | {"code": (code, widths[-1], 1, 1)}
    sizes |= {f"decode.{n}": (back[n + 1], back[n], 3, 3) for n in range(len(widths))}
    return _initial(sizes | {"output": (channels, widths[0], 3, 3)}, generator)


def _discriminator(shape: Sequence[int], generator: torch.Generator) -> Weights:
    if len(shape) == 1:
        hidden = _hidden(shape[0])
        return _initial({"dense.0": (hidden, shape[0]), "output": (1, hidden)}, generator)
    widths = _widths(shape)
    return _initial(_encoder(shape[0], widths) | {"output": (1, widths[-1])}, generator)


def _encoder(channels: int, widths: Sequence[int]) -> Sizes:
    before = [channels, *widths]
    return {f"encode.{n}": (width, before[n], 3, 3) for n, width in enumerate(widths)}


def _widths(shape: Sequence[int]) -> list[int]:
    """Channels after each halving: two halvings, three for images of at least 16 x 16."""
    return [16, 32, 64] if min(shape[1:]) >= 16 else [16, 32]


def _hidden(width: int) -> int:
    return min(128, max(16, 2 * width))


def _initial(sizes: Sizes, generator: torch.Generator) -> Weights:
    """Weights by He et al. 2015 for leaky rectifiers, biases zero."""
    weights = {}
    for name, size in sizes.items():
        weights[name] = torch.nn.init.kaiming_uniform_(torch.empty(size), SLOPE, generator=generator)
        weights[f"{name}.bias"] = torch.zeros(size[0])
    return {name: weight.requires_grad_() for name, weight in weights.items()}
