"""Networks that several benchmarks share."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import assay

WIDTHS = (16, 32, 64)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Block(nn.Module):
    """Two 3x3 convolutions; where the width grows, the shortcut subsamples and pads channels (option A)."""

    def __init__(self, narrow: int, wide: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(narrow, wide, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.stride = stride
        self.padding = (wide - narrow) // 2

    def forward(self, maps: Tensor) -> Tensor:
        result = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(maps)))))
        if self.padding:
            maps = F.pad(maps[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(result + maps)


class ResNet(nn.Module):
    """The CIFAR network of He et al. 2016, section 4.2, for images in [0, 1]; `blocks` per stage."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION)[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.layer1 = self._stage(WIDTHS[0], WIDTHS[0], blocks, stride=1)
        self.layer2 = self._stage(WIDTHS[0], WIDTHS[1], blocks, stride=2)
        self.layer3 = self._stage(WIDTHS[1], WIDTHS[2], blocks, stride=2)
        self.linear = nn.Linear(WIDTHS[2], classes)

    @staticmethod
    def _stage(narrow: int, wide: int, blocks: int, stride: int) -> nn.Sequential:
        return nn.Sequential(Block(narrow, wide, stride), *(Block(wide, wide, 1) for _ in range(blocks - 1)))

    def forward(self, images: Tensor) -> Tensor:
        maps = F.relu(self.bn1(self.conv1((images - self.mean) / self.deviation)))
        maps = self.layer3(self.layer2(self.layer1(maps)))
        return self.linear(maps.mean(dim=(2, 3)))


def resnet20(weights: Path | None = None, classes: int = 10) -> ResNet:
    """ResNet-20, in evaluation mode: with trained weights (`resnet20-12fca82f.th`), else with seeded ones."""
    return _loaded(3, weights, classes)


def resnet32(weights: Path | None = None, classes: int = 10) -> ResNet:
    """ResNet-32, as `resnet20` (`resnet32-d509ac18.th`)."""
    return _loaded(5, weights, classes)


def _loaded(blocks: int, weights: Path | None, classes: int) -> ResNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = ResNet(blocks, classes)
    if weights is not None:
        state = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
        network.load_state_dict({name.removeprefix("module."): tensor for name, tensor in state.items()})
    return network.eval()


def mnist_ann() -> nn.Module:
    """The volatility paper's ANN (Table I): 784-128-64-10."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    )


def mnist_cnn() -> nn.Module:
    """The volatility paper's CNN (Table I): two convolutions, a hidden layer of 128."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def lenet(classes: int) -> nn.Module:
    """The safety-monitor paper's LeNet: about 120,000 parameters, 128 neurons in the last hidden layer."""
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, classes)),
    )


def mlp(inputs: int, width: int, depth: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for size, following in pairwise([inputs, *[width] * depth]):
        layers += [nn.Linear(size, following), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))


class Sentences(nn.Module):
    """A MiniLM encoder cut after some layers, its token vectors averaged, and a head with 64 features."""

    def __init__(self, folder: Path, layers: int = 6) -> None:
        super().__init__()
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
        self.encoder.encoder.layer = self.encoder.encoder.layer[:layers]
        self.config = self.encoder.config
        self.head: nn.Module = nn.Identity()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(self, **inputs: Tensor) -> Tensor:
        return self.head(self.averaged(**inputs))

    def averaged(self, **inputs: Tensor) -> Tensor:
        mask = inputs["attention_mask"][:, :, None].float()
        return (self.encoder(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)

    @staticmethod
    def new_head() -> nn.Module:
        return nn.Sequential(nn.Linear(384, 64), nn.Tanh(), nn.Linear(64, 2))


def minilm_classifier(
    folder: Path, train: tuple[list[str], Tensor], cache: Path, layers: int = 6
) -> assay.Network:
    """MiniLM with a head trained on `train`; the head is cached."""
    module = Sentences(folder, layers)
    network = assay.Network.from_huggingface(module, module.tokenizer, max_length=64, batch_size=50)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = Sentences.new_head()
        if cache.exists():
            head.load_state_dict(torch.load(cache, weights_only=True))
        else:
            fit_head(head, network.observe(train[0]).logits, train[1])
            cache.parent.mkdir(parents=True, exist_ok=True)
            torch.save(head.state_dict(), cache)
    module.head = head.eval()
    return assay.Network.from_huggingface(module, module.tokenizer, max_length=64, batch_size=50)


def fit_head(head: nn.Module, vectors: Tensor, labels: Tensor, epochs: int = 30) -> None:
    optimiser = torch.optim.Adam(head.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(labels) // 64))
    for _ in range(epochs):
        for part in torch.randperm(len(labels)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(vectors[part]), labels[part]).backward()
            optimiser.step()
            schedule.step()


def kept(
    path: Path, build: Callable[[], nn.Module], train: Callable[[nn.Module], None], seed: int = 0
) -> Any:
    """The trained module; from the cache where it was trained before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build()
        if path.exists():
            module.load_state_dict(load_file(path))
        else:
            train(module)
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({key: value.contiguous() for key, value in module.state_dict().items()}, path)
    return module.eval()
