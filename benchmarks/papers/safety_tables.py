"""The safety-monitor paper's tables from what safety_monitors.py measured, beside the authors' results.

    python benchmarks/papers/safety_tables.py --work FOLDER --tables FOLDER

Rates are those of faults: FPR is the share of good inputs under alarm, FNR that of faults without. The
authors' are turned round (safety_paper.py).
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from lenets import DATASETS, network_of
from pages import markdown
from safety_chance import chances, holm
from safety_findings import findings
from safety_guards import AT_PRINTED, CALIBRATED, PAPER_GUARDS
from safety_paper import MEGABYTES, SECONDS, SYSTEM, published, their_name
from scipy import stats
from table_files import save_figure, write_table

import assay
from assay.benchmark.ranking import ranking

MEASURES = {
    "mcc": "MCC",
    "fpr": "FPR",
    "fnr": "FNR",
    "good_precision": "precision",
    "weighted_f1": "weighted F1",
}
PRINTED = {
    "novelty": ("GTSRB-CIFAR10", "CIFAR10-GTSRB"),
    "adversarial": ("FGSM",),
    "shift": ("rotated", "snow (5)", "fog (5)"),
}
COLOURS = {"ALOOC": "#0072b2", "OOB": "#d55e00", "ODIN": "#009e73"}


def measured(work: Path) -> pd.DataFrame:
    """Every scenario and guard of both datasets."""
    parts = []
    for name in DATASETS:
        files = sorted((work / f"{name}-tables").glob("*.csv"))
        parts += [pd.read_csv(path).assign(dataset=name) for path in files]
    table = pd.concat(parts, ignore_index=True)
    right, missed = table["specific_true_negatives"], table["specific_false_negatives"]
    table["specific_good_precision"] = (right / (right + missed)).fillna(0)
    table["place"] = table["dataset"] + " " + table["scenario"]
    return table


def beside(table: pd.DataFrame) -> pd.DataFrame:
    """Ours and the authors' on the scenarios that both have, for the paper's three monitors."""
    names = {f"specific_{name}": name for name in [*MEASURES, "auroc"]}
    ours = table[table["guard"].isin(PAPER_GUARDS)][["dataset", "scenario", "guard", *names]].rename(
        columns=names
    )
    ours["scenario"] = ours["scenario"].map(their_name)
    both = ours.merge(published(), on=["dataset", "scenario", "guard"], suffixes=("", "_theirs"))
    assert len(both) == len(ours)
    return both


def printed_rows(both: pd.DataFrame, category: str) -> str:
    """Tables II to IV: ours, and the authors' in brackets."""
    part = both[both["scenario"].isin(PRINTED[category])].sort_values(["dataset", "scenario", "guard"])
    rows = part[["dataset", "scenario"]].assign(monitor=part["guard"])
    for name, title in MEASURES.items():
        rows[title] = [f"{a:.2f} ({b:.2f})" for a, b in zip(part[name], part[f"{name}_theirs"], strict=True)]
    return markdown(rows.assign(AUROC=part["auroc"].map("{:.2f}".format)))


def every_mcc(both: pd.DataFrame) -> str:
    """All scenarios: MCC of ours, and the authors' in brackets; those they have alone, too."""
    keys = ["dataset", "scenario", "guard"]
    cells = published().rename(columns={"mcc": "mcc_theirs"}).merge(both[[*keys, "mcc"]], on=keys, how="left")
    cells["cell"] = [
        f"{'-' if pd.isna(row.mcc) else f'{row.mcc:.2f}'} ({row.mcc_theirs:.2f})"
        for row in cells.itertuples()
    ]
    wide = cells.pivot_table(index=["dataset", "scenario"], columns="guard", values="cell", aggfunc="first")
    return markdown(wide[list(PAPER_GUARDS)].reset_index())


def means(both: pd.DataFrame) -> str:
    """Mean MCC, average ranks and Friedman's p: ours, theirs on the same scenarios, theirs on all 79."""
    theirs = published()
    rows = []
    for title, frame, name in (
        (f"ours, {len(both) // 3}", both, "mcc"),
        (f"the authors', the same {len(both) // 3}", both, "mcc_theirs"),
        (f"the authors', all {len(theirs) // 3}", theirs, "mcc"),
    ):
        found = frame.assign(scenario=frame["dataset"] + frame["scenario"])
        ranked = ranking(found, name, 0.95)
        average = found.groupby("guard")[name].mean()
        rows.append(
            {"results": title}
            | {
                f"{guard}: mean MCC, rank": f"{average[guard]:.2f}, {ranked.ranks[guard]:.2f}"
                for guard in PAPER_GUARDS
            }
            | {"Friedman p": f"{ranked.p_value:.2g}"}
        )
    return markdown(pd.DataFrame(rows))


def agreement(both: pd.DataFrame) -> str:
    """Row by row: rank correlation, sign, and mean absolute differences."""
    rows = []
    for title, part in [*both.groupby("guard"), ("all three", both)]:
        kendall = stats.spearmanr(part["mcc"], part["mcc_theirs"])
        same = ((part["mcc"] > 0) == (part["mcc_theirs"] > 0)).mean()
        gaps = {
            f"difference of {MEASURES[name]}": f"{(part[name] - part[f'{name}_theirs']).abs().mean():.2f}"
            for name in ("mcc", "fpr", "fnr", "good_precision")
        }
        found = {"monitor": title, "rows": len(part), "rank correlation of MCC": f"{kendall.statistic:.2f}"}
        rows.append(found | {"p": f"{kendall.pvalue:.1g}", "same sign": f"{same:.0%}"} | gaps)
    image = "![MCC of the authors and ours, scenario by scenario](../images/monitor-agreement.svg)"
    return f"{markdown(pd.DataFrame(rows))}\n{image}\n"


def scatter(both: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axes = figure.subplots()
    for guard, colour in COLOURS.items():
        part = both[both["guard"] == guard]
        axes.scatter(part["mcc_theirs"], part["mcc"], s=16, alpha=0.7, color=colour, label=guard)
    axes.plot([-1, 1], [-1, 1], color="grey", linewidth=0.8)
    axes.set(xlim=(-0.7, 1), ylim=(-0.7, 1), xlabel="MCC of the authors", ylabel="MCC here")
    axes.set_title(f"{len(both)} results, scenario by scenario; equal on the line", fontsize=10)
    axes.legend()
    save_figure(figure, path)


def chance_table(table: pd.DataFrame) -> str:
    """At the paper's thresholds, and at 5 %: each family is adjusted for its own number (Holm)."""
    kinds = {"the paper's": table["guard"].isin([*PAPER_GUARDS, AT_PRINTED])}
    kinds["5 %"] = table["guard"].str.endswith(CALIBRATED)
    rows = []
    for kind, chosen in kinds.items():
        part = table[chosen].assign(adjusted=lambda part: holm(part["p"].to_numpy()))
        for row in part.sort_values("mcc", ascending=False).itertuples():
            rows.append(
                {
                    "monitor": row.guard.removesuffix(CALIBRATED),
                    "threshold": kind,
                    "mean MCC": f"{row.mcc:.3f}",
                    "spread by chance": f"{row.error:.3f}",
                    "p, adjusted": f"{row.adjusted:.1g}",
                    "better than chance in": f"{row.better} of {row.scenarios}",
                    "worse in": f"{row.worse}",
                }
            )
    return markdown(pd.DataFrame(rows))


def odin(table: pd.DataFrame, networks: Path, guards: Path) -> str:
    """At the lowest confidence seen in training, as the paper says, and at the one it prints."""
    rows = []
    for name in DATASETS:
        network = network_of(name, networks)
        for title in ("ODIN", AT_PRINTED):
            part = table[(table["dataset"] == name) & (table["guard"] == title)]
            kept = assay.load(guards / f"{name} {title}", network=network).threshold
            rows.append(
                {
                    "data": name,
                    "threshold": "lowest in training" if title == "ODIN" else "printed",
                    "confidence": f"{1 - float(kept):.4f}",
                    "false alarms": f"{part['specific_fpr'].mean():.0%}",
                    "faults caught": f"{1 - part['specific_fnr'].mean():.0%}",
                    "mean MCC": f"{part['specific_mcc'].mean():.3f}",
                }
            )
    return markdown(pd.DataFrame(rows))


def boxes(work: Path) -> str:
    """Table I's grid: mean MCC over all scenarios of both datasets, false alarms in brackets."""
    files = [path for name in DATASETS for path in sorted((work / f"{name}-tables").glob("*.boxes"))]
    found = pd.concat([pd.read_csv(path) for path in files]).groupby("box").mean()
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for box, row in found.iterrows():
        projection, clusters, gamma = str(box).split()
        cell = f"{row['mcc']:.3f} ({row['false_alarms']:.0%})"
        rows.setdefault((projection, clusters), {})[f"gamma {gamma}"] = cell
    order = {"1": 0, "3": 1, "5": 2, "17": 3, "elbow": 4}
    table = [
        {"projection": projection, "clusters": _clusters(clusters, projection, work)}
        | dict(sorted(cells.items()))
        for (projection, clusters), cells in sorted(
            rows.items(), key=lambda item: (item[0][0], order[item[0][1]])
        )
    ]
    return markdown(pd.DataFrame(table))


def _clusters(clusters: str, projection: str, work: Path) -> str:
    if clusters != "elbow":
        return clusters
    counts = []
    for name in DATASETS:
        centres = assay.load(work / f"box {name} {projection} elbow 0.0").centres_
        counts += [len(torch.unique(of_class, dim=0)) for of_class in centres]
    return f"elbow: {min(counts)} to {max(counts)} a class"


def system(table: pd.DataFrame) -> str:
    """Table V: MCC on untouched inputs, mean over scenarios."""
    rows = []
    for name, printed in SYSTEM.items():
        part = (
            table[(table["dataset"] == name)].groupby("guard")[["clean_model_mcc", "clean_system_mcc"]].mean()
        )
        alone = part["clean_model_mcc"].iloc[0]
        rows.append((name, "ML alone", f"{alone:.2f} ({printed[0]:.2f})", ""))
        for guard, before in zip(PAPER_GUARDS, printed[1:], strict=True):
            value = part.loc[guard, "clean_system_mcc"]
            rows.append((name, f"ML + {guard}", f"{value:.2f} ({before:.2f})", f"{value / alone - 1:+.0%}"))
    return markdown(pd.DataFrame(rows, columns=["data", "system", "MCC (paper)", "change"]))


def cost(work: Path) -> str:
    """Tables VI and VII, one image at a time."""
    streams = pd.concat([pd.read_csv(work / f"stream-{name}.csv").assign(data=name) for name in DATASETS])
    rows = []
    for row in streams.itertuples():
        model, monitor = SECONDS[row.guard]
        weights, state = MEGABYTES[row.guard]
        rows.append(
            {
                "data": row.data,
                "monitor": row.guard,
                "ML, ms": f"{1e3 * row.model_seconds:.2f} ({1e3 * model:g})",
                "monitor, ms": f"{1e3 * row.monitor_seconds:.2f} ({1e3 * monitor:g})",
                "share": f"{row.monitor_seconds / (row.monitor_seconds + row.model_seconds):.0%}",
                "ML, MB": f"{row.model_bytes / 1e6:.2f} ({weights:g})",
                "monitor, MB": f"{row.monitor_bytes / 1e6:.2f} ({state:g})",
            }
        )
    return markdown(pd.DataFrame(rows))


def ranks(table: pd.DataFrame, tables: Path) -> str:
    """Eleven monitors at 5 %: average rank and mean MCC by category; both rank diagrams."""
    chosen = table.assign(scenario=table["place"])
    paper = ranking(chosen[chosen["guard"].isin(PAPER_GUARDS)], "specific_mcc", 0.95)
    part = chosen[chosen["guard"].str.endswith(CALIBRATED)]
    ranked = ranking(part.assign(guard=part["guard"].str.removesuffix(CALIBRATED)), "specific_mcc", 0.95)
    for name, found in (("monitor-ranks-paper", paper), ("monitor-ranks", ranked)):
        save_figure(found.plot(), tables / f"{name}.svg")
    wide = part.pivot_table(index="guard", columns="category", values="specific_mcc")
    wide["all"] = part.groupby("guard")["specific_mcc"].mean()
    wide.index = wide.index.str.removesuffix(CALIBRATED)
    wide = wide.map("{:.2f}".format)
    wide.insert(0, "average rank", [f"{ranked.ranks[guard]:.2f}" for guard in wide.index])
    wide = wide.loc[sorted(wide.index, key=lambda guard: ranked.ranks[guard])]
    said = f"Friedman p = {ranked.p_value:.1g}, critical difference {ranked.critical_difference:.2f}."
    return said + "\n\n" + markdown(wide.rename_axis("monitor").reset_index())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, default=Path("safety-monitors"), help="of safety_monitors.py")
    parser.add_argument("--networks", type=Path, default=Path("safety-monitors"), help="of lenets.py")
    parser.add_argument("--guards", type=Path, default=Path("safety-monitors"), help="of safety_guards.py")
    parser.add_argument("--tables", type=Path, default=Path("safety-monitors"), help="where the tables go")
    options = parser.parse_args()
    table = measured(options.work)
    both = beside(table)
    chance = chances([options.work / f"{name}-readouts" for name in DATASETS])
    texts = {
        "found": findings(both, table, chance),
        "means": means(both),
        "agreement": agreement(both),
        "all": every_mcc(both),
        **{category: printed_rows(both, category) for category in PRINTED},
        "chance": chance_table(chance),
        "odin": odin(table, options.networks, options.guards),
        "boxes": boxes(options.work),
        "system": system(table),
        "cost": cost(options.work),
        "ranks": ranks(table, options.tables),
    }
    scatter(both, options.tables / "monitor-agreement.svg")
    for name, text in texts.items():
        write_table(options.tables, name, text)


if __name__ == "__main__":
    main()
