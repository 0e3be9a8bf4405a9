"""Models of the OmniInput benchmarks: a Markov language model, stories260K, MNIST nets.

What takes long is cached in a folder outside the repository. The paper's toy is in omniinput_toy.
"""

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import assay


class Markov:
    """A first-order Markov language model: 50 tokens, length 25, logits normal with deviation 2."""

    def __init__(self, values: int = 50, length: int = 25, seed: int = 0) -> None:
        logits = 2 * np.random.default_rng(seed).normal(size=(values + 1, values))
        self.table = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        self.values, self.length = values, length
        self.steps = torch.from_numpy(self.table)

    def output(self, inputs: Tensor) -> Tensor:
        """Negative log-likelihood of whole sequences, as a black box sees it."""
        return -(self.steps[-1][inputs[:, 0]] + self.steps[inputs[:, :-1], inputs[:, 1:]].sum(dim=1))

    def language_model(self) -> assay.CausalLM:
        table = self.steps.float()
        return assay.CausalLM(
            lambda tokens: table[tokens],
            self.values,
            self.length,
            start=table[-1],
            cached=lambda tokens, cache: (table[tokens], tokens),
        )

    def log_density(self, edges: np.ndarray, grid: float = 0.001) -> np.ndarray:
        """By dynamic programming; rounding each transition to the grid costs about 0.001 nats per bin.

        Ten times as coarse it costs 0.046 in the lowest bin: sequences there repeat few transitions, whose
        rounding adds up.
        """
        steps = np.round(-self.table / grid).astype(int)
        size = int(steps[:-1].max() * (self.length - 1) + steps[-1].max()) + 1
        counts = np.zeros((self.values, size))
        counts[np.arange(self.values), steps[-1]] = 1.0
        for _ in range(self.length - 1):
            moved = np.zeros_like(counts)
            for old in range(self.values):
                filled = counts[old].nonzero()[0]
                low, high = filled[0], filled[-1] + 1
                for new in range(self.values):
                    moved[new, low + steps[old, new] : high + steps[old, new]] += counts[old, low:high]
            counts = moved
        inside = np.histogram(np.arange(size) * grid, edges, weights=counts.sum(axis=0))[0]
        with np.errstate(divide="ignore"):
            return np.log(inside) - self.length * math.log(self.values)


def stories260k(folder: Path):
    """The llama2.c checkpoint as a transformers Llama model, and its tokenizer's pieces."""
    from transformers import LlamaConfig, LlamaForCausalLM

    data = (folder / "stories260K.bin").read_bytes()
    dim, hidden, layers, heads, kv_heads, vocab, context = struct.unpack("7i", data[:28])
    weights = np.frombuffer(data, dtype=np.float32, offset=28)
    taken = 0

    def take(*shape: int) -> Tensor:
        nonlocal taken
        count = math.prod(shape)
        taken += count
        return torch.from_numpy(weights[taken - count : taken].copy()).reshape(shape)

    kv = dim // heads * kv_heads
    embedding = take(vocab, dim)
    shapes = {
        "attention_norm": (dim,),
        "wq": (dim, dim),
        "wk": (kv, dim),
        "wv": (kv, dim),
        "wo": (dim, dim),
        "ffn_norm": (dim,),
        "w1": (hidden, dim),
        "w2": (dim, hidden),
        "w3": (hidden, dim),
    }
    part = {name: take(layers, *shape) for name, shape in shapes.items()}
    state = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    state["model.norm.weight"] = take(dim)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        state |= {
            prefix + "input_layernorm.weight": part["attention_norm"][layer],
            prefix + "self_attn.q_proj.weight": _halves(part["wq"][layer], heads),
            prefix + "self_attn.k_proj.weight": _halves(part["wk"][layer], kv_heads),
            prefix + "self_attn.v_proj.weight": part["wv"][layer],
            prefix + "self_attn.o_proj.weight": part["wo"][layer],
            prefix + "post_attention_layernorm.weight": part["ffn_norm"][layer],
            prefix + "mlp.gate_proj.weight": part["w1"][layer],
            prefix + "mlp.down_proj.weight": part["w2"][layer],
            prefix + "mlp.up_proj.weight": part["w3"][layer],
        }
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model.eval(), _pieces(folder / "tok512.bin", vocab)


def _halves(weight: Tensor, heads: int) -> Tensor:
    """llama2.c rotates neighbouring pairs, transformers the two halves of a head: reorder the rows."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def _pieces(path: Path, vocab: int) -> list[str]:
    """The text of every token of a llama2.c tokenizer file."""
    data, place, pieces = path.read_bytes(), 4, []
    for _ in range(vocab):
        _, length = struct.unpack_from("fi", data, place)
        piece = data[place + 8 : place + 8 + length].decode("utf-8", errors="replace")
        pieces.append(chr(int(piece[3:5], 16)) if piece.startswith("<0x") else piece)
        place += 8 + length
    return pieces


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut, as in the residual network of Grathwohl et al. 2021 (Swish)."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, stride=stride)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride=stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.second(nn.functional.silu(self.first(x)))
        return nn.functional.silu(inner + self.shortcut(x))


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 784, 128), nn.ReLU(), nn.Linear(128, 1))


def _cnn() -> nn.Sequential:
    """Two layers, of 32 and 128 filters: the paper's "two 2-layer" may mean four; its accuracy fits two."""
    layers = [nn.Conv2d(3, 32, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(32, 128, 3, padding=1, stride=2)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1))


def _res(channels: int = 16) -> nn.Sequential:
    """Two blocks that halve the image and two that do not; the original has six of those, of 64 channels."""
    blocks = [Residual(channels, stride) for stride in (2, 2, 1, 1)]
    lifted = nn.Conv2d(3, channels, 3, padding=1)
    return nn.Sequential(lifted, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1))


BACKBONES = {"mlp": _mlp, "cnn": _cnn, "res": _res}


class MnistNet(nn.Module):
    """Paper appendix E: pixels as 3 channels by a 3x3 convolution, a backbone of `BACKBONES`, one logit.

    The paper feeds one-hot pixels of 256 values; here a pixel is its value over 255, which the first
    convolution of one-hot planes can represent and which costs 256 times less.
    """

    def __init__(self, backbone: str) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.rest = BACKBONES[backbone]()

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 28, 28) values 0 to 255, integers or floats, to (B,) logits of the class 1."""
        return self.rest(self.first(pixels.float()[:, None] / 255))[:, 0]


def mnist_zero_one(data: Path, split: str) -> tuple[Tensor, Tensor]:
    """Digits 0 and 1 with values 0 to 255: (N, 28, 28), and 1.0 for the digit 1."""
    images, labels = assay.data.read_idx(data, split=split)
    assert labels is not None
    return (images[labels < 2, 0] * 255).round(), labels[labels < 2].float()


def trained_mnist(backbone: str, data: Path, folder: Path, noisy: bool = False) -> MnistNet:
    """Trained on digits 0 and 1: an epoch, or four with uniform noise of random strength (AUG).

    Laid out with channels last: twice as fast for the residual network.
    """
    torch.manual_seed(0)
    net, path = MnistNet(backbone), folder / f"mnist_{backbone}{'_aug' if noisy else ''}.pt"
    if path.exists():
        net.load_state_dict(torch.load(path, weights_only=True))
        return net.requires_grad_(False).to(memory_format=torch.channels_last).eval()
    images, labels = mnist_zero_one(data, "train")
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(4 if noisy else 1):
        for rows in torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch)).split(64):
            batch = images[rows]
            if noisy:
                strength = torch.rand(len(rows), 1, 1)
                batch = (1 - strength) * batch + strength * 255 * torch.rand_like(batch)
            loss = nn.functional.binary_cross_entropy_with_logits(net(batch), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    torch.save(net.state_dict(), path)
    return net.requires_grad_(False).to(memory_format=torch.channels_last).eval()
