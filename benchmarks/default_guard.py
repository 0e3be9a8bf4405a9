"""Is one guard good everywhere? The default guard beside every single monitor, on networks not chosen on.

    python benchmarks/default_guard.py choose            # the candidates, on the two networks that decide
    python benchmarks/default_guard.py measure           # the default guard, on all others; resumes
    python benchmarks/default_guard.py table             # what was measured: one table, one figure

Scenarios for images are those of the safety-monitor paper at its authors' levels: 18 transformations at two
levels (anomalies 1 and 3, noise and shift 2 and 5), rotated and FGSM once; for tables and texts every fault
of the library, at severities 1 and 5; and unknown inputs. A fifth of every scenario is untouched. Monitors
are fitted on training rows and calibrated at 5 % on the reference; MCC is the paper's specific one (alarm
against fault), "caught" the share of wrong answers (and of unknown inputs) under alarm. Means are over
categories. Monitors that pytorch-ood has score as it does, which `tests/monitors` checks; its best is the
best of those.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from subjects import CACHE, CHOOSING_GUARDS, SUBJECTS, Subject, chosen, subject

import assay
from assay import Guard, Trace, monitors
from assay.benchmark import BenchmarkResult
from assay.benchmark.building import PAPER
from assay.errors import InputError
from assay.guard.default import taught
from assay.monitors import LikelihoodRatio, Monitor, Standardised

FOLDER = CACHE.parent / "default_guard"
DEFAULT = "default guard"
FITTED = 4000
"""Training rows that the monitors are fitted on, at most."""
SPLITS = 200
SPARE = dict.fromkeys(SUBJECTS, 5000) | {"mlp-sensorless": 600, "mlp-digits": 450, "minilm-sst2": 1300}
"""Operational rows on which the promise is tested: as many as there are, apart from every reference."""
GAINS, MOST_BELOW = {"MCC": 0.03, "caught": 0.05}, 0.05
"""The aim: on average so much better than the best single monitor, and in no category worse by more."""
MEASURES = {"MCC": "specific_mcc", "caught": "overall_recall", "AUROC": "specific_auroc"}
RATE = 0.05
AUTHORS_LEVELS = {"anomaly": (1, 3), "noise": (2, 5), "shift": (2, 5)}
ONCE = ("rotated", "fgsm")
"""What the authors have at one level; here it is 5."""

SINGLES: dict[str, Callable[[], Monitor]] = {
    "MaxSoftmax": monitors.MaxSoftmax,
    "MaxLogit": monitors.MaxLogit,
    "Energy": monitors.Energy,
    "Entropy": monitors.Entropy,
    "GEN": monitors.GEN,
    "KLMatching": monitors.KLMatching,
    "OpenMax": monitors.OpenMax,
    "Mahalanobis": lambda: monitors.Mahalanobis(estimator="oas"),
    "RelativeMahalanobis": lambda: monitors.RelativeMahalanobis(estimator="oas"),
    "KNN": monitors.KNN,
    "NNGuide": monitors.NNGuide,
    "ViM": monitors.ViM,
    "SHE": monitors.SHE,
    "ReAct": monitors.ReAct,
    "ASH": monitors.ASH,
    "SCALE": monitors.SCALE,
    "DICE": monitors.DICE,
    "FDBD": monitors.FDBD,
    "NCI": monitors.NCI,
    "GradNorm": monitors.GradNorm,
    "ActivationBox": monitors.ActivationBox,
    "GaussianInterval": monitors.GaussianInterval,
    "InputStatistics": monitors.InputStatistics,
}
NOT_IN_PYTORCH_OOD = ("ActivationBox", "GaussianInterval", "InputStatistics")

BESIDE_THE_INPUT: dict[str, Callable[[], list[Monitor]]] = {
    "KNN, GEN": lambda: [neighbours(), monitors.GEN()],
    "ViM, GEN": lambda: [monitors.ViM(), monitors.GEN()],
    "RelativeMahalanobis, GEN": lambda: [classes(), monitors.GEN()],
    "KNN, RelativeMahalanobis, GEN": lambda: [neighbours(), classes(), monitors.GEN()],
    "KNN, RelativeMahalanobis, Entropy": lambda: [neighbours(), classes(), monitors.Entropy()],
}
"""Members of the candidates, beside InputStatistics."""
COMBINE = ("fisher", "cauchy", "harmonic", "root", "mean")
TAUGHT = "likelihood ratio, taught"
WEIGHED = (("harmonic", 0.5), ("harmonic", 0.7), ("root", 0.5), ("root", 0.7))
"""Combinations with this share of the weight on the input's monitor."""


def neighbours() -> Monitor:
    return monitors.KNN(k=10, limit=2000)


def classes() -> Monitor:
    return monitors.RelativeMahalanobis(estimator="oas")


def training_rows(found: Subject) -> Any:
    """At most FITTED of the rows the network learned from."""
    order = torch.randperm(len(found.train[1]), generator=torch.Generator().manual_seed(0))
    return chosen(found.train, order[:FITTED])


def observed(found: Subject) -> tuple[Trace, Trace]:
    """Traces to fit on and to calibrate on."""
    return (
        found.network.observe(training_rows(found), keep_inputs="encoded"),
        found.network.observe(found.reference, keep_inputs="encoded"),
    )


def measured_guards(found: Subject) -> dict[str, Guard]:
    """The default guard, and every single monitor that can be fitted."""
    fitted, held = observed(found)
    default = assay.default_guard(found.network, found.reference, RATE, train=training_rows(found))
    return {DEFAULT: default} | dict(_single_guards(found, fitted, held))


def _single_guards(found: Subject, fitted: Trace, held: Trace) -> Iterable[tuple[str, Guard]]:
    own = {"InputStatistics": lambda: monitors.InputStatistics.of(found.network)}
    for name, build in (SINGLES | own).items():
        try:
            yield name, Guard(found.network, build().fit(fitted)).calibrate(held, RATE)
        except InputError as error:
            print(f"{found.name}: {name} left out ({error})", flush=True)


def candidates(found: Subject) -> dict[str, Guard]:
    """Every combination that might become the default, with the members' own guards beside them."""
    fitted, held = observed(found)
    half = torch.arange(len(held)) % 2 == 0
    made: dict[str, Guard] = {}
    for names, build in BESIDE_THE_INPUT.items():
        members = [monitors.InputStatistics.of(found.network), *build()]
        members = [member.fit(fitted) for member in members]
        for kind, monitor in _combinations(members):
            monitor.fit(held[half])
            if kind == TAUGHT:
                taught(monitor, found.network, held[half].inputs, 0)
            guard = Guard(found.network, monitor)
            made[f"{kind}: {names}"] = guard.calibrate(held[~half], RATE)
    return made | dict(_single_guards(found, fitted, held))


def _combinations(members: list[Monitor]) -> Iterable[tuple[str, Monitor]]:
    """By name, not fitted yet; all of the same members, which are."""
    yield TAUGHT, LikelihoodRatio(members, prefit=True)
    yield "likelihood ratio, not taught", LikelihoodRatio(members, prefit=True)
    for combine in COMBINE:
        yield combine, Standardised(members, combine=combine, prefit=True)
    for combine, share in WEIGHED:
        weights = [share, *[(1 - share) / (len(members) - 1)] * (len(members) - 1)]
        weighed = Standardised(members, combine=combine, weights=weights, prefit=True)
        yield f"{combine}, {share} the input's", weighed
    yield "any", monitors.AnyOf(members, prefit=True)
    yield "fisher without a tail", Standardised(members, tail=False, prefit=True)


def scenarios_of(found: Subject) -> list[assay.Scenario]:
    """Images: the authors' 78 for two networks, 39 each, and one more unknown set; others: every fault."""

    def built(faults: Iterable[str] | None, severities: tuple[int, ...], **options: Any) -> Any:
        return assay.build_scenarios(
            *found.live, network=found.network, faults=faults, severities=severities, **options
        )

    if found.kind != "image":
        return built(None, (1, 5), novelty=found.unknown)
    twice = [name for name in PAPER if name not in ONCE]
    category = {name: assay.faults.kinds.IMAGES[name].category for name in twice}
    return [
        *(one for name in twice for one in built([name], AUTHORS_LEVELS[category[name]])),
        *built(ONCE, (5,), novelty=found.unknown),
    ]


def run(found: Subject, guards: dict[str, Guard], folder: Path) -> BenchmarkResult:
    """Every guard on every scenario; finished cells are kept and not run again."""
    result = assay.run_benchmark(
        guards, scenarios_of(found), checkpoint=folder / f"cells-{found.name}", resamples=10
    )
    assay.save(result, folder / f"{found.name}.safetensors")
    return result


def promise(guard: Guard, name: str, rows: int) -> dict[str, float]:
    """How well the rate is kept over random splits of clean rows that neither fit nor p-values have used:
    half as many as `rows` set the threshold, all others test it."""
    found = subject(name, SPARE.get(name, rows))
    trace = found.network.observe(found.live, keep_inputs="encoded")
    half, scores = min(rows, len(trace)) // 2, guard.scores(trace).numpy()
    generator, rates = np.random.default_rng(0), {None: [], 0.95: []}
    again = {level: Guard(guard.network, guard.monitor) for level in rates}
    ranks = {
        level: one.calibrate(trace[:half], RATE, level=level).calibration["rank"]
        for level, one in again.items()
    }
    for _ in range(SPLITS):
        mixed = generator.permutation(scores)
        for level, kept in rates.items():
            threshold = np.sort(mixed[:half])[ranks[level] - 1]
            kept.append(float((mixed[half:] > threshold).mean()))
    return {
        "rows tested": len(scores) - half,
        "mean rate": float(np.mean(rates[None])),
        "splits at most 5 % with level 0.95": float(np.mean(np.array(rates[0.95]) <= RATE)),
        "bytes": guard.monitor.nbytes,
    }


def by_category(result: BenchmarkResult, measure: str) -> pd.DataFrame:
    """Guards by categories, and the mean over categories."""
    wide = result.table.pivot_table(index="guard", columns="category", values=measure, sort=False)
    wide["mean"] = wide.mean(axis=1)
    return wide


def best_singles(result: BenchmarkResult, measure: str) -> tuple[pd.Series, pd.DataFrame]:
    """The default guard by category and on average, and the same of every single monitor."""
    wide = by_category(result, measure)
    return wide.loc[DEFAULT], wide.drop(index=DEFAULT)


def compared(name: str, result: BenchmarkResult, facts: dict[str, float]) -> dict[str, Any]:
    """One row of the table: the default guard beside the best single monitors."""
    row: dict[str, Any] = {"network": name}
    holds = True
    for title, measure in MEASURES.items():
        own, singles = best_singles(result, measure)
        best = singles["mean"].idxmax()
        theirs = singles.drop(index=[n for n in NOT_IN_PYTORCH_OOD if n in singles.index])["mean"]
        row[f"{title}: default, best single, pytorch-ood's"] = (
            f"{own['mean']:.2f}, {singles.loc[best, 'mean']:.2f} ({best}), "
            f"{theirs.max():.2f} ({theirs.idxmax()})"
        )
        if title in GAINS:
            short = (singles.max() - own).drop("mean")
            row[f"{title}: most below"] = f"{max(short.max(), 0):.2f} ({short.idxmax()})"
            gained = own["mean"] - singles.loc[best, "mean"] >= GAINS[title]
            holds = holds and gained and short.max() <= MOST_BELOW
    part = result.table[result.table["guard"] == DEFAULT]
    row["aim"] = "holds" if holds else "denied"
    row["false alarms"] = f"{part['clean_false_alarms'].mean():.3f}"
    row["monitor / network"] = f"{part['monitor_seconds'].mean() / part['model_seconds'].mean():.0%}"
    return row | {key: f"{value:.3g}" for key, value in facts.items()}


def by_network_and_category(results: dict[str, BenchmarkResult], measure: str) -> pd.DataFrame:
    """The default guard and, after it, the best single monitor of that very category."""
    rows = {}
    for name, result in results.items():
        own, singles = best_singles(result, measure)
        rows[name] = {
            category: f"{own[category]:.2f} / {singles[category].max():.2f} ({singles[category].idxmax()})"
            for category in own.index.drop("mean")
        }
    return pd.DataFrame(rows).T.fillna("").rename_axis("network")


def markdown(frame: pd.DataFrame) -> str:
    rows = [
        [frame.index.name, *frame.columns],
        ["---"] * (frame.shape[1] + 1),
        *frame.reset_index().to_numpy(),
    ]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


OTHERS = {"marker": "o", "linestyle": "", "color": "#bbbbbb", "markersize": 4}
DRAWN = {
    DEFAULT: OTHERS | {"marker": "D", "color": "#0072b2", "markersize": 6, "zorder": 3},
    "InputStatistics": OTHERS
    | {"color": "#d55e00", "markerfacecolor": "none", "markersize": 9, "zorder": 4},  # often on the other
}


def figure(results: dict[str, BenchmarkResult], path: Path) -> None:
    """MCC by network and category, of the default guard and every single monitor."""
    from matplotlib.figure import Figure

    across = min(4, len(results))
    down = -(-len(results) // across)
    drawn = Figure(figsize=(3.0 * across, 2.8 * down), layout="constrained")
    places = drawn.subplots(down, across, squeeze=False, sharey=True).flatten()
    for axes, (name, result) in zip(places, results.items(), strict=False):
        wide = by_category(result, "specific_mcc")
        for guard, values in wide.iterrows():
            axes.plot(range(len(values)), values, **DRAWN.get(guard, OTHERS))
        axes.set_xticks(range(wide.shape[1]), list(wide.columns), rotation=40, ha="right", fontsize=8)
        axes.set_title(name + (" (chosen on)" if name in CHOOSING_GUARDS else ""), fontsize=9)
        axes.set_ylim(-0.3, 1.02)
        axes.grid(axis="y", color="#eeeeee")
    for axes in places[len(results) :]:
        axes.set_axis_off()
    for axes in places[::across]:
        axes.set_ylabel("MCC")
    drawn.suptitle(
        "MCC by category: the default guard (blue diamonds), InputStatistics alone (orange rings) and every "
        "other single monitor (grey dots)"
    )
    drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def choose(options: argparse.Namespace) -> None:
    folder = FOLDER / "choose"
    tables, shortfalls = [], []
    for name in options.names or CHOOSING_GUARDS:
        found = subject(name, options.rows)
        result = run(found, candidates(found), folder)
        tables.append(
            pd.DataFrame(
                {
                    f"{name} MCC": by_category(result, "specific_mcc")["mean"],
                    f"{name} caught": by_category(result, "overall_recall")["mean"],
                }
            )
        )
        wides = [by_category(result, MEASURES[title]).drop(columns="mean") for title in ("MCC", "caught")]
        below = [(wide.loc[wide.index.isin(SINGLES)].max() - wide).max(axis=1) for wide in wides]
        shortfalls.append(pd.concat(below, axis=1).max(axis=1))
    table = pd.concat(tables, axis=1)
    table["mean"] = table.mean(axis=1)
    table["most below a single monitor"] = pd.concat(shortfalls, axis=1).max(axis=1)
    print(table.sort_values("mean", ascending=False).round(3).to_string())


def measure(options: argparse.Namespace) -> None:
    for name in options.names or SUBJECTS:
        found = subject(name, options.rows)
        guards = measured_guards(found)
        run(found, guards, options.folder)
        facts = promise(guards[DEFAULT], name, options.rows)
        (options.folder / f"{name}.json").write_text(json.dumps(facts))
        print(f"{name}: {facts}", flush=True)


def table(options: argparse.Namespace) -> None:
    results = {
        name: assay.load(options.folder / f"{name}.safetensors")
        for name in options.names or SUBJECTS
        if (options.folder / f"{name}.json").exists()
    }
    if not results:
        raise SystemExit(f"expected results in {options.folder}, found none; run `measure` first")
    rows = [
        compared(name, result, json.loads((options.folder / f"{name}.json").read_text()))
        for name, result in results.items()
    ]
    print(markdown(pd.DataFrame(rows).set_index("network")))
    for title in GAINS:
        print(f"\n{title}: default / best single of the category")
        print(markdown(by_network_and_category(results, MEASURES[title])))
    for name, result in results.items():
        for title, measure_name in MEASURES.items():
            order = by_category(result, measure_name).sort_values("mean", ascending=False)
            print(f"\n{name}, {title}\n{order.round(2).to_string()}")
    drawn = options.figure or options.folder / "default-guard.svg"
    figure(results, drawn)
    print(f"\nThe figure: {drawn}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("choose", "measure", "table"))
    parser.add_argument("names", nargs="*", help="subjects (default: all there are)")
    parser.add_argument("--rows", type=int, default=600, help="reference rows, and as many operational ones")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for cells, results and the figure")
    parser.add_argument("--figure", type=Path, help="where the figure goes instead (svg or png)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(SUBJECTS):
        parser.error(f"expected some of {list(SUBJECTS)}, got {sorted(unknown)}")
    {"choose": choose, "measure": measure, "table": table}[options.command](options)


if __name__ == "__main__":
    main()
