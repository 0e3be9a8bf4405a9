"""Time of `assay.mira_score` against 30 plain forward passes and against a naive implementation."""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import assay
from assay.mira import surprisal

STEPS = 30
THRESHOLD = 0.4

Pair = tuple[Tensor, Tensor]


def naive(module: nn.Module, head: str, train: Pair, test: Pair, low: float) -> float:
    """The same score with a new gradient at every epsilon; it gets the range for free."""
    seen: list[Tensor] = []
    hook = module.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    def features(inputs: Tensor) -> Tensor:
        seen.clear()
        with torch.no_grad():
            for part in torch.split(inputs, 256):
                module(part)
        return torch.cat(seen).double()

    def surprise(inputs: Tensor) -> float:
        rows = features(inputs)
        distances = torch.stack([(((rows - mean) @ inverse) * (rows - mean)).sum(1) for mean in means])
        return float(surprisal(distances.amin(0).numpy(), rows.shape[1]).mean())

    fitted = features(train[0])
    known = [fitted[train[1] == label] for label in train[1].unique()]
    means = [rows.mean(0) for rows in known]
    centred = torch.cat([rows - mean for rows, mean in zip(known, means, strict=True)])
    inverse = torch.linalg.pinv(centred.T @ centred / len(centred))
    values = []
    baseline = surprise(test[0])
    for epsilon in np.linspace(low, 2 * low, STEPS):
        moved = []
        for inputs, labels in zip(torch.split(test[0], 256), torch.split(test[1], 256), strict=True):
            moving = inputs.clone().requires_grad_()
            torch.autograd.backward(nn.functional.cross_entropy(module(moving), labels))
            assert moving.grad is not None
            moved.append(inputs + epsilon * moving.grad.sign())
        values.append(surprise(torch.cat(moved)))
    hook.remove()
    return float(np.mean(values) / baseline - 1)


def seconds(run: Callable[[], object]) -> float:
    """Processor time, which other work on the machine disturbs least."""
    start = time.process_time()
    run()
    return time.process_time() - start


def ratios(module: nn.Module, train: Pair, test: Pair, repeats: int) -> dict[str, object]:
    """Medians of interleaved runs, the range search and the training pass included in ours alone."""
    network = assay.Network(module)
    head = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1]
    low = assay.mira_score(network, train, test, accuracy_threshold=THRESHOLD, steps=2).epsilon_min

    def plain() -> None:
        with torch.no_grad():
            for _ in range(STEPS):
                for part in torch.split(test[0], 256):
                    module(part)

    times = [
        (
            seconds(plain),
            seconds(
                lambda: assay.mira_score(network, train, test, accuracy_threshold=THRESHOLD, steps=STEPS)
            ),
            seconds(lambda: naive(module, head, train, test, low)),
        )
        for _ in range(repeats)
    ]
    alone, ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    to_plain = statistics.median(row[1] / row[0] for row in times)
    to_naive = statistics.median(row[1] / row[2] for row in times)
    return {
        "inputs": len(test[0]),
        "30 plain forward passes": f"{alone:.1f} s",
        "`mira_score`": f"{ours:.1f} s",
        "of the passes (goal 1.6)": f"{to_plain:.2f}",
        "gradient again at every epsilon": f"{theirs:.1f} s",
        "of that (goal 0.5)": f"{to_naive:.2f}",
    }
