"""Models of the OmniInput benchmarks: the paper's toy, a Markov language model, stories260K, MNIST nets.

What takes long (training the toy, enumerating its 10^8 inputs) is cached in a folder outside the repository
and goes on where it stopped.
"""

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import assay

TOY_LENGTH, TOY_VALUES, TOY_START = 8, 10, 10


class ToyGPT(nn.Module):
    """Six layers, four heads, width 48 over ten digits and a start token; with a key-value cache."""

    def __init__(self, width: int = 48, layers: int = 6, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(TOY_VALUES + 1, width)
        self.places = nn.Embedding(TOY_LENGTH, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "attention": nn.Linear(width, 3 * width),
                    "project": nn.Linear(width, width),
                    "norm2": nn.LayerNorm(width),
                    "inner": nn.Linear(width, 4 * width),
                    "outer": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, TOY_VALUES)

    def forward(self, tokens: Tensor, cache: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """(B, T) new tokens and the cache of those before: logits (B, T, 10) and the longer cache."""
        past = 0 if cache is None else cache[0].shape[3]
        rows, new = tokens.shape
        x = self.tokens(tokens) + self.places(torch.arange(past, past + new))
        kept = []
        for index, block in enumerate(self.blocks):
            packed = block["attention"](block["norm1"](x))
            q, k, v = packed.reshape(rows, new, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            memory = torch.stack([k, v])
            if cache is not None:
                memory = torch.cat([cache[index], memory], dim=3)
            kept.append(memory)
            seen = torch.ones(new, past + new, dtype=torch.bool).tril(past)
            mixed = nn.functional.scaled_dot_product_attention(q, memory[0], memory[1], attn_mask=seen)
            x = x + block["project"](mixed.transpose(1, 2).reshape(rows, new, -1))
            x = x + block["outer"](nn.functional.gelu(block["inner"](block["norm2"](x))))
        return self.head(self.norm(x)), kept


def divisible_by_30(count: int, generator: torch.Generator) -> Tensor:
    """Uniform digit sequences whose sum is divisible by 30, by rejection."""
    drawn = torch.randint(TOY_VALUES, (count * 40, TOY_LENGTH), generator=generator)
    return drawn[drawn.sum(dim=1) % 30 == 0][:count]


def trained_toy(folder: Path, steps: int = 1200) -> ToyGPT:
    """The toy of paper section 3.1; training checkpoints itself every 100 steps.

    It stops half way through its schedule: the sum is learnt in part, which makes bins of every precision.
    """
    torch.manual_seed(0)
    toy, path = ToyGPT(), folder / "toy.pt"
    optimiser = torch.optim.AdamW(toy.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=2500)
    done = 0
    if path.exists():
        saved = torch.load(path, weights_only=True)
        toy.load_state_dict(saved["model"])
        done = saved["steps"]
        if done < steps:
            optimiser.load_state_dict(saved["optimiser"])
            schedule.load_state_dict(saved["schedule"])
    for step in range(done, steps):
        digits = divisible_by_30(128, torch.Generator().manual_seed(step))
        inputs = torch.cat([torch.full((len(digits), 1), TOY_START), digits[:, :-1]], dim=1)
        logits, _ = toy(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), digits.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            state = {"model": toy.state_dict(), "optimiser": optimiser.state_dict()}
            torch.save(state | {"schedule": schedule.state_dict(), "steps": step + 1}, path)
            print(f"toy: step {step + 1}, loss {loss.item():.4f}", flush=True)
    return toy.eval()


def toy_language_model(toy: ToyGPT) -> assay.CausalLM:
    return assay.CausalLM(
        lambda tokens: toy(tokens)[0], TOY_VALUES, TOY_LENGTH, start=TOY_START, cached=lambda t, c: toy(t, c)
    )


def toy_enumeration(toy: ToyGPT, folder: Path) -> Tensor:
    """Negative log-likelihood of all 10^8 inputs, in lexicographic order, by a prefix tree with cache.

    1.1e7 token forwards instead of 8e8. One file per first two digits, so that it may stop and go on.
    """
    parts = folder / "enumeration"
    parts.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode():
        for pair in range(100):
            path = parts / f"{pair:02d}.npy"
            if not path.exists():
                outputs = _enumerated(toy, torch.tensor([[TOY_START, pair // 10, pair % 10]]))
                np.save(path, outputs.numpy())
                print(f"enumeration: {pair + 1} of 100", flush=True)
    return torch.from_numpy(np.concatenate([np.load(parts / f"{pair:02d}.npy") for pair in range(100)]))


def _enumerated(toy: ToyGPT, prefix: Tensor) -> Tensor:
    """z of all completions of one prefix (start token included): 10 children of every row, level by level."""
    logits, cache = toy(prefix)
    log_probs = torch.log_softmax(logits[0].double(), dim=1)
    z = -log_probs[torch.arange(prefix.shape[1] - 1), prefix[0, 1:]].sum()
    z, last = z[None], log_probs[-1:].float()
    for depth in range(prefix.shape[1] - 1, TOY_LENGTH):
        z = (z[:, None] - last.double()).flatten()
        if depth + 1 == TOY_LENGTH:
            break
        tokens = torch.arange(TOY_VALUES).repeat(len(last))[:, None]
        rows, pieces, kept = torch.arange(len(last)).repeat_interleave(TOY_VALUES), [], []
        for part in torch.arange(len(tokens)).split(20_000):
            found, longer = toy(tokens[part], [memory[:, rows[part]] for memory in cache])
            pieces.append(torch.log_softmax(found[:, 0].double(), dim=1).float())
            kept.append(longer)
        last = torch.cat(pieces)
        if depth + 2 < TOY_LENGTH:
            cache = [torch.cat(layer, dim=1) for layer in zip(*kept, strict=True)]
    return z.float()


class TabulatedToy:
    """The toy as a table of its enumeration: the same outputs and conditionals without a network.

    For counting evaluations by the million. The probability of a prefix is the sum of those of its inputs.
    """

    def __init__(self, outputs: Tensor) -> None:
        self.outputs = outputs
        self.levels = [-outputs]  # log-probabilities of all prefixes, the longest first
        for _ in range(TOY_LENGTH - 1):
            children = self.levels[-1].reshape(-1, TOY_VALUES).split(1_000_000)
            self.levels.append(torch.cat([torch.logsumexp(part, dim=1) for part in children]))

    def output(self, inputs: Tensor) -> Tensor:
        """Negative log-likelihood of whole inputs, as a black box sees it."""
        return self.outputs[inputs @ (TOY_VALUES ** torch.arange(TOY_LENGTH - 1, -1, -1))].double()

    def language_model(self) -> assay.CausalLM:
        def cached(tokens: Tensor, cache: tuple[Tensor, int] | None) -> tuple[Tensor, tuple[Tensor, int]]:
            prefix, length = cache or (torch.zeros(len(tokens), dtype=torch.int64), 0)
            logits = []
            for token in tokens.T:
                prefix, length = prefix * TOY_VALUES + token, length + 1
                children = self.levels[TOY_LENGTH - 1 - length].reshape(-1, TOY_VALUES)
                logits.append(children[prefix])
            return torch.stack(logits, dim=1), (prefix, length)

        return assay.CausalLM(
            lambda tokens: cached(tokens, None)[0],
            TOY_VALUES,
            TOY_LENGTH,
            start=self.levels[-1],
            cached=cached,
        )


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
