"""Chapter: which network shows its failures."""

import pandas as pd

from assay.demo.setting import Setting
from assay.mira import compare_monitorability
from assay.mira import monitorability as panel_score
from assay.report import Section


def monitorability(setting: Setting) -> Section:
    """Monitorability of the three networks, from known digits alone, and the paper's MIRA score beside it."""
    found = {
        name: panel_score(network, setting.train, setting.test, seed=setting.seed)
        for name, network in setting.networks.items()
    }
    mira = compare_monitorability(
        setting.networks, setting.train, setting.test, low=0.0, high=1.0, seed=setting.seed
    ).to_frame()
    rows = [
        {
            "network": name,
            "score": result.score,
            "lower": result.lower,
            "upper": result.upper,
            "best_monitor": result.best_monitor,
            "best_layer": result.best_layer,
            "mira": float(mira.set_index("network")["score"][name]),
        }
        for name, result in found.items()
    ]
    table = pd.DataFrame(rows).sort_values("score", ascending=False, ignore_index=True)
    best = found[str(table["network"].iloc[0])]
    clear = list(table["network"][table["upper"] >= table["lower"].max()])
    words = (
        "Known digits were mixed, cut up, turned and replaced by noise that looks like them. The score says "
        "how well the best monitor tells the results from real digits (AUROC: 0.5 is guessing). "
        f"For {table['network'].iloc[0]}: {best.summary()}\n\n"
        "The column mira has the paper's own score, which pushes digits across a decision boundary and asks "
        "how strange they then look from inside. On networks that it was not chosen on it did not predict "
        "how well failures are detected (docs/monitorability.md)."
    )
    advice = (
        f"{_alike(clear)} Among networks of similar accuracy prefer a high score; ship the monitor and the "
        "layer that the table names, or the default guard. The next sections measure detection itself."
    )
    return Section(
        "Which network shows its failures",
        words,
        "Will this network's failures be visible, before it ships?",
        [best.plot()],
        table,
        advice=advice,
    )


def _alike(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is clearly the best."
    return f"{', '.join(names[:-1])} and {names[-1]} cannot be told apart by these inputs."
