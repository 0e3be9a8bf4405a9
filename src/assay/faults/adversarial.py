"""Adversarial faults: FGSM, PGD, and random signs as the baseline that does not know the network.

An attack is a direction of norm 1 and a length: the direction costs one gradient, every length after that
only an addition. To sweep epsilon, call `fgsm_direction` once and `attacked` for every length.

Inputs are a tensor, or a dict with one floating-point tensor, which is moved; text is attacked in its
embeddings, `network.embed(network.encode(texts))`. `low` and `high` bound the result: [0, 1] for images;
None and None where inputs have no bounds.
"""

from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.faults.norms import Norm, check_norm, inside, projected, random_signs, steepest
from assay.network import Network, length, perturbable, replaced
from assay.trace import Inputs, Trace


def fgsm_direction(network: Network, inputs: Inputs, labels: Any = None, norm: Norm = "linf") -> Tensor:
    """The direction of norm 1 in which the loss of each input rises most steeply (Goodfellow et al. 2015).

    Without labels, the network's own predictions are attacked. Where an input has several predictions, the
    loss is the sum over them. One forward and one backward pass.
    """
    check_norm(norm)
    return steepest(network.gradient(inputs, _lead, labels), norm)


def attacked(
    inputs: Inputs,
    direction: Tensor,
    epsilon: float,
    *,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Inputs:
    """The inputs moved by epsilon along `direction` and cut to [low, high].

    >>> attacked(torch.tensor([[0.5, 0.9]]), torch.tensor([[-1.0, 1.0]]), 0.25)
    tensor([[0.2500, 1.0000]])
    """
    moving = perturbable(inputs)
    if moving.shape != direction.shape:
        raise InputError(
            f"expected a direction of shape {tuple(moving.shape)} like the inputs, got "
            f"{tuple(direction.shape)}; take it from the same inputs (text: embed it first)"
        )
    if not epsilon >= 0:
        raise InputError(f"expected epsilon of at least 0, got {epsilon}")
    return replaced(inputs, _bounded(torch.add(moving, direction.to(moving), alpha=epsilon), low, high))


def fgsm(
    network: Network,
    inputs: Inputs,
    labels: Any,
    epsilon: float,
    norm: Norm = "linf",
    *,
    low: float | None = 0.0,
    high: float | None = 1.0,
) -> Inputs:
    """One step of length epsilon along `fgsm_direction`."""
    return attacked(inputs, fgsm_direction(network, inputs, labels, norm), epsilon, low=low, high=high)


def pgd(
    network: Network,
    inputs: Inputs,
    labels: Any,
    epsilon: float,
    norm: Norm = "linf",
    *,
    steps: int = 10,
    low: float | None = 0.0,
    high: float | None = 1.0,
    seed: int = 0,
) -> Inputs:
    """Projected gradient ascent from a random start in the ball (Madry et al. 2018).

    Steps of 2.5 epsilon / steps, so that every point of the ball can be reached. Costs `steps` gradients.
    """
    check_norm(norm)
    if steps < 1:
        raise InputError(f"expected at least one step, got {steps}")
    origin = perturbable(inputs)
    labels = _own_answers(network, inputs) if labels is None else labels
    if epsilon == 0:
        return inputs
    start = inside(origin, epsilon, norm, torch.Generator().manual_seed(seed))
    moved = attacked(inputs, start, 1.0, low=low, high=high)
    for _ in range(steps):
        direction = fgsm_direction(network, moved, labels, norm)
        ahead = attacked(moved, direction, 2.5 * epsilon / steps, low=None, high=None)
        # Ball first, box second: cutting to the box never moves a point further from an origin inside it.
        delta = projected(perturbable(ahead) - origin, epsilon, norm)
        moved = attacked(inputs, delta, 1.0, low=low, high=high)
    return moved


def random_sign(
    inputs: Inputs,
    epsilon: float,
    norm: Norm = "linf",
    *,
    low: float | None = 0.0,
    high: float | None = 1.0,
    seed: int = 0,
) -> Inputs:
    """A step of the same length as FGSM's with random signs: what is lost to noise, not to the attack."""
    check_norm(norm)
    if not length(inputs):
        raise InputError("expected at least one input to attack, got none")
    return attacked(inputs, random_signs(perturbable(inputs), norm, seed), epsilon, low=low, high=high)


def _lead(trace: Trace) -> Tensor:
    """m = log sum_{k != y} exp f_k - f_y: how far the other classes together lead over the label.

    Cross-entropy is log(1 + exp m), so its gradient is this one times sigmoid(m) > 0: the same direction.
    But sigmoid(m) rounds to 0 where the network is sure, and the attack would stand still there.
    """
    own = (trace.predictions if trace.labels is None else trace.labels)[:, None]
    others = trace.logits.scatter(1, own, -torch.inf)
    return others.logsumexp(dim=1) - trace.logits.gather(1, own)[:, 0]


def _own_answers(network: Network, inputs: Inputs) -> Tensor:
    """The predictions to be attacked in every step where labels are not known."""
    if network.rows is not None:
        raise InputError(
            f"expected labels to attack {network!r}, which has several predictions per input, got none; pass "
            "the labels of the inputs"
        )
    return network.observe(inputs).predictions


def _bounded(moved: Tensor, low: float | None, high: float | None) -> Tensor:
    return moved if low is None and high is None else moved.clamp(low, high)
