"""The figures of the volatility paper, beside ours.

    python benchmarks/papers/volatility_networks.py            # trains the networks, once (see --epochs)
    python benchmarks/papers/volatility.py a b trajectory others --networks ann cnn vgg resnet20
    python benchmarks/papers/volatility.py stopping alarms contamination --networks ann

Needs MNIST and CIFAR-10 (see --data) and, for ResNet-20, its published weights. What a network did under each
condition is kept in the cache folder, so a run that was stopped continues where it was.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from volatility_networks import CACHE, DATA, ann, load, observed, read, trained

import assay
from assay import Network, Trace
from assay.faults import NOISE, attacked, fgsm_direction, pgd
from assay.volatility import TrainingRecord
from assay.volatility.certainty import margins
from assay.volatility.clean_reference import CleanReference
from assay.volatility.comparison import compare_log_vcs, window_log_vcs
from assay.volatility.evidence import Evidence

FINE = [round(0.002 * step, 3) for step in range(16)]
PAPER_A = {"ann": -0.94, "cnn": -0.94, "vgg": -0.89}
PAPER_B = {"ann": -0.952, "cnn": -0.994, "vgg": -0.850}
PART = 500
COMMON = torch.tensor([3, 5, 8])
"""The classes that grow more frequent under label shift."""
MIXED: dict[str, float] = {"pgd": 0.03, "gaussian noise": 3, "gaussian blur": 3}
"""The level of each change at which its rows are mixed into clean ones."""
Options = argparse.Namespace


def fgsm_traces(name: str, options: Options, epsilons: list[float]) -> dict[float, Trace]:
    """The test rows under FGSM, Eq. 8, for several epsilon from one gradient; in parts that are kept."""
    network, (images, labels) = load(name, options.data, options.cache, options.rows)
    found: dict[float, list[Trace]] = {epsilon: [] for epsilon in epsilons}
    for start in range(0, options.rows, PART):
        rows = slice(start, start + PART)
        for epsilon in epsilons:
            make = partial(_fgsm, name, network, images[rows], labels[rows], epsilon, start, options.cache)
            found[epsilon].append(observed(name, f"fgsm-{epsilon}-from-{start}", options.cache, make))
    return {epsilon: Trace.concatenate(parts) for epsilon, parts in found.items()}


def _fgsm(
    name: str,
    network: Network,
    images: torch.Tensor,
    labels: torch.Tensor,
    epsilon: float,
    start: int,
    cache: Path,
) -> Trace:
    path = cache / f"{name}-signs-from-{start}.pt"
    if not path.exists():
        torch.save(fgsm_direction(network, images, labels).to(torch.int8), path)
    direction = torch.load(path, weights_only=True).to(images)
    return network.observe((attacked(images, direction, epsilon), labels))


def scenario_a(name: str, options: Options) -> None:
    """25 sets of 1,000 test rows with 0 to 100 of them under FGSM of 0.10; t-tests against the clean sets."""
    clean, moved = fgsm_traces(name, options, [0.0, 0.10]).values()
    print(f"A {name}, clean accuracy {_accuracy(clean):.3f}, paper's correlation {PAPER_A.get(name, 'none')}")
    _contaminated(f"A {name}, FGSM 0.10", clean, moved)


def _contaminated(title: str, clean: Trace, moved: Trace) -> None:
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
    print(
        f"{title}: correlation {frame['accuracy'].corr(frame['log_vc']):+.3f} over sets, "
        f"{means['accuracy'].corr(means['log_vc']):+.3f} over means of 25 sets"
    )
    print("  p-values by contaminated of 1,000:", {count: f"{p:.1g}" for count, p in tests.items()})
    print("  means at 0, 50, 100:", means.loc[[0, 50, 100]].round(3).to_dict("list"), flush=True)


def scenario_b(name: str, options: Options) -> None:
    """FGSM of 0.000 to 0.030 on all rows."""
    points = [(e, _accuracy(t), _log_vc(t)) for e, t in fgsm_traces(name, options, FINE).items()]
    frame = pd.DataFrame(points, columns=["epsilon", "accuracy", "log_vc"])
    correlation = frame["accuracy"].corr(frame["log_vc"])
    print(f"B {name}: correlation {correlation:.3f} up to epsilon 0.03 (paper {PAPER_B.get(name, 'none')})")
    print(f"  of which up to 0.014: {frame['accuracy'][:8].corr(frame['log_vc'][:8]):.3f}")
    print(frame.iloc[::5].round(3).to_string(index=False))


def trajectory(name: str, options: Options) -> None:
    """Figure 6 from the validation logits kept after each epoch; what stopping on log VC would have done."""
    if name == "resnet20":
        return
    known = trained(name, options.cache)
    record = TrainingRecord(sets=10, size=1000)
    for epoch, logits in enumerate(known["trajectory"], start=1):
        record.record(epoch, Trace(logits, labels=known["labels"]))
    frame = record.to_frame()
    means = frame.groupby("epoch")[["accuracy", "log_vc"]].mean()
    below = frame[frame["accuracy"] <= 0.5]
    print(
        f"trajectory {name}: {len(means)} epochs, correlation {record.correlation(0.5):.3f} above 0.5 "
        f"accuracy (paper -0.878), {len(below)} points at or below"
    )
    losses = [float(cross_entropy(logits, known["labels"])) for logits in known["trajectory"]]
    for patience in (1, 3):
        for what, values in (("log VC", means["log_vc"].to_numpy()), ("loss", np.array(losses))):
            stop, best = _stopped(values, patience)
            reached = means["accuracy"].iloc[best]
            print(
                f"  early stopping on {what}, patience {patience}: stops after epoch {stop + 1}, keeps epoch "
                f"{best + 1} with accuracy {reached:.4f} (best of all epochs {means['accuracy'].max():.4f})"
            )
    record.plot().savefig(options.cache / f"figure6-{name}.png")


def _stopped(values: np.ndarray, patience: int) -> tuple[int, int]:
    """(the epoch at which one stops, the best epoch until then), counted from 0."""
    for epoch in range(len(values)):
        best = int(values[: epoch + 1].argmin())
        if epoch - best >= patience:
            return epoch, best
    return len(values) - 1, int(values.argmin())


def stopping(name: str, options: Options) -> None:
    """Does stopping on log VC pay where training overfits: 2,000 MNIST rows, with or without wrong labels?"""
    images, labels = read("mnist", options.data, "train")
    test_images, test_labels = read("mnist", options.data, "test")
    generator = torch.Generator().manual_seed(0)
    for wrong in options.wrong:
        reached: dict[str, list[float]] = {}
        for seed in range(3):
            rows = torch.randperm(len(labels), generator=generator)
            train, held = rows[:2000], rows[2000:4000]
            noisy = _mislabelled(labels[train], wrong)
            measures = {"log VC": [], "validation loss": []}
            tested = []
            for module in _epochs(images[train], noisy, seed, epochs=20):
                trace = Network(module).observe((images[held], labels[held]))
                measures["log VC"].append(
                    float(window_log_vcs(margins(trace.probabilities.numpy()), 1000).mean())
                )
                measures["validation loss"].append(float(cross_entropy(trace.logits, trace.known_labels)))
                tested.append(_accuracy(Network(module).observe((test_images[:3000], test_labels[:3000]))))
            for what, values in measures.items():
                _, best = _stopped(np.array(values), patience=5)
                reached.setdefault(what, []).append(tested[best])
            reached.setdefault("all 20 epochs", []).append(tested[-1])
            reached.setdefault("best epoch in hindsight", []).append(max(tested))
        means = {what: f"{np.mean(values):.4f}" for what, values in reached.items()}
        print(
            f"stopping, {wrong:.0%} wrong labels, patience 5, test accuracy over 3 seeds: {means}", flush=True
        )


def _epochs(images: torch.Tensor, labels: torch.Tensor, seed: int, epochs: int) -> Iterator[torch.nn.Module]:
    """The ANN of Table I after each epoch."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = ann()
        optimiser = torch.optim.Adam(module.parameters(), lr=0.001)
        for _ in range(epochs):
            for rows in torch.randperm(len(labels)).split(32):
                optimiser.zero_grad()
                cross_entropy(module(images[rows]), labels[rows]).backward()
                optimiser.step()
            yield module


def others(name: str, options: Options) -> None:
    """PGD, noise, blur, label shift and label noise: where the correlation holds and where not.

    First over the levels of each on all rows, as in Scenario B; then the strongest PGD, the middle severity
    of noise and blur, and further rows of the common classes as the contamination of Scenario A.
    """
    rows = min(options.rows, 4000)
    network, data = load(name, options.data, options.cache, rows)
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
    for family, traces in families.items():
        points = [(_accuracy(trace), _log_vc(trace)) for trace in traces.values()]
        frame = pd.DataFrame(points, columns=["accuracy", "log_vc"])
        print(
            f"others {name}, {family} {list(traces)}: correlation "
            f"{frame['accuracy'].corr(frame['log_vc']):+.3f}; "
            f"accuracy {frame['accuracy'].round(3).tolist()}, log VC {frame['log_vc'].round(2).tolist()}",
            flush=True,
        )
        if (level := MIXED.get(family.partition(" of ")[0])) is not None:
            _contaminated(f"A {name}, {family} {level}", clean, traces[level])
    every = fgsm_traces(name, options, [0.0])[0.0]
    known, fresh = every[: len(every) // 2], every[len(every) // 2 :]
    if len(known) >= 2000:  # of fewer, 25 sets of 1,000 would be nearly the same rows
        _contaminated(f"A {name}, common classes", known, fresh[torch.isin(fresh.known_labels, COMMON)])


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
    return Trace(clean.logits, labels=_mislabelled(clean.known_labels, share))


def _mislabelled(labels: torch.Tensor, share: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(labels), generator=generator) < share
    return torch.where(wrong, (labels + 1) % 10, labels)


def alarms(name: str, options: Options) -> None:
    """False alarms of the three tests on clean streams of real certainties, at a stated rate of 5 %."""
    clean = margins(fgsm_traces(name, options, [0.0])[0.0].probabilities.numpy())
    half, window, trials, rate = len(clean) // 2, 250, options.trials, 0.05
    sounded = {"sequential, looked at all the time": 0, "t-test, disjoint windows": 0, "t-test, 25 sets": 0}
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
        sounded["t-test, 25 sets"] += compare_log_vcs(sets[0], sets[1], window, rate).alarm
        looks = range(2, len(log_vcs[0]) + 1)
        peeked += any(compare_log_vcs(log_vcs[1], log_vcs[0][:k], window, rate).alarm for k in looks)
    sounded["t-test, disjoint windows, looked at after each"] = peeked
    for test, count in sounded.items():
        print(f"alarms {name}, {test}: {count} of {trials} clean streams of {half} rows (stated 5 %)")


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
    print(f"contamination {name}:")
    print(limits.to_frame().to_string(index=False))


def _accuracy(trace: Trace) -> float:
    return float(trace.correct.double().mean())


def _log_vc(trace: Trace) -> float:
    return float(np.log(assay.volatility_in_certainty(trace)))


JOBS = {
    "a": scenario_a,
    "b": scenario_b,
    "trajectory": trajectory,
    "stopping": stopping,
    "others": others,
    "alarms": alarms,
    "contamination": contamination,
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
    parser.add_argument("--rows", type=int, default=10_000, help="test rows")
    parser.add_argument("--pgd-steps", type=int, default=5, help="steps of PGD; 0 leaves it out")
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0, 0.2], help="shares of wrong labels")
    parser.add_argument("--trials", type=int, default=200)
    chosen = parser.parse_args()
    for job, network_name in jobs(chosen):
        began = time.perf_counter()
        JOBS[job](network_name, chosen)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)
