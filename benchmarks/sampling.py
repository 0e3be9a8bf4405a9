"""Model evaluations until every bin is within 0.1 nats: the paper's plain tempering against assay's samplers.

    python benchmarks/sampling.py plain    --problem markov-core --evaluations 25.6e6 --seeds 4
    python benchmarks/sampling.py blackbox --problem markov-core --evaluations 6.4e6  --seeds 1
    python benchmarks/sampling.py language --problem markov-full --evaluations 1.6e6  --seeds 2
    python benchmarks/sampling.py speed    --model toy
    python benchmarks/sampling.py table

Problems: markov-core, markov-full (exact by dynamic programming) and toy (exact by enumeration, made by
benchmarks/papers/omniinput.py toy, and looked up there instead of evaluated again). Each run appends a line
per checkpoint (evaluations double) to a file in --cache, so that runs may be split; assay's stop when two
checkpoints in a row are within the goal. `table` prints what is there. Not part of the test suite.
"""

import argparse
import functools
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch

import assay
from assay.omniinput.sampling.density_estimate import LadderSolver, estimate
from assay.omniinput.sampling.kernels import kernels_of
from assay.omniinput.sampling.plan import Budget, Plan
from assay.omniinput.sampling.problem import Problem
from assay.omniinput.sampling.reweighting import reweighted, summed_by
from assay.omniinput.sampling.samplers.tempering import Tempering

sys.path.insert(0, str(Path(__file__).parent / "papers"))
from omniinput_models import Markov
from omniinput_toy import TabulatedToy, toy_enumeration, toy_language_model, toy_model

CACHE = Path(os.environ.get("ASSAY_CACHE", Path(__file__).parents[2] / "cache-omni"))
CORE = np.arange(50.0, 100.1, 2.5)  # 2 to 4 nats per token, in bins of 0.1 per token
FULL = np.arange(30.0, 142.6, 2.5)  # every bin with at least 10^4 inputs up to the bulk
GOAL = 0.1


def exact_of(problem: str) -> tuple[np.ndarray, np.ndarray]:
    """Bins and exact log density."""
    if problem.startswith("markov"):
        edges = CORE if problem == "markov-core" else FULL
        exact = Markov().log_density(edges)
        assert (exact + 25 * np.log(50) > np.log(1e4)).all()
        return edges, exact
    outputs = toy_outputs().numpy()
    edges = toy_edges(outputs)
    return edges, np.log(np.histogram(outputs, edges)[0] / len(outputs))


@functools.cache
def toy_outputs() -> torch.Tensor:
    return toy_enumeration(toy_model(), CACHE)


def model_of(problem: str) -> Markov | TabulatedToy:
    return TabulatedToy(toy_outputs()) if problem == "toy" else Markov()


def toy_edges(outputs: np.ndarray) -> np.ndarray:
    """Bins of half a nat, as far as each holds at least 10^3 of the 10^8 inputs."""
    edges = np.arange(np.floor(outputs.min()), outputs.max() + 0.5, 0.5)
    filled = np.flatnonzero(np.histogram(outputs, edges)[0] >= 1000)
    return edges[filled[0] : filled[-1] + 2]


def note(
    problem: str, method: str, seed: int, evaluations: int, log_density: np.ndarray, exact: np.ndarray
) -> float:
    """Append the largest error at a checkpoint to the file of results."""
    error = np.abs(log_density - exact)
    worst = float("inf") if np.isnan(error).any() else float(error.max())
    line = {"problem": problem, "method": method, "seed": seed, "evaluations": evaluations, "worst": worst}
    with open(CACHE / "sampling.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    print(
        f"{problem} {method} seed {seed}: {evaluations:,} evaluations, worst bin {worst:.3f} nats", flush=True
    )
    return worst


class MarkovWalkers:
    """Single-site changes of the Markov model by exact differences, of all rows at once in numpy."""

    def __init__(self, rows: int, rng: np.random.Generator) -> None:
        model = Markov()
        self.sites, self.values = model.length, model.values
        self.width = self.values + 2
        costs = np.zeros((self.width, self.width))  # `values` stands before the sequence, `values + 1` after
        costs[: self.values, : self.values], costs[self.values, : self.values] = (
            -model.table[:-1],
            -model.table[-1],
        )
        self.costs = costs.ravel()
        self.tokens = rng.integers(self.values, size=(rows, self.sites + 2))
        self.tokens[:, 0], self.tokens[:, -1] = self.values, self.values + 1
        self.flat, self.base = self.tokens.ravel(), np.arange(rows) * (self.sites + 2) + 1
        self.outputs = self.costs[self.tokens[:, :-1] * self.width + self.tokens[:, 1:]].sum(axis=1)

    def move(self, site: np.ndarray, new: np.ndarray, log_uniform: np.ndarray, betas: np.ndarray) -> None:
        here, costs, width = site + self.base, self.costs, self.width
        left, old, right = self.flat[here - 1] * width, self.flat[here], self.flat[here + 1]
        added = costs[left + new] + costs[new * width + right]
        change = added - costs[left + old] - costs[old * width + right]
        accepted = log_uniform < -betas * change
        self.flat[here] = np.where(accepted, new, old)
        self.outputs += change * accepted


class ToyWalkers:
    """Single-site changes of the toy, looked up in its enumeration."""

    def __init__(self, rows: int, rng: np.random.Generator) -> None:
        self.sites, self.values = 8, 10
        self.table = toy_outputs().numpy()
        self.tokens = rng.integers(len(self.table), size=(rows, 1))  # an input is its number
        self.outputs = self.table[self.tokens[:, 0]].astype(np.float64)

    def move(self, site: np.ndarray, new: np.ndarray, log_uniform: np.ndarray, betas: np.ndarray) -> None:
        place = 10**site
        number = self.tokens[:, 0]
        changed = number + (new - number // place % 10) * place
        outputs = self.table[changed]
        accepted = log_uniform < -betas * (outputs - self.outputs)
        self.tokens[:, 0] = np.where(accepted, changed, number)
        self.outputs = np.where(accepted, outputs, self.outputs)


def plain(problem: str, evaluations: int, seeds: int) -> None:
    """The paper's PTHR: 16 replicas, geometric ladder, single-site moves, swaps every 1,000.

    All seeds run side by side in numpy with exact differences or looked-up outputs, which gives the same
    chain as evaluating the model again and is counted as such. Reweighted on fine bins, and on the reported
    ones.
    """
    edges, exact = exact_of(problem)
    replicas, interval = 16, 1000
    coldest = {"markov-core": 1.5, "markov-full": 3.5, "toy": 1.5}[problem]
    ladder = np.concatenate([[0.0], np.geomspace(0.1, coldest, replicas - 1)])
    if problem == "toy":  # its bins lie on both sides of the bulk
        ladder = np.concatenate([-np.geomspace(0.1, 1.5, 7)[::-1], [0.0], np.geomspace(0.1, coldest, 8)])
    rng = np.random.default_rng(0)
    rows = seeds * replicas
    walkers = ToyWalkers(rows, rng) if problem == "toy" else MarkovWalkers(rows, rng)
    betas = np.tile(ladder, seeds)
    fine = np.arange(0.0, 300.0, 0.1)
    counts = np.zeros((seeds, len(fine)))
    done, due, parity = 0, 100_000, 0
    while done < evaluations:
        site = rng.integers(walkers.sites, size=(interval, rows))
        fresh = rng.integers(walkers.values, size=(interval, rows))
        log_uniform = np.log(rng.random((interval, rows)))
        trace = np.empty((interval, rows))
        for step in range(interval):
            walkers.move(site[step], fresh[step], log_uniform[step], betas)
            trace[step] = walkers.outputs
        done += interval * replicas
        if done > evaluations * 0.1 or done > 200_000:  # a tenth is burn-in, at most the first 200,000
            cell = (trace * 10).astype(int).reshape(interval, seeds, replicas)
            place = cell + (np.arange(seeds) * len(fine))[:, None]
            counts += np.bincount(place.ravel(), minlength=counts.size).reshape(counts.shape)
        states = walkers.tokens.reshape(seeds, replicas, -1)
        _swap(states, walkers.outputs.reshape(seeds, replicas), ladder, parity, rng)
        parity = 1 - parity
        if done >= due and counts.sum():
            for seed in range(seeds):
                for method, cells in (("plain, fine bins", fine + 0.05), ("plain, reported bins", None)):
                    found = _plain_density(counts[seed], fine, cells, edges, ladder)
                    note(problem, method, seed, done, found, exact)
            due *= 2


def _swap(tokens, outputs, ladder, parity, rng) -> None:
    left = np.arange(parity, len(ladder) - 1, 2)
    ratio = (ladder[left + 1] - ladder[left]) * (outputs[:, left + 1] - outputs[:, left])
    seed, pair = np.nonzero(np.log(rng.random(ratio.shape)) < ratio)
    one, two = left[pair], left[pair] + 1
    tokens[seed, one], tokens[seed, two] = tokens[seed, two].copy(), tokens[seed, one].copy()
    outputs[seed, one], outputs[seed, two] = outputs[seed, two].copy(), outputs[seed, one].copy()


def _plain_density(counts, fine, centres, edges, ladder) -> np.ndarray:
    """Log density by WHAM on fine bins, or (centres None) on bins as wide as the reported ones."""
    owner = np.searchsorted(edges, fine + 0.05, side="right") - 1
    owner[(owner >= len(edges) - 1)] = -1
    if centres is None:
        width = edges[1] - edges[0]
        group = np.floor((fine + 0.05 - edges[0]) / width).astype(int)
        names, group = np.unique(group, return_inverse=True)
        counts = np.bincount(group, weights=counts)
        centres, owner = (
            edges[0] + (names + 0.5) * width,
            np.where((names >= 0) & (names < len(edges) - 1), names, -1),
        )
    draws = np.full(len(ladder), counts.sum() / len(ladder))
    logs = reweighted(centres, counts, ladder, draws).log_counts
    found = summed_by(owner, logs - np.logaddexp.reduce(logs[np.isfinite(logs)]), len(edges) - 1)
    return np.where(np.isfinite(found), found, np.nan)


def blackbox(problem: str, evaluations: int, seeds: range, ensembles: int, kernels: list[str]) -> None:
    """assay's tempering with its own kernels, on the output function alone; estimates at checkpoints."""
    edges, exact = exact_of(problem)
    model = model_of(problem)
    method = "assay, black box" + (f" ({', '.join(kernels)})" if kernels else "")
    space = assay.InputSpace((8,), 10) if problem == "toy" else assay.InputSpace((25,), 50)
    for seed in seeds:
        plan = Plan(edges=edges, seed=seed, ensembles=ensembles, adapt_share=min(0.2, 2e5 / evaluations))
        target = Problem(model.output, space)
        run = Tempering(
            target,
            kernels_of(kernels or "auto"),
            plan,
            Budget(evaluations, None),
            torch.Generator().manual_seed(seed),
        )
        run.begin()
        due, within = 100_000, 0
        while not run.finished and within < 2:
            run.advance()
            if target.evaluations >= due and run.frozen and run.record.steps > 40:
                found = estimate(run.record, LadderSolver(run.betas), seed)
                worst = note(problem, method, seed, due, found.log_density, exact)
                within = within + 1 if worst <= GOAL else 0
                due *= 2


def language(problem: str, evaluations: int, seeds: range, ensembles: int, sampler: str) -> None:
    """assay.sample_outputs on the language model, one whole run per budget."""
    edges, exact = exact_of(problem)
    lm = model_of(problem).language_model()
    for seed in seeds:
        budget, within = 4_000, 0
        while budget <= evaluations and within < 2:
            dist = assay.sample_outputs(
                lm, bins=edges, budget=budget, seed=seed, ensembles=ensembles, sampler=sampler
            )
            name = "assay, language model" if sampler == "auto" else f"assay, {sampler}"
            worst = note(problem, name, seed, budget, dist.log_density, exact)
            covered = np.mean(np.abs(dist.log_density - exact) <= 2 * dist.error)
            used = dist.diagnostics["sampler"]
            print(
                f"    {used}; {covered:.0%} of bins within two errors; {dist.reasons or 'converged'}",
                flush=True,
            )
            within = within + 1 if worst <= GOAL else 0
            budget *= 2


def speed(model: str, data: Path, seconds: float) -> None:
    """Replica-steps per second, and the share of time outside the model's forward."""
    if model == "toy":
        toy = toy_language_model(toy_model())
        cases = {
            "toy, black box": (toy.negative_log_likelihood, assay.InputSpace((8,), 10)),
            "toy, language model": (toy, None),
        }
    else:
        from omniinput_models import stories260k

        lm = assay.CausalLM.from_huggingface(stories260k(data / "stories260K")[0], 25, start=1)
        cases = {
            "stories260K, black box": (lm.negative_log_likelihood, lm.space),
            "stories260K, language model": (lm, None),
        }
    for name, (function, space) in cases.items():
        for ensembles in (2, 8):
            sampler = "tempering" if space is None else "auto"
            dist = assay.sample_outputs(
                function, space, bins=20, seconds=seconds, sampler=sampler, ensembles=ensembles
            )
            found = dist.diagnostics
            print(
                f"{name}, {len(found['betas']) * ensembles} rows per call: "
                f"{found['evaluations'] / found['seconds']:,.0f} replica-steps per second, "
                f"{found['share_outside_model']:.1%} of the time outside the forward"
            )


def table() -> None:
    """For every method and problem, the evaluations after which every later checkpoint is within 0.1 nats."""
    results = CACHE / "sampling.jsonl"
    if not results.exists():
        sys.exit(f"expected results in {results}, found none; run plain, blackbox or language first")
    found: dict[tuple[str, str], dict[int, dict[int, float]]] = {}
    for line in results.read_text().splitlines():
        entry = json.loads(line)
        key = entry["method"], entry["problem"]
        found.setdefault(key, {}).setdefault(entry["seed"], {})[entry["evaluations"]] = entry["worst"]
    print(f"| method | problem | evaluations to {GOAL} nats in every bin, per seed | worst bin at the last |")
    print("| --- | --- | --- | --- |")
    for (method, problem), by_seed in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        needed, last = [], []
        for points in by_seed.values():
            marks = sorted(points)
            bad = [mark for mark in marks if points[mark] > GOAL]
            after = [mark for mark in marks if not bad or mark > bad[-1]]
            needed.append(f"{after[0]:,}" if after else f"> {marks[-1]:,}")
            last.append(f"{points[marks[-1]]:.2f}")
        print(f"| {method} | {problem} | {', '.join(needed)} | {', '.join(last)} |")


def main() -> None:
    global CACHE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["plain", "blackbox", "language", "speed", "table"])
    parser.add_argument("--problem", choices=["markov-core", "markov-full", "toy"], default="markov-core")
    parser.add_argument("--evaluations", type=float, default=1e6)
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="of blackbox and language")
    parser.add_argument("--ensembles", type=int, default=8)
    parser.add_argument("--kernels", nargs="+", default=[], help="of blackbox, instead of its own choice")
    parser.add_argument("--sampler", default="auto")
    parser.add_argument("--model", choices=["toy", "stories260K"], default="toy")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--shared", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--cache", type=Path, default=CACHE)
    asked = parser.parse_args()
    stories = asked.shared / "stories260K"
    if asked.what == "speed" and asked.model == "stories260K" and not stories.exists():
        parser.error(f"expected data at {stories}, found none; pass --shared")
    CACHE = asked.cache
    CACHE.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    match asked.what:
        case "plain":
            plain(asked.problem, int(asked.evaluations), asked.seeds)
        case "blackbox":
            blackbox(asked.problem, int(asked.evaluations), seeds, asked.ensembles, asked.kernels)
        case "language":
            language(asked.problem, int(asked.evaluations), seeds, asked.ensembles, asked.sampler)
        case "speed":
            speed(asked.model, asked.shared, asked.seconds)
        case "table":
            table()
    print(f"took {time.monotonic() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
