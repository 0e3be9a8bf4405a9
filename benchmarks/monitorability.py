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
from typing import Any

import numpy as np
import torch
from monitorability_subjects import CACHE, Group, Member, group, members

import assay
from assay.mira.detection import tuned_monitors
from assay.mira.settings import MiraSettings
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
    readings = {"text": {}, "code": {"reference": "label", "covariance": "per_class", "fit_on": "correct"}}
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


PARTS = {"truth": truth, "panel": panel, "mira": mira}


def measured(member: Member, part: str) -> dict[str, Any]:
    """One part of what is measured of a network, from the cache where it was measured before."""
    path = CACHE / "results" / f"{member.group}-{member.name}-{part}.json".replace(" ", "-")
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("measure", "tables", "cost"))
    parser.add_argument("--only", nargs="*", help="groups, such as mnist or sensorless")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    {"measure": measure}[options.command](options)


if __name__ == "__main__":
    main()
