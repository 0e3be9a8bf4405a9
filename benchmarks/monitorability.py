"""Does the monitorability score predict how well failures are detected, on networks it was not chosen on?

    python benchmarks/monitorability.py measure                 # all networks, kept in the cache; resumes
    python benchmarks/monitorability.py measure --only mnist    # one group
    python benchmarks/monitorability.py tables                  # correlations, from the cache
    python benchmarks/monitorability.py cost                    # against the forward passes of ResNet-20

The truth follows MIRA's Section 4.1: ODIN, Mahalanobis and Energy, tuned on noise, separate test rows from
unknown sets; the best AUROC of each set, averaged over sets. Noise and blur are in the panel, so no unknown
set is made of them. Networks are ranked within their group and pooled; intervals resample architectures, so
that seeds of one architecture count once.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from monitorability_subjects import DEVELOPMENT, group, members
from monitorability_training import CACHE, Group, Member
from scipy.stats import spearmanr

import assay
from assay.faults.pseudo_unknown import FAULTS, pseudo_unknowns_for
from assay.mira.detection import tuned_monitors
from assay.mira.panel import LEFT_OUT
from assay.mira.settings import AUTHORS_CODE, MiraSettings
from assay.statistics import auroc

MIRA_OPTIONS = {"steps": 8, "tolerance": 0.01}


def truth(network: assay.Network, shared: Group) -> dict[str, Any]:
    """Best-of AUROC on the unknown sets; also on two halves of all rows, for the noise ceiling."""
    settings = MiraSettings()
    fitted = network.observe(shared.train)
    chosen = tuned_monitors(network, shared.train, fitted, "penultimate", settings, shared.tuning)
    sets = {"": shared.test[0], **shared.unknown}
    scores = {name: _scores(network, inputs, chosen) for name, inputs in sets.items()}
    known = scores.pop("")

    def table(half: slice) -> dict[str, dict[str, float]]:
        return {
            name: {kind: _area(known[kind][half], theirs[kind][half]) for kind in chosen}
            for name, theirs in scores.items()
        }

    whole = table(slice(None))
    halves = [_best(table(slice(start, None, 2))) for start in (0, 1)]
    accuracy = float(network.observe(shared.test).correct.double().mean())
    return {"best": _best(whole), "halves": halves, "table": whole, "accuracy": accuracy}


def _best(table: dict[str, dict[str, float]]) -> float:
    return float(np.mean([max(row.values()) for row in table.values()]))


def _scores(network: assay.Network, data: Any, monitors: dict[str, Any]) -> dict[str, Any]:
    trace = network.observe(data, keep_inputs=True)
    return {name: monitor.score(trace).nan_to_num(torch.inf).numpy() for name, monitor in monitors.items()}


def _area(known: Any, unknown: Any) -> float:
    return auroc(known, unknown).value


def mira(network: assay.Network, shared: Group) -> dict[str, Any]:
    """MIRA as the paper reads and as its authors' code reads; no score where accuracy does not fall."""
    found: dict[str, Any] = {}
    images = {"low": 0.0, "high": 1.0} if shared.modality == "image" else {}
    readings = {"text": {}, "code": AUTHORS_CODE}
    for name, options in readings.items():
        try:
            made = assay.mira_score(
                network,
                shared.train,
                shared.test,
                estimator="oas",
                **MIRA_OPTIONS,
                **options,
                **(images if name == "code" else {}),
            )
            found[name] = made.score
        except assay.AssayError as error:
            found[name], found[f"{name} error"] = None, str(error)
    return found


def panel(network: assay.Network, shared: Group) -> dict[str, Any]:
    result = assay.monitorability(network, shared.train, shared.test)
    return {
        "score": result.score,
        "lower": result.lower,
        "upper": result.upper,
        "table": result.to_frame().to_dict("list"),
    }


def learned(network: assay.Network, shared: Group) -> dict[str, Any]:
    """Accuracy on the training rows that monitors are fitted on."""
    return {"accuracy": float(network.observe(shared.train).correct.double().mean())}


PARTS = {"truth": truth, "panel": panel, "learned": learned, "mira": mira}


def _place(member: Member, part: str) -> Path:
    return CACHE / "results" / f"{member.group}-{member.name}-{part}.json".replace(" ", "-")


def measured(member: Member, part: str) -> dict[str, Any]:
    """One part of what is measured of a network, from the cache where it was measured before."""
    path = _place(member, part)
    if not path.exists():
        start = time.process_time()
        found = PARTS[part](member.network(), group(member.group))
        found["seconds"] = time.process_time() - start
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
        print(f"{member.group}, {member.name}: {part} {found['seconds']:.1f} s", flush=True)
    return dict(json.loads(path.read_text()))


def measure(options: argparse.Namespace) -> None:
    for member in members():
        if not options.only or any(member.group.startswith(name) for name in options.only):
            for part in options.parts:
                measured(member, part)


# Tables


def study() -> pd.DataFrame:
    """A row per network that is measured: truth, its two halves, accuracy, and every score there is."""
    rows = []
    for member in members():
        found = {part: _kept(member, part) for part in PARTS}
        if not found["truth"] or not found["panel"]:
            continue
        table = pd.DataFrame(found["panel"]["table"])
        row = {
            "group": member.group,
            "network": member.name,
            "architecture": member.architecture,
            "modality": group_modality(member.group),
            "development": member.group in DEVELOPMENT,
            "truth": found["truth"]["best"],
            "half": found["truth"]["halves"][0],
            "other half": found["truth"]["halves"][1],
            "accuracy": found["truth"]["accuracy"],
            "training accuracy": found["learned"].get("accuracy", np.nan),
            "monitorability": found["panel"]["score"],
            "lower": found["panel"]["lower"],
            "upper": found["panel"]["upper"],
        }
        row |= {f"MIRA ({name})": (found["mira"] or {}).get(name) for name in ("text", "code")}
        rows.append(row | _parts_of_the_score(table))
    return pd.DataFrame(rows)


def _kept(member: Member, part: str) -> dict[str, Any]:
    path = _place(member, part)
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _parts_of_the_score(table: pd.DataFrame) -> dict[str, float]:
    """What parts of the panel, or single monitors, would have said."""
    best = table.groupby("pseudo_unknown", sort=False)["auroc"].max()
    out = best.index.str.startswith(LEFT_OUT)
    faults = best.index.isin([name for kind in FAULTS.values() for name in kind])
    found = {
        "mixtures alone": best[~out & ~faults].mean(),
        "faults alone": best[faults].mean(),
        "class left out alone": best[out].mean() if out.any() else np.nan,
        "jigsaw alone": best.get("jigsaw", np.nan),
    }
    made = table[~table["pseudo_unknown"].str.startswith(LEFT_OUT)]
    for monitor, part in made.groupby("monitor"):
        found[f"{monitor} alone"] = part["auroc"].mean()
    shuffled = made[(made["monitor"] == "Energy") & (made["pseudo_unknown"] == "shuffled_values")]["auroc"]
    return found | {"shuffle score": shuffled.iloc[0] if len(shuffled) else np.nan}


def group_modality(name: str) -> str:
    return {"sensorl": "tabular", "digits": "tabular", "text": "text", "tf-idf": "text"}.get(
        name[:7], "image"
    )


def ranks(frame: pd.DataFrame, column: str) -> pd.Series:
    """Ranks within groups, from 0 to 1, so that groups of different size count alike."""
    by_group = frame.groupby("group")[column]
    return (by_group.rank() - 0.5) / by_group.transform("count")


def correlation(frame: pd.DataFrame, column: str, other: str = "truth") -> float:
    """Spearman's, of ranks within groups; NaN with fewer than four networks."""
    known = frame.dropna(subset=[column])
    if len(known) < 4 or known[column].nunique() < 2:
        return float("nan")
    return float(spearmanr(ranks(known, column), ranks(known, other)).statistic)


def interval(frame: pd.DataFrame, column: str, draws: int = 2000) -> tuple[float, float]:
    """95 %, over architectures drawn with replacement: seeds of one architecture come and go together."""
    known = frame.dropna(subset=[column])
    if known.empty:
        return float("nan"), float("nan")
    both = np.stack([ranks(known, column), ranks(known, "truth")], axis=1)
    parts = [both[places] for places in known.groupby("architecture").indices.values()]
    generator = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        drawn = np.concatenate([parts[place] for place in generator.integers(0, len(parts), len(parts))])
        found.append(spearmanr(drawn[:, 0], drawn[:, 1]).statistic)
    low, high = np.nanquantile(found, [0.025, 0.975])
    return float(low), float(high)


SCORES = ("monitorability", "accuracy", "MIRA (text)", "MIRA (code)", "shuffle score", "jigsaw alone")
PARTS_OF_IT = ("mixtures alone", "faults alone", "class left out alone")


def tables(options: argparse.Namespace) -> None:
    frame = study()
    fresh = frame[~frame["development"]]
    print(f"{len(frame)} networks, {len(fresh)} of them measured after the score was frozen\n")
    print(_pooled(frame, fresh).to_string(), "\n")
    print(_by_group(frame).to_string(), "\n")
    print(_left_out_modalities(fresh).to_string(index=False), "\n")
    parts = frame.groupby("group", sort=False)
    worst = [name for name, part in parts if correlation(part, "monitorability") <= 0]
    print(f"groups in which the score is not positive: {worst or 'none'}")


def _pooled(frame: pd.DataFrame, fresh: pd.DataFrame) -> pd.DataFrame:
    rows = {}
    for score in (*SCORES, *PARTS_OF_IT, "Energy alone", "ODIN alone", "Mahalanobis alone", "KNN alone"):
        low, high = interval(fresh, score)
        rows[score] = {
            "unseen networks": f"{correlation(fresh, score):.2f} ({low:.2f} to {high:.2f})",
            "all": f"{correlation(frame, score):.2f}",
            **{name: f"{correlation(part, score):.2f}" for name, part in fresh.groupby("modality")},
        }
    return pd.DataFrame(rows).T


def _by_group(frame: pd.DataFrame) -> pd.DataFrame:
    """Groups of one data set together; ceiling: how well one half of the truth's rows predicts the other."""
    rows = {}
    names = frame["group"].str.replace(r" \d+$", "", regex=True) + np.where(
        frame["development"], " (development)", ""
    )
    for name, part in frame.groupby(names, sort=False):
        halves = correlation(part, "half", "other half")
        rows[name] = {
            "networks": len(part),
            "training accuracy": _range(part["training accuracy"]),
            "test accuracy": _range(part["accuracy"]),
            "truth": _range(part["truth"]),
            "score": _range(part["monitorability"]),
            **{score: f"{correlation(part, score):.2f}" for score in SCORES},
            # Spearman and Brown: the reliability of all rows, from that of their halves.
            "ceiling": f"{np.sqrt(2 * halves / (1 + halves)):.2f}" if halves > 0 else "-",
        }
    return pd.DataFrame(rows).T


def _range(values: pd.Series) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


def _left_out_modalities(frame: pd.DataFrame) -> pd.DataFrame:
    """Had the score been chosen on the other modalities: which, and how it does on this one."""
    rows = []
    for modality, part in frame.groupby("modality"):
        rest = frame[frame["modality"] != modality]
        chosen = max((*SCORES, *PARTS_OF_IT[:2]), key=lambda score: correlation(rest, score))
        rows.append(
            {
                "left out": modality,
                "chosen on the others": chosen,
                "its correlation there": f"{correlation(part, chosen):.2f}",
                "monitorability": f"{correlation(part, 'monitorability'):.2f}",
                "accuracy": f"{correlation(part, 'accuracy'):.2f}",
            }
        )
    return pd.DataFrame(rows)


def cost(options: argparse.Namespace) -> None:
    """The whole on ResNet-20 with 1,000 inputs, against its plain forward passes, in one run."""
    member = next(one for one in members() if one.name == "ResNet-20")
    network, shared = member.network(), group(member.group)
    inputs = shared.test[0]
    panel = len(pseudo_unknowns_for(inputs, network)) + 1
    ratios = []
    for _ in range(options.repeats):
        start = time.process_time()
        for _ in range(panel):
            network.observe(inputs)
        network.observe(shared.train)
        plain = time.process_time() - start
        start = time.process_time()
        assay.monitorability(network, shared.train, shared.test)
        ratios.append((time.process_time() - start) / plain)
        passes = f"{panel} passes over {len(inputs)} inputs and one over {len(shared.train[1])}"
        print(f"{passes}: {plain:.1f} s; the whole takes {ratios[-1]:.2f} of it", flush=True)
    print(f"median {np.median(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "tables", "cost"))
    parser.add_argument("--only", nargs="*", help="groups, such as mnist or sensorless")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    {"measure": measure, "tables": tables, "cost": cost}[options.command](options)


if __name__ == "__main__":
    main()
