"""What the safety-monitor tables say, in sentences made from the figures, so that the two cannot part."""

from textwrap import fill

import pandas as pd
from safety_chance import holm
from safety_guards import AT_PRINTED, CALIBRATED, PAPER_GUARDS
from safety_paper import published
from scipy import stats

from assay.benchmark.ranking import ranking

SURE = 0.05


def findings(both: pd.DataFrame, table: pd.DataFrame, chance: pd.DataFrame) -> str:
    """The page's conclusion: a sentence or two for each question."""
    at_five = chance[chance["guard"].str.endswith(CALIBRATED)]
    parts = [_differ(both), _rows(both), _paper(chance), _printed(chance), _five(at_five), _kinds(table)]
    return "\n".join(fill(f"- {part}", 110, subsequent_indent="  ") for part in parts) + "\n"


def _differ(both: pd.DataFrame) -> str:
    ours, theirs = (
        ranking(frame.assign(scenario=frame["dataset"] + frame["scenario"]), "mcc", 0.95).p_value
        for frame in (both, published())
    )
    verb = "differ" if ours < SURE else "do not differ"
    verdict = "does not hold here" if ours < SURE else "holds"
    return (
        f"**At the paper's thresholds its three monitors {verb} beyond chance** over {len(both) // 3} "
        f"scenarios (Friedman p = {ours:.2g}; the authors' 79: {theirs:.2g}): the paper's main finding "
        f"{verdict}."
    )


def _rows(both: pd.DataFrame) -> str:
    found = stats.spearmanr(both["mcc"], both["mcc_theirs"])
    gaps = [(both[name] - both[f"{name}_theirs"]).abs().mean() for name in ("fpr", "fnr")]
    return (
        f"**Row by row** our MCC and theirs have a rank correlation of {found.statistic:.2f} "
        f"(p = {found.pvalue:.1g}, {len(both)} results); false alarms differ by {gaps[0]:.2f} on average, "
        f"misses by {gaps[1]:.2f}."
    )


def _paper(chance: pd.DataFrame) -> str:
    part = chance[chance["guard"].isin(PAPER_GUARDS)]
    sure = part[holm(part["p"].to_numpy()) < SURE]
    said = "; ".join(
        f"{row.guard} {row.mcc:.2f} (better than chance in {row.better} scenarios, worse in {row.worse})"
        for row in part.sort_values("mcc", ascending=False).itertuples()
    )
    return (
        f"**Chance, tested:** of the three {_names(sure)} better than chance in the mean over scenarios; "
        f"mean MCC {said}."
    )


def _printed(chance: pd.DataFrame) -> str:
    means = chance.set_index("guard")["mcc"]
    return (
        f"**ODIN at the thresholds the paper prints** has a mean MCC of {means[AT_PRINTED]:.2f}, at the "
        f"lowest confidence of our own training images {means['ODIN']:.2f}."
    )


def _five(chance: pd.DataFrame) -> str:
    ordered = chance.sort_values("mcc", ascending=False)
    sure = chance[holm(chance["p"].to_numpy()) < SURE]
    best = ordered.iloc[0]
    return (
        f"**Calibrated to 5 % false alarms**, {len(sure)} of {len(chance)} monitors are better than chance "
        f"in the mean; the best, {best['guard'].removesuffix(CALIBRATED)}, has a mean MCC of "
        f"{best['mcc']:.2f}."
    )


def _kinds(table: pd.DataFrame) -> str:
    part = table[table["guard"].str.endswith(CALIBRATED)]
    wide = part.pivot_table(index="guard", columns="category", values="specific_mcc")
    said = ", ".join(
        f"{kind} {wide[kind].idxmax().removesuffix(CALIBRATED)} ({wide[kind].max():.2f})" for kind in wide
    )
    return (
        f"**Each is good for something:** best by category (mean MCC) {said}. That is the case for combining "
        "them."
    )


def _names(sure: pd.DataFrame) -> str:
    names = [name.removesuffix(CALIBRATED) for name in sure["guard"]]
    if not names:
        return "none is"
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
