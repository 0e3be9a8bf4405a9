"""Draws faults.png, the contact sheet of docs/faults.md: python docs/images/faults.py"""

import io
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import nn

import assay
from assay.faults import ADVERSARIAL, ANOMALY, NOISE, SHIFT, matched

SEVERITIES = (1, 3, 5)
BLOCKS = 3


def photos() -> torch.Tensor:
    """Two photographs that come with scikit-learn, 64x64; the first is there to be stuck in the second."""
    like = torch.empty(1, 3, 64, 64)
    china, flower = (
        torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float() / 255
        for name in ("china.jpg", "flower.jpg")
    )
    return torch.cat([matched(flower[..., :427, 100:527], like), matched(china[..., 120:420], like)])


def main() -> None:
    images = photos()
    torch.manual_seed(0)
    network = assay.Network(
        nn.Sequential(nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(7200, 10))
    )
    faults = {**NOISE, **SHIFT, **ANOMALY}
    drawn = {name: [fault(images, s, seed=1)[1] for s in SEVERITIES] for name, fault in faults.items()}
    attack = ADVERSARIAL["fgsm"]
    drawn["fgsm"] = [attack(images, s, network=network)[1] for s in SEVERITIES]
    rows = -(-len(drawn) // BLOCKS)
    figure = Figure(figsize=(8.4, 0.86 * rows + 0.3), dpi=100)
    grid = figure.add_gridspec(
        rows, BLOCKS * 4, width_ratios=[1.3, 1, 1, 1] * BLOCKS, wspace=0.04, hspace=0.06,
        left=0.005, right=0.995, top=0.965, bottom=0.005,
    )  # fmt: skip
    for number, (name, versions) in enumerate(drawn.items()):
        block, row = divmod(number, rows)
        label = figure.add_subplot(grid[row, 4 * block])
        label.axis("off")
        label.text(0.97, 0.5, name.replace("_", "\n"), ha="right", va="center", fontsize=8)
        for column, image in enumerate(versions):
            axes = figure.add_subplot(grid[row, 4 * block + 1 + column])
            axes.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
            axes.axis("off")
            if row == 0:
                axes.set_title(str(SEVERITIES[column]), fontsize=8, pad=2)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    # A palette makes the file a third as large, and no fault looks different.
    Image.open(buffer).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        Path(__file__).with_suffix(".png"), optimize=True
    )


if __name__ == "__main__":
    main()
