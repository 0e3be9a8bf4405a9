"""The paper's toy (section 3.1): a transformer over eight digits, the enumeration of its 10^8 inputs.

    python benchmarks/papers/omniinput_toy.py FILE    # train another one, see toy_model

The enumeration is cached in a folder outside the repository and goes on where it stopped.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import assay

TOY_LENGTH, TOY_VALUES, TOY_START = 8, 10, 10
WEIGHTS = Path(__file__).parent / "omniinput_toy.safetensors"


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


def toy_model() -> ToyGPT:
    """The toy as it was trained once; its weights are kept beside this file.

    Training stops half way through its schedule, where the sum is learnt in part, which makes bins of every
    precision. How far it has come by then depends on every rounding on the way, so that each machine would
    train another toy, even in double precision.
    """
    toy = ToyGPT()
    toy.load_state_dict(load_file(WEIGHTS))
    return toy.eval()


def train(path: Path, steps: int = 1200) -> None:
    """What made the weights, on another machine: those it makes here have another loss."""
    torch.manual_seed(0)
    toy = ToyGPT()
    optimiser = torch.optim.AdamW(toy.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=2500)
    for step in range(steps):
        digits = divisible_by_30(128, torch.Generator().manual_seed(step))
        inputs = torch.cat([torch.full((len(digits), 1), TOY_START), digits[:, :-1]], dim=1)
        logits, _ = toy(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), digits.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if (step + 1) % 100 == 0:
            print(f"toy: step {step + 1}, loss {loss.item():.4f}", flush=True)
    save_file(toy.state_dict(), path)


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path, help="for the weights")
    parser.add_argument("--steps", type=int, default=1200)
    asked = parser.parse_args()
    train(asked.file, asked.steps)
