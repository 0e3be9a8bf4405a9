"""Three small classifiers of 8x8 digits with different shapes, trained in seconds from a seed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from assay.demo.adam import Adam


def small_cnn(classes: int = 10) -> nn.Module:
    """Two convolutions, 64 features."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    )


def wide_mlp(classes: int = 10) -> nn.Module:
    """One wide hidden layer, 128 features; with dropout."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, classes)
    )


def deep_mlp(classes: int = 10) -> nn.Module:
    """Four narrow hidden layers, 16 features."""
    sizes = [64, 16, 16, 16, 16]
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise(sizes):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "small CNN": small_cnn,
    "wide MLP": wide_mlp,
    "deep MLP": deep_mlp,
}


def trained(
    architecture: Callable[[int], nn.Module],
    data: tuple[Tensor, Tensor],
    *,
    seed: int = 0,
    epochs: int = 60,
    batch_size: int = 64,
) -> nn.Module:
    """The network after `epochs` of Adam on a cosine schedule; the same seed gives the same weights."""
    inputs, labels = data
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        module = architecture(int(labels.max()) + 1)
        optimiser = Adam(module.parameters(), 3e-3, steps=epochs * -(-len(inputs) // batch_size))
        for _ in range(epochs):
            for part in torch.split(torch.randperm(len(inputs)), batch_size):
                loss = nn.functional.cross_entropy(module(inputs[part]), labels[part])
                optimiser.step(torch.autograd.grad(loss, optimiser.parameters))
    return module.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """For tensors this small, a second thread costs more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def without(data: tuple[Tensor, Tensor], classes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The rows of all other classes."""
    inputs, labels = data
    kept = ~torch.isin(labels, torch.tensor(classes))
    return inputs[kept], labels[kept]
