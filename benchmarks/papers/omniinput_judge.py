"""A judge in code for MNIST: does an image show a handwritten 1? Stands in for people in the experiments."""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import assay


def mnist_images(asked: argparse.Namespace, split: str) -> tuple[Tensor, Tensor]:
    images, labels = assay.data.read_idx(asked.data / "mnist", split=split)
    return (images[:, 0] * 255).round(), labels


class OnesJudge:
    """A stand-in for people who are asked whether an image shows a handwritten 1.

    The score is the product of two opinions. A network of its own kind (two convolutions, eleven classes)
    gives its probability of "1"; it learned the ten digits under uniform noise of random strength, and that
    pure noise, inverted digits and plain images are none of them. And the image, blurred and with its mean
    taken out, must resemble a real 1: its largest cosine with 5,000 of them counts 0 at what uniform
    noise reaches in 99 of 100 cases and 1 at the median of unseen ones half hidden under noise.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        images, labels = mnist_images(asked, "train")
        self.net = self._trained(images, labels, asked.cache / "ones-judge.pt")
        self.real = self._prepared(images[labels == 1][:5000])
        generator = torch.Generator().manual_seed(1)
        noise = 255 * torch.rand(1000, 28, 28, generator=generator)
        unseen = images[labels == 1][5000:6000]
        self.floor = float(self._likeness(noise).quantile(0.99))
        self.ceiling = float(self._likeness((unseen + noise[: len(unseen)]) / 2).median())

    def _trained(self, images: Tensor, labels: Tensor, path: Path) -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Conv2d(1, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 5, stride=2), nn.ReLU()]
        net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(768, 96), nn.ReLU(), nn.Linear(96, 11))
        if path.exists():
            net.load_state_dict(torch.load(path, weights_only=True))
            return net.eval()
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
        for epoch in range(2):
            order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
            for rows in order[:20_000].split(128):
                batch, targets = self._batch(images[rows] / 255, labels[rows])
                loss = nn.functional.cross_entropy(net(batch[:, None] * 2 - 1), targets)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        torch.save(net.state_dict(), path)
        return net.eval()

    def _batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Digits under noise, and as many images that are none."""
        strength = 0.8 * torch.rand(len(images), 1, 1)
        noisy = (1 - strength) * images + strength * torch.rand_like(images)
        kind = torch.randint(3, (len(images), 1, 1))
        flat = torch.rand(len(images), 1, 1).expand_as(images)
        shade = torch.rand_like(images) ** (4 * torch.rand(len(images), 1, 1))  # noise of any brightness
        nothing = torch.where(
            kind == 0, 1 - noisy, torch.where(kind == 1, shade, (flat + 0.2 * shade).clamp(0, 1))
        )
        return torch.cat([noisy, nothing]), torch.cat([labels, torch.full_like(labels, 10)])

    def _prepared(self, images: Tensor) -> Tensor:
        blurred = nn.functional.avg_pool2d(images.float()[:, None], 3, stride=1, padding=1).flatten(1)
        centred = blurred - blurred.mean(dim=1, keepdim=True)
        return centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-9)

    def _likeness(self, images: Tensor) -> Tensor:
        return (self._prepared(images) @ self.real.T).amax(dim=1)

    def __call__(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            probability = self.net(images.float()[:, None] / 255 * 2 - 1).softmax(dim=1)[:, 1]
        near = ((self._likeness(images) - self.floor) / (self.ceiling - self.floor)).clamp(0, 1)
        return (probability * near).double()

    def described(self, asked: argparse.Namespace) -> None:
        """How it scores images whose answer is known."""
        images, labels = mnist_images(asked, "test")
        generator = torch.Generator().manual_seed(2)
        ones, noise = images[labels == 1], 255 * torch.rand(1135, 28, 28, generator=generator)
        tried = {
            "real 1": ones,
            "1 under 30 % noise": 0.7 * ones + 0.3 * noise,
            "1 under 50 % noise": 0.5 * ones + 0.5 * noise,
            "1 under 70 % noise": 0.3 * ones + 0.7 * noise,
            "0": images[labels == 0],
            "inverted 0": 255 - images[labels == 0],
            "inverted 1": 255 - ones,
            "digits 2 to 9": images[labels > 1],
            "uniform noise": noise,
        }
        print("mean score of the stand-in judge: ", end="")
        print(", ".join(f"{name} {self(inputs).mean():.3f}" for name, inputs in tried.items()))
