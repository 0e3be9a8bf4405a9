"""The figures of the volatility paper, beside ours.

    python benchmarks/papers/volatility_networks.py            # trains the networks, once (see --epochs)
    python benchmarks/papers/volatility.py accuracies a b trajectory others --networks ann cnn vgg resnet20
    python benchmarks/papers/volatility.py stopping alarms contamination regulariser --networks ann

Needs MNIST and CIFAR-10 (see --data) and, for ResNet-20, its published weights. What a network did under each
condition is kept in the cache folder, so a run that was stopped continues where it was. The jobs about
training are in volatility_training.py, the tables for the docs in volatility_tables.py.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from volatility_networks import CACHE, DATA, load, observed
from volatility_tables import PAPER_A, PAPER_B, Facts, note, write_tables
from volatility_training import accuracies, mislabelled, regulariser, stopping, trajectory

import assay
from assay import Network, Trace
from assay.faults import NOISE, attacked, fgsm_direction, pgd
from assay.volatility.certainty import margins
from assay.volatility.clean_reference import CleanReference
from assay.volatility.comparison import compare_log_vcs, window_log_vcs
from assay.volatility.evidence import Evidence

FINE = [round(0.002 * step, 3) for step in range(16)]
PART = 500
COMMON = torch.tensor([3, 5, 8])
"""The classes that grow more frequent under label shift."""
MIXED: dict[str, float] = {"pgd": 0.03, "gaussian noise": 3, "gaussian blur": 3}
"""The level of each change at which its rows are mixed into clean ones."""
PAPERS_TEST = "t-test, 25 sets of one pool each, as in the paper"
Options = argparse.Namespace


def fgsm_traces(name: str, options: Options, epsilons: list[float], clip: bool = True) -> dict[float, Trace]:
    """The test rows under FGSM, Eq. 8, for several epsilon from one gradient; in parts that are kept.

    `clip` cuts attacked images to [0, 1], as a camera would. The paper's Eq. 8 does not.
    """
    network, (images, labels) = load(name, options.data, options.weights, options.rows)
    key = "fgsm" if clip else "fgsm-unclipped"
    found: dict[float, list[Trace]] = {epsilon: [] for epsilon in epsilons}
    for start in range(0, options.rows, PART):
        rows = slice(start, start + PART)
        for epsilon in epsilons:
            signs = options.cache / f"{name}-signs-from-{start}.pt"
            make = partial(_fgsm, network, images[rows], labels[rows], epsilon, clip, signs)
            found[epsilon].append(observed(name, f"{key}-{epsilon}-from-{start}", options.cache, make))
    return {epsilon: Trace.concatenate(parts) for epsilon, parts in found.items()}


def _fgsm(
    network: Network, images: torch.Tensor, labels: torch.Tensor, epsilon: float, clip: bool, signs: Path
) -> Trace:
    if not signs.exists():
        torch.save(fgsm_direction(network, images, labels).to(torch.int8), signs)
    direction = torch.load(signs, weights_only=True).to(images)
    low, high = (0.0, 1.0) if clip else (None, None)
    return network.observe((attacked(images, direction, epsilon, low=low, high=high), labels))


def scenario_a(name: str, options: Options) -> None:
    """25 sets of 1,000 test rows with 0 to 100 of them under FGSM of 0.10; t-tests against the clean sets."""
    clean, moved = fgsm_traces(name, options, [0.0, 0.10]).values()
    print(f"A {name}, clean accuracy {_accuracy(clean):.3f}, paper's correlation {PAPER_A.get(name, 'none')}")
    found = _contaminated(f"A {name}, FGSM 0.10", clean, moved)
    note(options, f"a-{name}", found | {"accuracy": _accuracy(clean)})


def _contaminated(title: str, clean: Trace, moved: Trace) -> Facts:
    """Scenario A for any change; rows of `moved` take the place of the same rows of `clean`, or of any."""
    certainties = [margins(trace.probabilities.numpy()) for trace in (clean, moved)]
    right = [trace.correct.double().numpy() for trace in (clean, moved)]
    generator = np.random.default_rng(0)
    sets = [generator.choice(len(clean), 1000, replace=False) for _ in range(25)]
    same = len(moved) == len(clean)
    taken = sets if same else [generator.choice(len(moved), 100, replace=False) for _ in sets]
    points = []
    for count in range(0, 105, 5):
        for number, (rows, into) in enumerate(zip(sets, taken, strict=True)):
            hit, kept = into[:count], rows[count:]
            mixed = np.concatenate([certainties[1][hit], certainties[0][kept]])
            accuracy = np.concatenate([right[1][hit], right[0][kept]]).mean()
            points.append((count, number, accuracy, window_log_vcs(mixed, 1000)[0]))
    frame = pd.DataFrame(points, columns=["count", "set", "accuracy", "log_vc"])
    by_count = {count: part["log_vc"].to_numpy() for count, part in frame.groupby("count")}
    tests = {
        count: compare_log_vcs(by_count[0], found, 1000).p_value for count, found in by_count.items() if count
    }
    means = frame.groupby("count")[["accuracy", "log_vc"]].mean()
    found = {
        "over_sets": frame["accuracy"].corr(frame["log_vc"]),
        "over_means": means["accuracy"].corr(means["log_vc"]),
        "p": tests,
        "accuracies": means.loc[[0, 50, 100], "accuracy"].tolist(),
        "log_vcs": means.loc[[0, 50, 100], "log_vc"].tolist(),
    }
    print(f"{title}: {found}", flush=True)
    return found


def scenario_b(name: str, options: Options) -> None:
    """FGSM of 0.000 to 0.030 on all rows, attacked images cut to [0, 1] and not."""
    found = {how: _fine(name, options, how == "clipped") for how in ("clipped", "unclipped")}
    print(f"B {name} (paper {PAPER_B.get(name, 'none')}): {found}", flush=True)
    note(options, f"b-{name}", found)


def _fine(name: str, options: Options, clip: bool) -> Facts:
    points = [(_accuracy(trace), _log_vc(trace)) for trace in fgsm_traces(name, options, FINE, clip).values()]
    frame = pd.DataFrame(points, columns=["accuracy", "log_vc"])
    return {
        "correlation": frame["accuracy"].corr(frame["log_vc"]),
        "small": frame["accuracy"][:8].corr(frame["log_vc"][:8]),
        "accuracies": frame["accuracy"].iloc[::5].tolist(),
        "log_vcs": frame["log_vc"].iloc[::5].tolist(),
    }


def others(name: str, options: Options) -> None:
    """PGD, noise, blur, label shift and label noise: where the correlation holds and where not.

    First over the levels of each on all rows, as in Scenario B; then the strongest PGD, the middle severity
    of noise and blur, and further rows of the common classes as the contamination of Scenario A.
    """
    rows = min(options.rows, options.changed_rows)
    network, data = load(name, options.data, options.weights, rows)
    clean = observed(name, f"clean-{rows}", options.cache, partial(network.observe, data))
    families: dict[str, dict[float, Trace]] = {
        "label shift": {share: _shifted(clean, share, rows // 2) for share in (0.1, 0.2, 0.3, 0.4, 0.5)},
        "label noise": {share: _mislabelled_trace(clean, share) for share in (0.0, 0.1, 0.2, 0.4)},
    }
    for family, conditions in _conditions(network, *data, options.pgd_steps).items():
        families[family] = {0: clean} | {
            level: observed(name, f"{family}-{level}-{rows}", options.cache, make)
            for level, make in conditions.items()
        }
    found: Facts = {"rows": rows, "levels": {}, "mixed": {}}
    for family, traces in families.items():
        found["levels"][family] = _over_levels(traces)
        print(f"others {name}, {family} {list(traces)}: {found['levels'][family]}", flush=True)
        if (level := MIXED.get(family.partition(" of ")[0])) is not None:
            title = f"{family}, {'ε =' if level < 1 else 'severity'} {level:g}"
            found["mixed"][title] = _contaminated(f"A {name}, {title}", clean, traces[level])
    every = fgsm_traces(name, options, [0.0])[0.0]
    known, fresh = every[: len(every) // 2], every[len(every) // 2 :]
    if len(known) >= 2000:  # of fewer, 25 sets of 1,000 would be nearly the same rows
        shifted = fresh[torch.isin(fresh.known_labels, COMMON)]
        found["mixed"]["label shift"] = _contaminated(f"A {name}, common classes", known, shifted)
    note(options, f"others-{name}", found)


def _over_levels(traces: dict[float, Trace]) -> Facts:
    points = [(_accuracy(trace), _log_vc(trace)) for trace in traces.values()]
    frame = pd.DataFrame(points, columns=["accuracy", "log_vc"])
    moves = frame["log_vc"].nunique() > 1
    return {
        "correlation": frame["accuracy"].corr(frame["log_vc"]) if moves else None,
        "accuracies": frame["accuracy"].tolist(),
        "log_vcs": frame["log_vc"].tolist(),
    }


def _conditions(
    network: Network, images: torch.Tensor, labels: torch.Tensor, pgd_steps: int
) -> dict[str, dict[float, Callable[[], Trace]]]:
    """Families of changed rows by level; each level has as many rows, since VC depends on N."""

    def fault(template: str, severity: int) -> Trace:
        return network.observe((NOISE[template](images, severity), labels))

    def attack(epsilon: float) -> Trace:
        return network.observe((pgd(network, images, labels, epsilon, steps=pgd_steps), labels))

    attacks = {e: partial(attack, e) for e in (0.005, 0.01, 0.02, 0.03)}
    return ({f"pgd of {pgd_steps} steps": attacks} if pgd_steps else {}) | {
        "gaussian noise": {s: partial(fault, "gaussian", s) for s in range(1, 6)},
        "gaussian blur": {s: partial(fault, "gaussian_blur", s) for s in range(1, 6)},
    }


def _shifted(clean: Trace, share: float, size: int) -> Trace:
    """As many rows as can be had at every share, of which the common classes make up `share`."""
    labels = clean.known_labels
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    common = torch.isin(labels[order], COMMON)
    count = min(size // 2, int(common.sum()))
    rows = torch.cat([order[common][: int(share * 2 * count)], order[~common]])[: 2 * count]
    return clean[rows]


def _mislabelled_trace(clean: Trace, share: float) -> Trace:
    return Trace(clean.logits, labels=mislabelled(clean.known_labels, share))


def alarms(name: str, options: Options) -> None:
    """False alarms of the three tests on clean streams of real certainties, at a stated rate of 5 %."""
    clean = margins(fgsm_traces(name, options, [0.0])[0.0].probabilities.numpy())
    half, window, trials, rate = len(clean) // 2, 250, options.trials, 0.05
    sounded = {
        "sequential, looked at all the time": 0,
        "t-test, disjoint windows": 0,
        PAPERS_TEST: 0,
    }
    peeked = 0
    for trial in range(trials):
        generator = np.random.default_rng(trial)
        order = generator.permutation(clean)
        known, stream = order[:half], order[half:]
        evidence = Evidence(CleanReference.of_margins(known, window, resamples=300, seed=trial), rate)
        evidence.add_rows(stream.tolist())
        log_vcs = window_log_vcs(stream, window), window_log_vcs(known, window)
        for log_vc in log_vcs[0]:
            evidence.add_window(float(log_vc))
        sounded["sequential, looked at all the time"] += evidence.alarm
        sounded["t-test, disjoint windows"] += compare_log_vcs(log_vcs[1], log_vcs[0], window, rate).alarm
        sets = [_sets(pool, window, generator) for pool in (known, stream)]
        sounded[PAPERS_TEST] += compare_log_vcs(sets[0], sets[1], window, rate).alarm
        looks = range(2, len(log_vcs[0]) + 1)
        peeked += any(compare_log_vcs(log_vcs[1], log_vcs[0][:k], window, rate).alarm for k in looks)
    sounded["t-test, disjoint windows, looked at after each"] = peeked
    rows = [
        {"test": t, "streams with an alarm": f"{n} of {trials} ({n / trials:.0%})"}
        for t, n in sounded.items()
    ]
    print(f"alarms {name}, clean streams of {half} rows: {rows}")
    note(options, f"alarms-{name}", rows)


def _sets(pool: np.ndarray, window: int, generator: np.random.Generator) -> np.ndarray:
    """The paper's way: 25 sets drawn from one pool, which share rows."""
    return np.concatenate(
        [window_log_vcs(generator.choice(pool, window, replace=False), window) for _ in range(25)]
    )


def contamination(name: str, options: Options) -> None:
    """The smallest share of rows under FGSM of 0.10 that is found, by window and length of the stream."""
    clean, moved = fgsm_traces(name, options, [0.0, 0.10]).values()
    limits = assay.smallest_contamination(
        clean,
        moved,
        windows=(250, 1000),
        rows=(1000, 2000, 5000),
        trials=40,
        shares=(0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1),
    )
    frame = limits.to_frame()
    print(f"contamination {name}:\n{frame.to_string(index=False)}")
    note(options, f"contamination-{name}", frame.astype(str).to_dict("records"))


def _accuracy(trace: Trace) -> float:
    return float(trace.correct.double().mean())


def _log_vc(trace: Trace) -> float:
    return float(np.log(assay.volatility_in_certainty(trace)))


JOBS = {
    "accuracies": accuracies,
    "a": scenario_a,
    "b": scenario_b,
    "trajectory": trajectory,
    "stopping": stopping,
    "others": others,
    "alarms": alarms,
    "contamination": contamination,
    "regulariser": regulariser,
}


def jobs(options: Options) -> Iterator[tuple[str, str]]:
    for name in options.networks:
        for job in options.jobs:
            yield job, name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", nargs="+", choices=JOBS)
    parser.add_argument("--networks", nargs="+", default=["ann", "cnn", "vgg", "resnet20"])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--weights", type=Path, help="where volatility_networks.py left them (--cache)")
    parser.add_argument("--tables", type=Path, help="folder for the tables as Markdown")
    parser.add_argument("--rows", type=int, default=10_000, help="test rows")
    parser.add_argument("--changed-rows", type=int, default=4000, help="of those, rows that `others` changes")
    parser.add_argument("--pgd-steps", type=int, default=5, help="steps of PGD; 0 leaves it out")
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0, 0.2], help="shares of wrong labels")
    parser.add_argument("--trials", type=int, default=200)
    chosen = parser.parse_args()
    chosen.weights = chosen.weights or chosen.cache
    for job, network_name in jobs(chosen):
        began = time.perf_counter()
        JOBS[job](network_name, chosen)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
    if chosen.tables:
        write_tables(chosen, chosen.tables)
