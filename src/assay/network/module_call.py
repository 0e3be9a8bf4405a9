"""One call of a module on encoded inputs, with what went wrong in a sentence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import AssayError, GradientError, InputError
from assay.network.inputs import Form, described, form_of, shapes
from assay.network.watched_layers import input_advice
from assay.trace import Inputs


def output_of(module: nn.Module, inputs: Inputs, form: Form, run: Callable[..., Any] | None = None) -> Any:
    """What the module returns, or what `run` does in its place. `form` is that of inputs that it took before,
    if there were any."""
    if _requires_grad(inputs) and not getattr(module, "differentiable", True):
        raise GradientError(
            f"expected a network with gradients, got the black box {type(module).__name__}; use a "
            "method that needs only logits and features, or the original torch module"
        )
    call = run or module
    try:
        return call(inputs) if isinstance(inputs, Tensor) else call(**inputs)
    except (AssayError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError) as error:
        _check_tokens(module, inputs, error)
        if isinstance(inputs, Tensor) and not inputs.is_floating_point():
            raise InputError(
                f"expected floating-point inputs as in training (images usually in [0, 1]), "
                f"got {shapes(inputs)}; convert, for example inputs.float() / 255"
            ) from error
        if _took_before(inputs, form):  # so the fault is not in the inputs
            error.add_note(f"assay: in the forward pass of {type(module).__name__}")
            raise
        like = f" such as {described(form)}" if form else ""
        reason = " ".join(str(error).split())
        raise InputError(
            f"expected inputs that {type(module).__name__} takes{like}, got "
            f"{described(form_of(inputs))}, on which its forward pass fails ({reason}); "
            f"{input_advice(module)}"
        ) from error


def _check_tokens(module: nn.Module, inputs: Inputs, error: Exception) -> None:
    """An error for token ids that none of the module's embeddings has."""
    ids = inputs if isinstance(inputs, Tensor) else inputs.get("input_ids")
    known = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    if ids is None or ids.is_floating_point() or not known or not ids.numel():
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= max(known):
        raise InputError(
            f"expected token ids from 0 to {max(known) - 1}, the embeddings of {type(module).__name__}, got "
            f"{low} to {high}; use the tokenizer that it was trained with"
        ) from error


def _took_before(inputs: Inputs, form: Form) -> bool:
    """Whether inputs of this shape have gone through the module already."""
    given = form_of(inputs)
    return bool(form) and all(name in given and shape == given[name][0] for name, (shape, _) in form.items())


def _requires_grad(inputs: Inputs) -> bool:
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs.values())
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
