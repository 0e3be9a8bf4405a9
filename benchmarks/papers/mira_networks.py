"""The networks of MIRA's experiments, as large as this machine allows; how they are trained and cached."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import networks
import torch
from torch import Tensor, nn

import assay

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


class Images(nn.Sequential):
    """Layers for images in [0, 1], which are centred first."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward((images - 0.45) / 0.25)


def custom_cnn() -> nn.Module:
    """Table 4: two convolutions of 40 and 20 filters, three fully connected layers."""
    return Images(
        nn.Conv2d(3, 40, 3, padding=1),
        nn.BatchNorm2d(40),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(40, 20, 3, padding=1),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1280, 240),
        nn.ReLU(),
        nn.Linear(240, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def strided_cnn(*widths: int) -> nn.Module:
    """Strided convolutions, averaged over space: as many features as the last is wide."""
    layers: list[nn.Module] = []
    for (narrow, wide), stride in zip(pairwise([3, *widths]), (2, 1, 2, 2), strict=False):
        layers += [nn.Conv2d(narrow, wide, 3, stride, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
    return Images(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


VISION: dict[str, Callable[[], nn.Module]] = {
    "CustomNet": custom_cnn,
    "strided CNN": lambda: strided_cnn(24, 48, 64, 96),
    "narrow CNN": lambda: strided_cnn(16, 24, 32),
}


class Sentences(networks.Sentences):
    """With what MIRA's experiments train its head on."""

    def network(self) -> assay.Network:
        return assay.Network.from_huggingface(self, self.tokenizer, max_length=32, batch_size=30)

    def vectors(self, texts: list[str]) -> Tensor:
        """What the head is trained on: the averaged token vectors of the frozen encoder."""
        network = self.network()
        parts = []
        with torch.no_grad():
            for start in range(0, len(texts), 100):
                tokens = network.encode(texts[start : start + 100])
                width = int(tokens["attention_mask"].sum(1).max())
                parts.append(
                    self.averaged(**{name: value[:, :width].long() for name, value in tokens.items()})
                )
        return torch.cat(parts)


def kept(
    name: str, build: Callable[[], nn.Module], train: Callable[[nn.Module], None], cache: Path, seed: int
) -> nn.Module:
    """The trained module; from the cache where it was trained before."""
    return networks.kept(cache / f"{name.replace(' ', '-')}-{seed}.safetensors", build, train, seed)


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
