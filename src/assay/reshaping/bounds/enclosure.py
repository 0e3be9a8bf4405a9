"""Enclosure: what a value of a network may be, in place of the value.

A network runs on it as on any tensor, by its own Python code: `__torch_function__` takes every operation of
torch and applies the rule that says what the operation does to all values enclosed. So nothing is traced,
layers of other authors work if their operations have rules, and an operation without a rule is named.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from assay.errors import InputError

if TYPE_CHECKING:
    from assay.reshaping.bounds.interval import Interval

Rule = Callable[..., Any]
"""What an operation does to enclosures; takes what the operation takes. NotImplementedError: cannot say."""

METADATA = frozenset([
    "shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "dtype", "itemsize",
    "device", "get_device", "layout", "stride", "is_contiguous", "element_size", "data_ptr", "names",
    "requires_grad", "grad_fn", "is_leaf", "is_floating_point", "is_complex", "is_inference", "grad",
    "is_cuda", "is_cpu", "is_mps", "is_xpu", "is_meta", "is_sparse", "is_quantized", "is_nested",
])  # fmt: skip
"""What does not depend on values: the answer is that of a tensor of the same shape."""

_DECISIONS = frozenset([
    "__bool__", "gt", "ge", "lt", "le", "eq", "ne", "isnan", "isinf", "isfinite", "any", "all", "__gt__",
    "__ge__", "__lt__", "__le__", "__eq__", "__ne__", "item", "__float__", "__int__", "tolist",
])  # fmt: skip

_running: ContextVar[list[str]] = ContextVar("running")
"""The layers under way, the innermost last."""


class Enclosure(Tensor):
    """A tensor without numbers, of one input; subclasses keep what encloses it, and the rules for that."""

    rules: ClassVar[Mapping[Any, Rule]]
    """By function, where two functions of the same name take different arguments, or by name."""

    remedy: ClassVar[str]
    """What to do about an operation without a rule."""

    @staticmethod
    def __new__(cls, shape: torch.Size) -> Self:
        wrapper: Self = Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)
        return wrapper

    @abstractmethod
    def become(self, other: Any) -> None:
        """Take over what encloses `other`, as an operation in place does; views of this one change, too."""

    @property
    @abstractmethod
    def interval(self) -> "Interval":
        """Two numbers between which the value lies."""

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({tuple(self.shape)})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = {key: value for key, value in (kwargs or {}).items() if value is not None}
        name = _name(func)
        if name in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **options)
        in_place = options.pop("inplace", False) or (name.endswith("_") and not name.endswith("__"))
        rule = cls.rules.get(func) or cls.rules.get(name.rstrip("_") if in_place else name)
        if rule is None:
            raise cls._unknown(name)
        try:
            result = rule(*args, **options)
        except (NotImplementedError, TypeError) as error:  # the latter for options that the rule lacks
            raise cls._unknown(name) from error
        if in_place and not isinstance(args[0], Enclosure):
            raise cls._unknown(name)  # a plain tensor cannot hold it
        if in_place:
            args[0].become(result)
            return args[0]
        return result

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise cls._unknown(str(func))  # it would compute with numbers that are not there

    @classmethod
    def _unknown(cls, name: str) -> InputError:
        running = _running.get([])
        where = f" in {running[-1]}" if running else ""
        what = "a decision by values" if name in _DECISIONS else name.strip("_")
        return InputError(f"expected operations whose bounds are known, got {what}{where}; {cls.remedy}")


def _name(function: Any) -> str:
    """`add` for `torch.add`, `Tensor.add` and `+`; `add_` in place."""
    if isinstance(function, torch._ops.OpOverload):
        return str(function._schema.name).partition("::")[2]
    name: str = function.__name__
    return str(function.__self__.__name__) if name == "__get__" else name


@contextmanager
def located(module: nn.Module) -> Iterator[None]:
    """Errors inside name the layer, as in "Softmax (blocks.0.attention)"."""
    running: list[str] = []
    token = _running.set(running)
    handles = []
    try:
        for name, part in module.named_modules():
            place = f"{type(part).__name__} ({name})" if name else type(part).__name__
            handles.append(part.register_forward_pre_hook(_entering(running, place)))
            handles.append(part.register_forward_hook(lambda *_: running.pop() and None))
        yield
    finally:
        for handle in handles:
            handle.remove()
        _running.reset(token)


def _entering(running: list[str], place: str) -> Callable[..., None]:
    return lambda *_: running.append(place)
