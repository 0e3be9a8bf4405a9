"""Tables like those of the paper, from measured networks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mira_study import PARTS

from assay.statistics import rank_correlation

TRACKING = ("score", "within groups", "groups", "networks", "pooled", "lower", "upper", "p")

PLAIN = "rank squared mean"
"""The variant that is the MIRA score where training rows are many times the dimensions."""


def loaded(cache: Path) -> list[dict[str, Any]]:
    """The networks that were measured completely."""
    rows = []
    for folder in sorted((cache / "results").iterdir()) if (cache / "results").exists() else []:
        parts = [folder / f"{part}.json" for part in PARTS]
        if all(path.exists() for path in parts):
            rows.append({key: value for path in parts for key, value in json.loads(path.read_text()).items()})
    return rows


def family(row: dict[str, Any]) -> str:
    return row["group"].split()[0]


def networks_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A row per network: like the last column of Tables 1 to 3, with the interval of the score."""
    table = []
    for row in rows:
        first = next(iter(row["thresholds"].values()))
        low, high = first["interval"]
        table.append(
            {
                "group": row["group"],
                "network": row["name"],
                "accuracy": row["accuracy"],
                "MIRA": first["score"],
                "lower": low,
                "upper": high,
                "epsilon_min": first["epsilon_min"],
                "best_of_AUROC": 100 * row["best empirical"],
            }
        )
    return pd.DataFrame(table)


def detection_means(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """AUROC of every monitor on every unknown set, averaged over networks of a name without its seed."""
    parts = []
    for row in rows:
        part = pd.DataFrame(row["detections empirical"])[["monitor", "unknown", "auroc"]]
        name = row["name"].rsplit(" ", 1)[0] if family(row) == "tabular" else row["name"]
        parts.append(part.assign(network=name))
    table = pd.concat(parts)
    return 100 * table.pivot_table(
        index=["network", "monitor"], columns="unknown", values="auroc", sort=False
    )


def stability(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Table 8: within each group, the rank correlation between scores at the thresholds, pair by pair."""
    table = []
    for group, members in _groups(rows):
        thresholds = list(members[0]["thresholds"])
        scores = {t: [row["thresholds"][t]["score"] for row in members] for t in thresholds}
        for other in thresholds[1:]:
            pair = pd.DataFrame(scores)[[thresholds[0], other]]
            table.append(
                {
                    "group": group,
                    "thresholds": f"{thresholds[0]} and {other}",
                    "networks": len(members),
                    "spearman": pair.corr("spearman").iloc[0, 1],
                    "same order": bool((pair.rank().iloc[:, 0] == pair.rank().iloc[:, 1]).all()),
                }
            )
    return pd.DataFrame(table)


def tracking(rows: list[dict[str, Any]], truth: str = "best empirical") -> pd.DataFrame:
    """Every variant: Spearman's correlation with detection, within groups on average and over all networks.

    Over all, scores and detections are replaced by their ranks within the group, between 0 and 1: networks
    of different data are not comparable otherwise. Groups of fewer than three networks are left out.
    """
    names = {name for row in rows for name in row["variants"]}
    table = []
    for name in sorted(names):
        inside, shares = [], []
        for _, group in _groups(rows):
            members = [row for row in group if name in row["variants"]]
            scores = np.array([row["variants"][name] for row in members])
            detected = np.array([row[truth] for row in members])
            if len(members) > 2 and np.isfinite(scores).all():
                inside.append(float(pd.Series(scores).corr(pd.Series(detected), method="spearman")))
                shares += list(zip(_shares(scores), _shares(detected), strict=True))
        if not shares:
            continue
        pooled = rank_correlation(*np.array(shares).T)
        table.append(
            {
                "score": name,
                "within groups": float(np.nanmean(inside)),
                "groups": len(inside),
                "networks": len(shares),
                "pooled": pooled.value,
                "lower": pooled.lower,
                "upper": pooled.upper,
                "p": pooled.p_value,
            }
        )
    frame = pd.DataFrame(table, columns=TRACKING)
    return frame.sort_values("pooled", ascending=False, ignore_index=True)


def left_out(rows: list[dict[str, Any]], truth: str = "best empirical") -> pd.DataFrame:
    """For each modality, the variant that tracks best on the other modalities, and how it does on this one.

    The best of hundreds of variants tracks well by luck on the networks it was chosen on; on networks that
    had no part in the choice it cannot.
    """
    everywhere = set.intersection(*(set(row["variants"]) for row in rows))
    rows = [row | {"variants": {name: row["variants"][name] for name in everywhere}} for row in rows]
    table = []
    for name in dict.fromkeys(map(family, rows)):
        inside = [row for row in rows if family(row) == name]
        elsewhere = tracking([row for row in rows if family(row) != name], truth)["score"]
        here = tracking(inside, truth).set_index("score")["pooled"]
        if elsewhere.empty or here.empty:
            continue
        chosen = elsewhere.iloc[0]
        table.append(
            {"left out": name, "chosen elsewhere": chosen, "its rank correlation": here[chosen]}
            | {"MIRA": here[PLAIN], "best here": here.max(), "variants": len(here)}
        )
    return pd.DataFrame(table)


def _shares(values: Any) -> Any:
    return (pd.Series(values).rank() - 0.5) / len(values)


def _groups(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    names = dict.fromkeys(row["group"] for row in rows)
    return [(name, [row for row in rows if row["group"] == name]) for name in names]
