"""Are a monitor's alarms better than chance? A randomisation test of its mean MCC, and one for each scenario.

Every scenario was made by drawing at random which of its inputs a fault strikes (the same for both levels of
a fault). If a fault changed no alarm, the alarms would be those of another draw, too: so draw again, many
times, leave the alarms as they are, and see how often the mean MCC is as high as it was.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import hypergeom

DRAWS = 9_999
Counts = NDArray[np.float64]


def mcc_of(hits: Counts, alarms: Counts, faults: int, rows: int) -> Counts:
    """Of `alarms` alarms on `rows` inputs, `hits` on faults; 0 where it would divide by 0."""
    below = np.sqrt(alarms * (rows - alarms) * float(faults) * (rows - faults))
    return np.divide(hits * rows - alarms * faults, below, out=np.zeros_like(hits + below), where=below > 0)


def chances(folders: Iterable[Path], seed: int = 0, draws: int = DRAWS) -> pd.DataFrame:
    """A row per guard: mean MCC, its p-value, scenarios better and worse than chance (Holm over scenarios).

    A folder is that of one dataset's readouts, with a folder per scenario.
    """
    rng = np.random.default_rng(seed)
    sums: dict[str, Counts] = {}
    scenarios = []
    for folder in folders:
        names = dict.fromkeys(path.name.split(" (")[0] for path in sorted(folder.iterdir()))
        for name in names:
            levels = [path for path in sorted(folder.iterdir()) if path.name.split(" (")[0] == name]
            _add_fault([_readouts(path) for path in levels], sums, scenarios, rng, draws)
    count = len({scenario for _, scenario, *_ in scenarios})
    frame = pd.DataFrame(scenarios, columns=["guard", "scenario", "better", "worse", "mcc"])
    rows = []
    for guard, part in frame.groupby("guard", sort=False):
        null, observed = sums[guard] / count, part["mcc"].sum() / count
        p = (1 + (null >= observed - 1e-12).sum()) / (1 + draws)
        better, worse = (int((holm(part[side].to_numpy()) < 0.05).sum()) for side in ("better", "worse"))
        rows.append((guard, observed, null.std(), p, better, worse, count))
    return pd.DataFrame(rows, columns=["guard", "mcc", "error", "p", "better", "worse", "scenarios"])


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjusted for as many tests as there are (Holm 1979)."""
    order = np.argsort(p_values)
    steps = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


def _readouts(folder: Path) -> pd.DataFrame:
    columns = ["guard", "scenario", "is_fault", "alarm"]
    parts = [pd.read_parquet(path, columns=columns) for path in sorted(folder.glob("*.parquet"))]
    return pd.concat(parts).assign(scenario=f"{folder.parent.name} {folder.name}")


def _add_fault(
    levels: list[pd.DataFrame],
    sums: dict[str, Counts],
    scenarios: list[tuple[str, str, float, float, float]],
    rng: np.random.Generator,
    draws: int,
) -> None:
    """All levels of one fault, struck by the same draws."""
    cells = [
        (key, part) for level in levels for key, part in level.groupby(["guard", "scenario"], sort=False)
    ]
    truth = cells[0][1]["is_fault"].to_numpy()
    assert all((part["is_fault"].to_numpy() == truth).all() for _, part in cells)
    rows, faults = len(truth), int(truth.sum())
    alarms = np.stack([part["alarm"].to_numpy() for _, part in cells]).astype(np.float32)
    masks = rng.permuted(np.tile(truth, (draws, 1)), axis=1).astype(np.float32)
    drawn = (alarms @ masks.T).astype(float)
    totals, hits = alarms.sum(axis=1).astype(float), (alarms @ truth.astype(np.float32)).astype(float)
    null = mcc_of(drawn, totals[:, None], faults, rows)
    observed = mcc_of(hits, totals, faults, rows)
    exact = hypergeom(rows, faults, totals.astype(int))  # Fisher's exact test
    better, worse = exact.sf(hits - 1), exact.cdf(hits)
    for place, ((guard, scenario), _) in enumerate(cells):
        sums[guard] = sums.get(guard, 0.0) + null[place]
        scenarios.append((guard, scenario, better[place], worse[place], observed[place]))
