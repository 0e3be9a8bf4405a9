"""Networks that several benchmarks share."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
