"""How right is the answer about accuracy? Every fault at five severities, by an estimator that never saw it.

    python benchmarks/accuracy_answer.py                         # every network; hours on two cores, resumes
    python benchmarks/accuracy_answer.py cnn-mnist --rows 1000   # one network
    python benchmarks/accuracy_answer.py --table                 # the tables of what has been measured
    python benchmarks/accuracy_answer.py resnet20-cifar10 --cost # teaching against forward passes

For each network of subjects.py: reference rows under every fault teach (assay.faults.lessons), operational
rows under every fault are asked about. "fault left out": the estimator saw no lesson of the fault asked
about; "category left out": none of its whole category. Label shift: operational rows with class frequencies
drawn from Dirichlet distributions. Natural shift: what subjects.py has. Labels: 50 rows are drawn by
`rows_to_label`, four times. The constants of the answer were chosen on the subjects of DEVELOPMENT; figures
are results on the others.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from subjects import CACHE, DEVELOPMENT, MEASUREMENT, SUBJECTS, Subject, subject

import assay
from assay.accuracy import AccuracyEstimator, accuracy_from_labels, rows_to_label
from assay.faults import ADVERSARIAL
from assay.faults.kinds import templates_for
from assay.faults.lessons import ATTACK, CLEAN, Lesson, lessons

OUTPUT = CACHE.parent / "accuracy-answer"
LIVE_SEED = 1000
"""Operational faults are drawn anew: the same fault is not the same noise."""
ATTACKED_ROWS = 500
ATTACKS = ("fgsm", "pgd")
STRONG = 0.3
"""An attack is strong if it lowers the accuracy by so much."""
SMALL = 100
BUDGET, DRAWS = 50, 4
MIXES = (0.3, 0.7, 1.0, 3.0, 10.0) * 4
FEWER_ROWS = {"minilm-sst2": 400}
"""A text costs a hundred times as much as an image here."""


def conditions(one: Subject) -> Iterator[Lesson]:
    """Operational rows: as they are, under every fault, attacked. Labels are for the comparison alone."""
    inputs, labels = one.live
    plain = one.network.observe((inputs, labels), keep_inputs=isinstance(inputs, torch.Tensor))
    yield Lesson(CLEAN, CLEAN, 0, plain)
    for template in templates_for(inputs, one.network).values():
        for severity in range(1, 6):
            faulty = template(inputs, severity, seed=LIVE_SEED)
            trace = one.network.observe((faulty, labels), keep_inputs=isinstance(faulty, torch.Tensor))
            yield Lesson(template.name, template.category, severity, trace)
    if isinstance(inputs, torch.Tensor):
        some = inputs[:ATTACKED_ROWS], labels[:ATTACKED_ROWS]
        for name in ATTACKS:
            for severity in range(1, 6):
                moved = ADVERSARIAL[name](some[0], severity, LIVE_SEED, network=one.network, labels=some[1])
                yield Lesson(name, ATTACK, severity, one.network.observe((moved, some[1]), keep_inputs=True))


def measured(one: Subject, folder: Path) -> pd.DataFrame:
    """A row per question put to an estimator."""
    taught = list(lessons(one.network, one.reference, folder=folder))
    asked = list(conditions(one))
    everything = AccuracyEstimator().fit(taught[0].trace, taught)
    rows = [
        answered(everything, "nothing", lesson, lesson.trace)
        for lesson in asked
        if lesson.category in (CLEAN, ATTACK)
    ]
    rows += mixed(everything, asked[0])
    for way in ("fault", "category"):
        groups = dict.fromkeys(
            getattr(lesson, way) for lesson in asked if lesson.category not in (CLEAN, ATTACK)
        )
        for group in groups:
            kept = [lesson for lesson in taught if getattr(lesson, way) != group]
            estimator = AccuracyEstimator().fit(taught[0].trace, kept)
            for lesson in (lesson for lesson in asked if getattr(lesson, way) == group):
                rows.append(answered(estimator, way, lesson, lesson.trace))
                if way == "fault":
                    rows.append(answered(estimator, f"{way}, {SMALL} rows", lesson, lesson.trace[:SMALL]))
            print(f"  {way} {group} left out", flush=True)
    return pd.DataFrame(rows)


def answered(
    estimator: AccuracyEstimator, left_out: str, lesson: Lesson, trace: assay.Trace
) -> dict[str, Any]:
    result = estimator.estimate(estimator.count(trace))
    head = result.headline
    truth = float(trace.correct.double().mean())
    row = {
        "left out": left_out,
        "fault": lesson.fault,
        "category": lesson.category,
        "severity": lesson.severity,
        "rows": len(trace),
        "reference": result.reference_accuracy,
        "truth": truth,
        "value": head.value,
        "lower": head.lower,
        "upper": head.upper,
        "verdict": str(head.verdict),
        "reason": head.reason,
    }
    row |= {f"method: {found.method}": found.value for found in result.estimates}
    if len(trace) > SMALL and left_out != "category":
        row |= with_labels(trace, head.value, truth)
    return row


def with_labels(trace: assay.Trace, expected: float, truth: float) -> dict[str, float]:
    """Over four draws of 50 rows: how often the interval holds the truth, and how wide it is."""
    confidence = trace.probabilities.amax(dim=1).double().numpy()
    correct = trace.correct.double().numpy()
    held, half, alone = [], [], []
    for seed in range(DRAWS):
        drawn = rows_to_label(trace, BUDGET, seed=seed)
        found = accuracy_from_labels(
            confidence,
            drawn,
            correct[drawn.rows],
            expected=None if np.isnan(expected) else expected,
            seed=seed,
        )
        held.append(found.lower <= truth <= found.upper)
        half.append((found.upper - found.lower) / 2)
        uniform = np.random.default_rng(seed).choice(len(trace), BUDGET, replace=False)
        plain = accuracy_from_labels(confidence, uniform, correct[uniform], seed=seed).alone
        alone.append((plain[2] - plain[1]) / 2)
    return {"labels held": np.mean(held), "labels half": np.mean(half), "alone half": np.mean(alone)}


def mixed(estimator: AccuracyEstimator, clean: Lesson) -> Iterator[dict[str, Any]]:
    """Label shift."""
    generator = np.random.default_rng(0)
    labels = clean.trace.known_labels.numpy()
    for parameter in MIXES:
        weights = generator.dirichlet(np.full(clean.trace.logits.shape[1], parameter))[labels]
        places = generator.choice(len(labels), len(labels) // 2, p=weights / weights.sum())
        part = Lesson("label shift", "label shift", 0, clean.trace)
        yield answered(estimator, "nothing", part, clean.trace[torch.from_numpy(places)])


def natural(one: Subject, folder: Path) -> pd.DataFrame:
    """What came in operation without anybody making it."""
    rows = []
    for name, (reference, live) in one.natural.items():
        estimator = AccuracyEstimator().fit(reference, network=one.network, folder=folder)
        trace = one.network.observe(live, keep_inputs=isinstance(live[0], torch.Tensor))
        rows.append(answered(estimator, "nothing", Lesson(name, "natural", 0, trace), trace))
    return pd.DataFrame(rows)


def table(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row per network."""
    return pd.DataFrame({name: summary(frame) for name, frame in frames.items()}).T


def summary(frame: pd.DataFrame) -> dict[str, Any]:
    told = frame["verdict"] != "cannot tell"
    error = (frame["value"] - frame["truth"]).abs() * 100
    holds = (frame["lower"] <= frame["truth"]) & (frame["truth"] <= frame["upper"])
    stuck = frame["fault"].isin(["stuck_frame", "stuck_sensor"])
    fault = (frame["left out"] == "fault") & ~stuck
    category = (frame["left out"] == "category") & ~stuck
    plain = frame["category"].isin(["noise", "shift"])
    strong = (frame["category"] == ATTACK) & (frame["truth"] < frame["reference"] - STRONG)
    small = frame["left out"] == f"fault, {SMALL} rows"
    half = (frame["upper"] - frame["lower"]) * 50
    right = told & holds & frame["labels half"].notna()
    best, best_error = best_method(frame[fault & told])
    return {
        "noise and shift": error[fault & plain & told].mean(),
        "all but attacks": error[fault & told].mean(),
        "best single method": best_error,
        "its name": best,
        "cannot tell": 100 * (~told)[fault].mean(),
        "told: attacks, stuck": 100 * (~told)[strong | (stuck & (frame["left out"] == "fault"))].mean(),
        "holds": 100 * holds[fault & told].mean(),
        "category: error": error[category & told].mean(),
        "category: holds": 100 * holds[category & told].mean(),
        "half-width": half[fault & told].median(),
        f"{SMALL} rows: holds": 100 * holds[small & told].mean(),
        f"{SMALL} rows: half-width": half[small & told].median(),
        "label shift: error": error[(frame["category"] == "label shift") & told].mean(),
        "label shift: holds": 100 * holds[(frame["category"] == "label shift") & told].mean(),
        "50 labels: holds": 100 * frame["labels held"].mean(),
        "50 labels: width": (frame["labels half"] / frame["alone half"])[right].mean(),
    }


def best_method(frame: pd.DataFrame) -> tuple[str, float]:
    """The single method with the least mean error, where the answer told: chosen by the truth, which flatters
    it."""
    columns = [name for name in frame if name.startswith("method: ")]
    errors = frame[columns].sub(frame["truth"], axis=0).abs().mean() * 100
    name = str(errors.idxmin())
    return name.removeprefix("method: "), float(errors[name])


def run(names: Sequence[str], count: int) -> None:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = OUTPUT / f"{name}-{count}.parquet"
        if path.exists():
            continue
        start = time.perf_counter()
        one = subject(name, min(count, FEWER_ROWS.get(name, count)))
        folder = OUTPUT / "lessons" / name
        frame = pd.concat([measured(one, folder), natural(one, folder)], ignore_index=True)
        frame.to_parquet(path)
        print(f"{name}: {len(frame)} questions in {time.perf_counter() - start:.0f} s", flush=True)


def cost(name: str, count: int) -> None:
    """CPU time of teaching beside its forward passes, and of counting a row beside the network."""
    one = subject(name, count)
    passes = 1 + 5 * len(templates_for(one.reference[0], one.network))
    forward = min(_seconds(lambda: one.network.observe(one.reference)) for _ in range(5))
    estimator = AccuracyEstimator()
    teaching = _seconds(lambda: estimator.fit(one.reference, network=one.network))
    trace = one.network.observe(one.live, keep_inputs=True)
    answer = estimator.answer_
    assert answer is not None
    counting = min(_seconds(lambda: answer.count(trace)) for _ in range(20)) / len(trace)
    everything = min(_seconds(lambda: estimator.count(trace)) for _ in range(20)) / len(trace)
    print(
        f"{name}, {len(one.reference[1])} reference rows: teaching {teaching:.0f} s, {passes} forward passes "
        f"{passes * forward:.0f} s: {teaching / passes / forward:.2f}; an operational row takes "
        f"{1e6 * counting:.1f} us for the answer, {1e6 * everything:.1f} us with all methods, and "
        f"{1e6 * forward / count:.0f} us for the network"
    )


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*MEASUREMENT, *DEVELOPMENT], help="subjects")
    parser.add_argument("--rows", type=int, default=1000, help="reference rows, and as many operational ones")
    parser.add_argument("--cost", action="store_true", help="only measure what teaching and counting cost")
    parser.add_argument("--table", action="store_true", help="only print what has been measured")
    options = parser.parse_args()
    for name in options.names:
        if name not in SUBJECTS:
            parser.error(f"expected one of {list(SUBJECTS)}, got {name!r}")
    if options.cost:
        for name in options.names:
            cost(name, options.rows)
        return
    if not options.table:
        run(options.names, options.rows)
    paths = {name: OUTPUT / f"{name}-{options.rows}.parquet" for name in options.names}
    frames = {name: pd.read_parquet(path) for name, path in paths.items() if path.exists()}
    for title, part in (("Measured", MEASUREMENT), ("Chosen on", DEVELOPMENT)):
        if chosen := {name: frame for name, frame in frames.items() if name in part}:
            print(f"\n{title}\n{table(chosen).T.to_string(float_format='{:.1f}'.format)}")
    shifts = {name: frame[frame["category"] == "natural"] for name, frame in frames.items()}
    for name, frame in shifts.items():
        if len(frame):
            columns = ["fault", "rows", "reference", "truth", "value", "lower", "upper", "verdict"]
            print(f"\nNatural shift, {name}\n{frame[columns].round(3).to_string(index=False)}")


if __name__ == "__main__":
    main()
