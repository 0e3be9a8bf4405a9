"""How far a neuron's value can go when every input value lies in a known range (Lemma 1).

The module runs once on an interval instead of numbers, which costs about three forward passes of a single
input in double precision.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.network import Network
from assay.network.compiled import as_written, uncompiled
from assay.network.feature_pooling import pooled
from assay.network.inputs import HALF
from assay.network.taps import evaluating, first_tensor, modules_of
from assay.network.watched_layers import check_layers, listening, silence
from assay.reshaping.bounds import operations, products, standardisation
from assay.reshaping.bounds.enclosure import Enclosure, located
from assay.reshaping.bounds.input_box import InputBox, Limit, boxes
from assay.reshaping.bounds.interval import REMEDY, UNIT, Interval
from assay.reshaping.bounds.linear import LinearBounds
from assay.reshaping.bounds.reach import Ends, NeuronBounds

Interval.rules = {**operations.RULES, **products.RULES, **standardisation.RULES}

Seen = dict[str, tuple[Interval, bool]]
"""What each layer made, and whether its channels come before positions."""


def neuron_bounds(
    network: Network,
    layers: Sequence[str],
    low: Limit = 0.0,
    high: Limit = 1.0,
    *,
    shape: Sequence[int] | None = None,
    sharper: bool = False,
) -> NeuronBounds:
    """Lowest and highest value, (d,) each, of every neuron of the layers, as `Network.observe` pools them.

    `low` and `high` bound every value that goes into the module. `shape` of one input is taken from them
    where these are tensors, and from a module that begins with a Linear; for a convolution, square sizes up
    to 256 that the module accepts are tried, and the bounds cover all of them where there are at most eight.
    Of a Hugging Face classifier the bounds hold for every text of at most `max_length` tokens, and `low`,
    `high` and `shape` are not used. `sharper` follows each value as linear functions of the input through
    Linear, ReLU and flattening layers, for networks made of these.
    """
    module = uncompiled(network.module)
    _check(network, module, layers)
    found: dict[str, Ends] = {}
    covered = boxes(network, low, high, shape)
    for box in covered:
        plain = _enclosed(network, layers, box.interval, box)
        closer = _enclosed(network, layers, LinearBounds.over(box.interval), box) if sharper else plain
        for name in layers:
            interval, channels_first = plain[name]
            ends = _pooled(network, name, interval.within(closer[name][0]), channels_first)
            found[name] = _hull(found.get(name), ends)
    return NeuronBounds(found, partial(_reached, network, tuple(layers), covered))


def _enclosed(network: Network, layers: Sequence[str], value: Enclosure, box: InputBox) -> Seen:
    """What the layers make of the value."""
    module = uncompiled(network.module)
    parts = modules_of(module)
    seen: Seen = {}

    def note(name: str, output: Tensor, channels_first: bool) -> Tensor:
        assert isinstance(output, Enclosure)
        enclosed = output.interval
        seen[name] = Interval(enclosed.low.clone(), enclosed.high.clone()), channels_first
        return torch.empty(0)

    run = partial(network._run, box.around(value))
    with (
        torch.no_grad(),
        evaluating(parts),
        as_written(parts),
        products.varying_masks() if box.is_text else nullcontext(),
        located(module),
        listening(module, layers, parts, None, note) as taps,
    ):
        logits = first_tensor(_logits(run(taps.run)), "the module")
    taps.features(layers, logits.shape[-1])
    if missing := [name for name in layers if name not in seen]:
        raise silence(missing[0], module, partial(run, module))
    return seen


def _logits(output: Any) -> Any:
    return output["logits"] if isinstance(output, Mapping) and "logits" in output else output


def _check(network: Network, module: nn.Module, layers: Sequence[str]) -> None:
    if isinstance(module, torch.jit.ScriptModule) or not getattr(module, "differentiable", True):
        raise InputError(
            f"expected a torch module, whose operations have bounds, got {network!r}, which runs elsewhere; "
            f"pass the module it was made from, or {REMEDY}"
        )
    check_layers(module, layers)
    if halves := {tensor.dtype for tensor in module.parameters() if tensor.dtype in HALF}:
        raise InputError(
            f"expected a network in single precision, whose rounding the bounds include, got {halves.pop()}; "
            "pass network.in_single_precision()"
        )


def _pooled(network: Network, name: str, interval: Interval, channels_first: bool) -> Ends:
    """One number per neuron: pooling by name never decreases, so lower ends pool to lower ends."""
    pool = network._pool_of(name)
    if callable(pool):
        raise InputError(f"expected a named pool for layer {name!r}, got a function; {REMEDY}")
    if network.embeds and interval.dim() == 3 and pool != "first":
        # Which tokens count depends on the text: any one of them, or a mean of some.
        return interval.low[0].amin(dim=0), interval.high[0].amax(dim=0)
    rows = [pooled(end, pool, None, channels_first)[0] for end in (interval.low, interval.high)]
    if interval.dim() == 2:
        return rows[0], rows[1]
    # A mean in single precision rounds once more.
    share = UNIT * (interval.low[0].numel() + 16)
    sizes = [pooled(end.abs(), pool, None, channels_first)[0] for end in (interval.low, interval.high)]
    return rows[0] - share * sizes[0], rows[1] + share * sizes[1]


def _hull(a: Ends | None, b: Ends) -> Ends:
    return b if a is None else (torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1]))


def _reached(network: Network, layers: tuple[str, ...], covered: Sequence[InputBox]) -> dict[str, Ends]:
    """Smallest and largest value of every neuron over a handful of inputs from every box."""
    watching = network.watching(layers)
    found: dict[str, Ends] = {}
    for box in covered:
        trace = watching.observe(box.samples())
        for name in layers:
            features = trace.layer(name).double()
            found[name] = _hull(found.get(name), (features.amin(dim=0), features.amax(dim=0)))
    return found
