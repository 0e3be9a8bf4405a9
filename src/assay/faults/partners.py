"""Which input is mixed with which, and the mixtures that inputs of every shape share."""

import torch
from torch import Tensor


def partners(count: int, generator: torch.Generator) -> Tensor:
    """(count,): for every row another one; each is taken once, and none by itself.

    >>> taken = partners(5, torch.Generator().manual_seed(0))
    >>> sorted(taken.tolist()), bool((taken == torch.arange(5)).any())
    ([0, 1, 2, 3, 4], False)
    """
    order = torch.randperm(count, generator=generator)
    # Each row takes from the next in one random round.
    return torch.empty_like(order).scatter_(0, order, order.roll(1))


def others(values: Tensor, generator: torch.Generator) -> Tensor:
    """For every row of (N, ...) the one it is mixed with."""
    return values[partners(len(values), generator)]


def blended(values: Tensor, generator: torch.Generator) -> Tensor:
    """The mean of two inputs."""
    return (values + others(values, generator)) / 2


def shuffled_values(values: Tensor, generator: torch.Generator, held: Tensor | None = None) -> Tensor:
    """The rows of every place of (N, ...) permuted on their own: marginals stay, what belongs together parts.

    Rows that are `held` in a place stay there, and the others are permuted among themselves.
    """
    flat = values.flatten(1)
    keys = torch.rand(flat.shape, generator=generator)
    if held is None:
        return flat.gather(0, keys.argsort(dim=0)).view_as(values)
    # Rows that are held come last in both orders, in their own order, and so stay where they are.
    fixed = held.flatten(1)
    order = keys.masked_fill(fixed, 2.0).argsort(dim=0, stable=True)
    places = fixed.int().argsort(dim=0, stable=True)
    return torch.empty_like(flat).scatter_(0, places, flat.gather(0, order)).view_as(values)
