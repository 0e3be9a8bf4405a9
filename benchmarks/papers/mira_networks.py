"""The networks of MIRA's experiments, at the size of this machine, and how they are trained and kept."""

import hashlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]


def mlp(width: int, depth: int, inputs: int = 48, classes: int = 5) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise([inputs, *[width] * depth]):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


class FeatureTransformer(nn.Module):
    """Appendix B.3: a token per feature with its own weights, [CLS], pre-norm encoder, linear head."""

    def __init__(self, layers: int, inputs: int = 48, classes: int = 5, width: int = 8) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, width) * 0.5)
        self.bias = nn.Parameter(torch.randn(inputs, width) * 0.5)
        self.start = nn.Parameter(torch.zeros(1, 1, width))
        block = nn.TransformerEncoderLayer(
            width, 2, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs[:, :, None] * self.weight + self.bias
        tokens = torch.cat([self.start.expand(len(inputs), -1, -1), tokens], dim=1)
        return self.head(self.encoder(tokens)[:, 0])


TABULAR: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: mlp(32, 2),
    "DeepMLP": lambda: mlp(16, 4),
    "WideMLP": lambda: mlp(64, 1),
    "Transformer": lambda: FeatureTransformer(2),
    "DeepTransformer": lambda: FeatureTransformer(3),
}


def kept(
    name: str, build: Callable[[], nn.Module], train: Callable[[nn.Module], None], cache: Path, seed: int
) -> nn.Module:
    """The trained module; from the cache where it was trained before."""
    path = cache / f"{name.replace(' ', '-')}-{seed}.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
        if path.exists():
            module.load_state_dict(load_file(path))
        else:
            train(module)
            cache.mkdir(parents=True, exist_ok=True)
            save_file({key: value.contiguous() for key, value in module.state_dict().items()}, path)
    return module.eval()


def fitted(
    module: nn.Module,
    data: Pair,
    epochs: int,
    *,
    rate: float = 1e-3,
    batch: int = 32,
    smoothing: float = 0.0,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Adam on a cosine schedule; draws from the global generator, which `kept` has seeded."""
    inputs, labels = data
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(inputs) // batch))
    module.train()
    for _ in range(epochs):
        for part in torch.split(torch.randperm(len(inputs)), batch):
            rows = inputs[part] if augment is None else augment(inputs[part])
            loss = nn.functional.cross_entropy(module(rows), labels[part], label_smoothing=smoothing)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()


def digest(module: nn.Module) -> str:
    """Short name of a set of weights, so that cached results follow them."""
    total = hashlib.blake2b(digest_size=6)
    for value in module.state_dict().values():
        total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
