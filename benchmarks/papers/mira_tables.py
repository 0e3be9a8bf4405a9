"""Tables like those of the paper, from measured networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mira_study import PARTS
from pages import markdown

from assay.statistics import rank_correlation

Rows = list[dict[str, Any]]
# The paper's Table 2: MIRA and best-of AUROC; its Table 8: epsilon_min and score by accuracy threshold.
PAPER_TABULAR = {
    "MLP": (30.2, 90.8),
    "WideMLP": (63.5, 92.9),
    "DeepMLP": (12.7, 86.2),
    "DeepTransformer": (4.4, 77.9),
    "Transformer": (7.9, 85.4),
}
MODALITIES = ("tabular", "vision", "text")


def loaded(cache: Path) -> Rows:
    """The networks that were measured completely."""
    rows = []
    for folder in sorted((cache / "results").iterdir()) if (cache / "results").exists() else []:
        parts = [folder / f"{part}.json" for part in PARTS]
        if all(path.exists() for path in parts):
            rows.append({key: value for path in parts for key, value in json.loads(path.read_text()).items()})
    return rows


def family(row: dict[str, Any]) -> str:
    return row["group"].split()[0]


def architecture(row: dict[str, Any]) -> str:
    """The name without its seed."""
    return row["name"].rsplit(" ", 1)[0] if family(row) == "tabular" else row["name"]


def tabular(rows: Rows) -> str:
    """Table 2: medians over seeds with their range, beside the paper's."""
    table = []
    for name, (score, auroc) in PAPER_TABULAR.items():
        own = [row for row in rows if architecture(row) == name]
        scores = np.array([_first(row)["score"] for row in own])
        table.append(
            {
                "network": name,
                "accuracy": f"{np.mean([row['accuracy'] for row in own]):.1%}",
                "MIRA": f"{np.median(scores):.2f} ({scores.min():.2f} to {scores.max():.2f})",
                "best-of AUROC": f"{100 * np.mean([row['best'] for row in own]):.1f}",
                "paper: MIRA": score,
                "paper: AUROC": auroc,
            }
        )
    found = _ranked(rows)
    frame = pd.DataFrame(table).sort_values("best-of AUROC", ascending=False)
    return (
        f"{markdown(frame)}\nSpearman's correlation of score and detection, ranked within seeds: {found}.\n"
    )


def one_split(rows: Rows) -> str:
    """Tables 1 and 3: a network a row, with the best monitor's AUROC on every unknown set."""
    table = []
    for row in sorted(rows, key=lambda row: -row["best"]):
        low, high = _first(row)["interval"]
        best = pd.DataFrame(row["detections"]).groupby("unknown", sort=False)["auroc"].max()
        table.append(
            {
                "network": row["name"],
                "accuracy": f"{row['accuracy']:.1%}",
                "MIRA (95 % interval)": f"{_first(row)['score']:.3g} ({low:.3g} to {high:.3g})",
                "best-of AUROC": f"{100 * row['best']:.1f}",
            }
            | {name: f"{100 * auroc:.1f}" for name, auroc in best.items()}
        )
    scores, accuracies, truth = (
        np.array([value(row) for row in rows])
        for value in (lambda row: _first(row)["score"], lambda row: row["accuracy"], lambda row: row["best"])
    )
    return (
        f"{markdown(pd.DataFrame(table))}\nSpearman's correlation with the best-of AUROC: MIRA "
        f"{_said(scores, truth)}; accuracy {_said(accuracies, truth)}.\n"
    )


def monitors(rows: Rows) -> str:
    """AUROC (%) of every monitor on every unknown set, averaged over the seeds of an architecture."""
    parts = [
        pd.DataFrame(row["detections"])[["monitor", "unknown", "auroc"]].assign(network=architecture(row))
        for row in rows
    ]
    wide = 100 * pd.concat(parts).pivot_table(
        index=["network", "monitor"], columns="unknown", values="auroc", sort=False
    )
    return markdown(wide.map("{:.1f}".format).reset_index())


def stability(rows: Rows) -> str:
    """Table 8: scores and epsilon_min at every accuracy threshold; medians over seeds."""
    table = []
    for name in dict.fromkeys(map(architecture, rows)):
        own = [row["thresholds"] for row in rows if architecture(row) == name]
        cells = {}
        for threshold in sorted(own[0], key=float, reverse=True):
            score, least = (
                np.median([found[threshold][key] for found in own]) for key in ("score", "epsilon_min")
            )
            cells[f"{float(threshold):.0%}"] = f"{score:.3g} ({least:.3g})"
        table.append({"network": name} | cells)
    return f"{markdown(pd.DataFrame(table))}\n{_orders(rows)}\n"


def _orders(rows: Rows) -> str:
    """How far the order of networks is the same at every threshold, group by group."""
    groups = dict.fromkeys(row["group"] for row in rows)
    said = []
    first, *others = rows[0]["thresholds"]
    for other in others:
        found = []
        for group in groups:
            own = [row["thresholds"] for row in rows if row["group"] == group]
            pair = pd.DataFrame({t: [one[t]["score"] for one in own] for t in (first, other)})
            found.append(pair.corr("spearman").iloc[0, 1])
        same = sum(value > 1 - 1e-9 for value in found)
        spread = f"{min(found):.1f} to {max(found):.1f}" if len(found) > 1 else f"{found[0]:.2f}"
        said.append(
            f"between {float(first):.0%} and {float(other):.0%} it is {spread}, the same order in {same} of "
            f"{len(found)}"
        )
    return f"Rank correlation of the networks of a group: {'; '.join(said)}."


def _first(row: dict[str, Any]) -> dict[str, Any]:
    return next(iter(row["thresholds"].values()))


def _ranked(rows: Rows) -> str:
    """Over ranks within groups: networks of different data cannot be compared."""
    frame = pd.DataFrame(
        [{"group": row["group"], "score": _first(row)["score"], "best": row["best"]} for row in rows]
    )
    ranks = frame.groupby("group")[["score", "best"]].rank()
    return _said(ranks["score"].to_numpy(), ranks["best"].to_numpy())


def _said(one: Any, other: Any) -> str:
    found = rank_correlation(one, other)
    return f"{found.value:.2f} ({found.lower:.2f} to {found.upper:.2f})"
