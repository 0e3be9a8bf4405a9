"""How far a neuron's value can go when every input value lies in a known range (Lemma 1).

Interval bound propagation over the traced module: one pass, which costs about three forward passes of a
single input in double precision.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from assay.errors import InputError
from assay.network import Network
from assay.network.feature_pooling import channels_first, pooled
from assay.network.taps import PENULTIMATE, evaluating
from assay.reshaping.bounds import linear, operations
from assay.reshaping.bounds.linear import LinearBounds
from assay.reshaping.bounds.operations import Interval

Limit = float | Tensor
REMEDY = "use Bins.from_data with a margin instead, which counts what falls outside in overflow bins"
LARGEST_SIDE = 256
MOST_SIZES = 8
# What tracing raises if a forward pass does something to its input that needs a real tensor.
UNTRACEABLE = (TypeError, NotImplementedError, RuntimeError, ValueError, AttributeError, KeyError)


def neuron_bounds(
    network: Network,
    layers: Sequence[str],
    low: Limit = 0.0,
    high: Limit = 1.0,
    *,
    shape: Sequence[int] | None = None,
    sharper: bool = False,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Lowest and highest value, (d,) each, of every neuron of the layers, as `Network.observe` pools them.

    `shape` of one input is taken from `low` or `high` where these are tensors, and from a module that begins
    with a Linear; for a convolution, square sizes up to 256 that the module accepts are tried, and the bounds
    cover all of them where there are at most eight. `sharper` follows each value as linear functions of the
    input through Linear, ReLU and flattening layers, for networks made of these.
    """
    known = {PENULTIMATE, *(name for name, _ in network.module.named_modules())}
    if unknown := [name for name in layers if name not in known]:
        raise InputError(f"expected layers of the network, got {unknown}; choose from its module names")
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with torch.no_grad(), evaluating(list(network.module.modules())):
        for size in _input_shapes(network.module, low, high, shape):
            box = _input_box(low, high, size)
            plain = _enclosures(network.module, layers, box, INTERVALS)
            closer = _enclosures(network.module, layers, LinearBounds.over(box), LINEAR) if sharper else plain
            for name in layers:
                ends = _pooled(network, name, _intersection(plain[name], closer[name]))
                found[name] = _hull(found.get(name), ends)
    return found


@dataclass(frozen=True, eq=False)
class Rules:
    """How one kind of enclosure passes through operations."""

    kind: type
    module_rule: Callable[[nn.Module], Callable[..., Any] | None]
    functions: Mapping[Any, Callable[..., Any]]
    methods: Mapping[str, Callable[..., Any]]
    remedy: str


INTERVALS = Rules(Interval, operations.module_rule, operations.FUNCTIONS, operations.METHODS, REMEDY)
LINEAR = Rules(
    LinearBounds, linear.module_rule, linear.FUNCTIONS, linear.METHODS, "leave sharper=False for this network"
)


def _enclosures(module: nn.Module, layers: Sequence[str], box: Any, rules: Rules) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    try:
        _Propagation(module, frozenset(layers), seen, "", rules).run(box)
    except RuntimeError as error:
        raise InputError(
            f"expected inputs of a shape that {type(module).__name__} takes, got "
            f"{tuple(_tensor_like(box).shape[1:])} ({error}); pass shape="
        ) from error
    if missing := [name for name in layers if name not in seen]:
        raise InputError(f"expected layers that run in the forward pass, got {missing}; choose others")
    return {name: seen[name] for name in layers}


class _Tracer(fx.Tracer):
    """Stops at watched containers, so that their own output is seen."""

    def __init__(self, watched: frozenset[str], rules: Rules) -> None:
        super().__init__()
        self.watched, self.rules = watched, rules

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        known = self.rules.module_rule(module) is not None
        return name in self.watched or known or super().is_leaf_module(module, name)


class _Propagation(fx.Interpreter):
    """Runs a module on an interval, and notes the values of the watched layers."""

    def __init__(
        self, module: nn.Module, layers: frozenset[str], seen: dict[str, Any], prefix: str, rules: Rules
    ) -> None:
        inside = {name.removeprefix(prefix) for name in layers if name.startswith(prefix)} - {""}
        try:
            graph = _Tracer(frozenset(inside), rules).trace(module)
        except (fx.proxy.TraceError, *UNTRACEABLE) as error:
            raise InputError(
                f"expected a module whose forward pass can be traced, got {type(module).__name__} "
                f"({error}); {REMEDY}"
            ) from error
        super().__init__(module, graph=graph)
        self.extra_traceback = False  # errors are for people: one sentence
        self.layers, self.seen, self.prefix, self.rules = layers, seen, prefix, rules

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args and len(kwargs) == 1:  # Linear(input=x)
            args, kwargs = tuple(kwargs.values()), {}
        layer = self.fetch_attr(target)
        name = f"{self.prefix}{target}"
        rule = self.rules.module_rule(layer)
        if isinstance(layer, nn.Linear):
            self.seen[PENULTIMATE] = args[0]
        if rule is not None and len(args) == 1 and not kwargs:
            result = self._apply(rule, f"{type(layer).__name__} ({name})", args, {})
        elif any(True for _ in layer.children()):
            result = _Propagation(layer, self.layers, self.seen, f"{name}.", self.rules).run(*args)
        else:
            raise self._unsupported(f"{type(layer).__name__} ({name})")
        if name in self.layers:
            self.seen[name] = result
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is getattr and isinstance(args[0], self.rules.kind):
            return getattr(_tensor_like(args[0]), args[1])
        if not _contains(self.rules.kind, [args, kwargs]):
            return super().call_function(target, args, kwargs)
        if target not in self.rules.functions:
            raise self._unsupported(getattr(target, "__name__", str(target)))
        return self._apply(
            self.rules.functions[target], getattr(target, "__name__", str(target)), args, kwargs
        )

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in ("size", "dim") and isinstance(args[0], self.rules.kind):
            return getattr(_tensor_like(args[0]), target)(*args[1:], **kwargs)
        if not _contains(self.rules.kind, [args, kwargs]):
            return super().call_method(target, args, kwargs)
        if target not in self.rules.methods:
            raise self._unsupported(f"Tensor.{target}")
        return self._apply(self.rules.methods[target], f"Tensor.{target}", args, kwargs)

    def _apply(self, rule: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kwargs = {key: value for key, value in kwargs.items() if key not in ("inplace", "training")}
        try:
            return rule(*args, **kwargs)
        except NotImplementedError as error:
            raise self._unsupported(name) from error

    def _unsupported(self, name: str) -> InputError:
        return InputError(f"expected operations whose bounds are known, got {name}; {self.rules.remedy}")


def _tensor_like(value: Any) -> Tensor:
    """A tensor with the shape of the enclosed value."""
    low: Tensor = value.low
    return low


def _contains(kind: type, value: Any) -> bool:
    if isinstance(value, kind):
        return True
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(_contains(kind, item) for item in value)


def _intersection(plain: Interval, closer: Any) -> Interval:
    """The values that both enclosures allow."""
    other: Interval = closer.interval if isinstance(closer, LinearBounds) else closer
    return Interval(torch.maximum(plain.low, other.low), torch.minimum(plain.high, other.high))


def _pooled(network: Network, name: str, interval: Interval) -> tuple[Tensor, Tensor]:
    """One number per neuron: pooling by name never decreases, so lower ends pool to lower ends."""
    pool = network.pool.get(name) if isinstance(network.pool, Mapping) else network.pool
    if callable(pool):
        raise InputError(f"expected a named pool for layer {name!r}, got a function; {REMEDY}")
    first = name != PENULTIMATE and channels_first(network.module.get_submodule(name))
    rows = [pooled(end, pool, None, first)[0] for end in (interval.low, interval.high)]
    if interval.low.ndim > 2:  # a mean in single precision rounds once more
        share = operations.UNIT * (interval.low[0].numel() + 16)
        sizes = [pooled(end.abs(), pool, None, first)[0] for end in (interval.low, interval.high)]
        return rows[0] - share * sizes[0], rows[1] + share * sizes[1]
    return rows[0], rows[1]


def _hull(a: tuple[Tensor, Tensor] | None, b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return b if a is None else (torch.minimum(a[0], b[0]), torch.maximum(a[1], b[1]))


def _input_box(low: Limit, high: Limit, shape: Sequence[int]) -> Interval:
    ends = [torch.as_tensor(end, dtype=torch.float64) for end in (low, high)]
    if any(torch.isnan(end).any() or torch.isinf(end).any() for end in ends):
        raise InputError(f"expected finite limits of the input values, got low={low}, high={high}")
    box = Interval(*(end.expand(tuple(shape))[None].clone() for end in ends))
    if bool((box.low > box.high).any()):
        raise InputError(f"expected low below high, got low={low}, high={high}; swap them")
    return box


def _input_shapes(
    module: nn.Module, low: Limit, high: Limit, shape: Sequence[int] | None
) -> list[tuple[int, ...]]:
    for limit in (low, high):
        if shape is None and isinstance(limit, Tensor) and limit.ndim:
            shape = limit.shape
    if shape is not None:
        return [tuple(shape)]
    first = next(
        (part for part in module.modules() if isinstance(getattr(part, "weight", None), Tensor)), None
    )
    if isinstance(first, nn.Linear):
        return [(first.in_features,)]
    found = _accepted_shapes(module, first) if isinstance(first, nn.Conv1d | nn.Conv2d | nn.Conv3d) else []
    if not 0 < len(found) <= MOST_SIZES:
        raise InputError(
            f"expected the shape of one input, which {type(module).__name__} does not show; "
            "pass shape=(channels, height, width)"
        )
    return found


def _accepted_shapes(module: nn.Module, first: Any) -> list[tuple[int, ...]]:
    """Square inputs that run through the module: accepted sizes are consecutive, so the search ends early."""
    found: list[tuple[int, ...]] = []
    for side in range(1, LARGEST_SIDE + 1):
        shape = (first.in_channels, *(side,) * (first.weight.ndim - 2))
        try:
            module(first.weight.new_zeros(1, *shape))
        except (RuntimeError, ValueError):
            if found:
                break
            continue
        found.append(shape)
        if len(found) > MOST_SIZES:
            break
    return found
