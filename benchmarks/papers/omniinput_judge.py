"""A judge in code for MNIST: does an image show a handwritten 1? Stands in for people in the experiments."""

import argparse

import torch
from torch import Tensor, nn

import assay


def mnist_images(asked: argparse.Namespace, split: str) -> tuple[Tensor, Tensor]:
    images, labels = assay.data.read_idx(asked.data / "mnist", split=split)
    return (images[:, 0] * 255).round(), labels


FAR = (11, 5)
"""Pixels to the side, and up or down, by which a digit may be off its place."""
CONTEST = 0.05
"""The lead in cosine at which a 1 has won against other digits, or lost."""


def moved(images: Tensor, sideways: Tensor, down: Tensor) -> Tensor:
    """Each image shifted by whole pixels, black where nothing comes in."""
    across, along = FAR
    padded = nn.functional.pad(images, (across, across, along, along))
    rows = torch.arange(28) + along - down[:, None]
    columns = torch.arange(28) + across - sideways[:, None]
    return padded[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


class OnesJudge:
    """A stand-in for people who are asked whether an image shows a handwritten 1, wherever it stands in it.

    The image, blurred and with its mean taken out, is compared with real digits at 138 places each. The score
    is the product of two opinions. It must resemble a 1: its largest cosine with 300 ones counts 0 at what
    uniform noise reaches in 99 of 100 cases and 1 at the median of unseen ones, off their place and 70 %
    hidden under noise. And it must resemble a 1 more than any of 360 other digits: a lead of 0.05 counts 1, a
    lag of 0.05 counts 0. Of how much noise people see through, the 70 % were chosen on 200 sampled images;
    how far it agrees with the look of others is in docs/papers/omniinput-precision.md.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        images, labels = mnist_images(asked, "train")
        self.ones = self._templates(images[labels == 1][:300])
        others = [images[labels == digit][:40] for digit in range(10) if digit != 1]
        self.others = self._templates(torch.cat(others))
        generator = torch.Generator().manual_seed(1)
        noise = 255 * torch.rand(1000, 28, 28, generator=generator)
        unseen = images[labels == 1][5000:6000]
        places = [torch.randint(-far, far + 1, (len(unseen),), generator=generator) for far in FAR]
        self.floor = float(self._likeness(noise, self.ones).quantile(0.99))
        hidden = 0.3 * moved(unseen, *places) + 0.7 * noise
        self.ceiling = float(self._likeness(hidden, self.ones).median())

    def _templates(self, digits: Tensor) -> Tensor:
        """Every digit at all places to the side, and every second one up and down."""
        across, along = FAR
        return torch.cat(
            [
                self._prepared(moved(digits, torch.full((len(digits),), x), torch.full((len(digits),), y)))
                for x in range(-across, across + 1)
                for y in range(-along, along + 1, 2)
            ]
        )

    def _prepared(self, images: Tensor) -> Tensor:
        blurred = nn.functional.avg_pool2d(images.float()[:, None], 3, stride=1, padding=1).flatten(1)
        centred = blurred - blurred.mean(dim=1, keepdim=True)
        return centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-9)

    def _likeness(self, images: Tensor, templates: Tensor) -> Tensor:
        return torch.cat([(part @ templates.T).amax(dim=1) for part in self._prepared(images).split(200)])

    def __call__(self, images: Tensor) -> Tensor:
        one, other = (self._likeness(images, templates) for templates in (self.ones, self.others))
        near = ((one - self.floor) / (self.ceiling - self.floor)).clamp(0, 1)
        won = ((one - other) / CONTEST / 2 + 0.5).clamp(0, 1)
        return (near * won).double()

    def described(self, asked: argparse.Namespace) -> dict[str, float]:
        """How it scores images whose answer is known."""
        images, labels = mnist_images(asked, "test")
        generator = torch.Generator().manual_seed(2)
        ones, noise = images[labels == 1], 255 * torch.rand(1135, 28, 28, generator=generator)
        left = torch.full((len(ones),), -10)
        tried = {
            "real 1": ones,
            "1 shifted by 10 to the left": moved(ones, left, torch.zeros_like(left)),
            "1 under 30 % noise": 0.7 * ones + 0.3 * noise,
            "1 under 50 % noise": 0.5 * ones + 0.5 * noise,
            "1 under 70 % noise": 0.3 * ones + 0.7 * noise,
            "0": images[labels == 0],
            "inverted 0": 255 - images[labels == 0],
            "inverted 1": 255 - ones,
            "digits 2 to 9": images[labels > 1],
            "uniform noise": noise,
        }
        scores = {name: float(self(inputs[:500]).mean()) for name, inputs in tried.items()}
        print("mean score of the stand-in judge:", scores)
        return scores
