"""Which parts of a check a network cannot take part in, and why."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from assay.errors import GradientError, InputError
from assay.faults import ADVERSARIAL, Attack, Template
from assay.monitors.monitor import Monitor
from assay.network import Network, rows
from assay.trace import Trace

NO_LAYERS = "the network has no layers that can be watched"

Reasons = dict[str, str]
"""By the name of a part of a check, why it was left out."""


def gradient_obstacle(network: Network, inputs: Any) -> str:
    """Why no gradient with respect to the inputs can be had; empty where one can. One backward pass."""
    if not getattr(network.module, "differentiable", True):
        return "the network is a black box without gradients"
    encoded = network.embed(network.encode(rows(inputs, slice(0, 2))))
    try:
        network.gradient(encoded, _largest_logit)
    except (GradientError, InputError) as error:
        return str(error).rstrip(".")
    except (RuntimeError, NotImplementedError) as error:  # an operation without a derivative, as in int8
        return f"its forward pass has no gradient ({' '.join(str(error).split())[:200]})"
    return ""


def usable_monitors(
    candidates: Mapping[str, Monitor], network: Network, obstacle: str, left_out: Reasons
) -> dict[str, Monitor]:
    """The candidates that this network can have; the others go to `left_out`."""
    usable = {}
    for name, monitor in candidates.items():
        if monitor.layers and not network.layers:
            left_out[name] = NO_LAYERS
        elif monitor.needs.backward and obstacle:
            left_out[name] = obstacle
        else:
            usable[name] = monitor
    if not usable:
        raise InputError(
            f"expected a monitor that {network!r} can have, got {sorted(candidates)}; use one that reads "
            "logits or inputs, such as MaxSoftmax"
        )
    return usable


def usable_faults(
    asked: Iterable[str | Template | Attack] | None, obstacle: str, left_out: Reasons
) -> list[str | Template | Attack] | None:
    """The faults asked for without attacks that need a gradient which there is not; None asks for the usual
    ones, to which FGSM belongs where it can be had."""
    if asked is None:
        if obstacle:
            left_out["fgsm"] = obstacle
        return None
    kept: list[str | Template | Attack] = []
    for fault in asked:
        attack = ADVERSARIAL.get(fault) if isinstance(fault, str) else fault
        if obstacle and isinstance(attack, Attack) and attack.method != "random_sign":
            left_out[attack.name] = obstacle
        else:
            kept.append(fault)
    return kept


def _largest_logit(trace: Trace) -> torch.Tensor:
    return trace.logits.amax(dim=1)
