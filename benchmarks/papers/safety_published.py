"""What the safety-monitor paper's own 79 results say, monitor by monitor; nothing is run.

python benchmarks/papers/safety_published.py --tables FOLDER
"""

import argparse
from pathlib import Path

import pandas as pd
from pages import markdown
from safety_chance import holm
from safety_paper import published
from scipy import stats
from table_files import write_table

from assay.benchmark.ranking import ranking


def summary(frame: pd.DataFrame) -> str:
    """Means over the 79, ranks, and whether MCCs lie around 0 (Wilcoxon's signed ranks, adjusted by Holm)."""
    ranked = ranking(frame.assign(scenario=frame["dataset"] + frame["scenario"]), "mcc", 0.95)
    parts = dict(iter(frame.groupby("guard")))
    p_values = holm(
        pd.Series({name: stats.wilcoxon(part["mcc"]).pvalue for name, part in parts.items()}).to_numpy()
    )
    rows = [
        {
            "monitor": name,
            "mean MCC": f"{part['mcc'].mean():.3f}",
            "median": f"{part['mcc'].median():.2f}",
            "above 0, below 0": f"{(part['mcc'] > 0).sum()}, {(part['mcc'] < 0).sum()}",
            "p, around 0": f"{p_value:.2g}",
            "false alarms": f"{part['fpr'].mean():.0%}",
            "faults that pass": f"{part['fnr'].mean():.0%}",
            "average rank": f"{ranked.ranks[name]:.2f}",
        }
        for (name, part), p_value in zip(parts.items(), p_values, strict=True)
    ]
    said = f"Friedman p = {ranked.p_value:.2g}, critical difference {ranked.critical_difference:.2f}."
    return f"{said}\n\n{markdown(pd.DataFrame(rows))}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=Path, default=Path("safety-monitors"), help="where the table goes")
    options = parser.parse_args()
    options.tables.mkdir(parents=True, exist_ok=True)
    write_table(options.tables, "summary", summary(published()))


if __name__ == "__main__":
    main()
