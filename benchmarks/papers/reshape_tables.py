"""The reshaping experiment's tables and images, from the trials in the cache."""

import shutil
from pathlib import Path

import pandas as pd
from pages import markdown

TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
PAPER = (
    "a figure without numbers",
    '"most" points closer',
    "most",
    "not stated",
    '"commonly below 15 minutes"',
    "not stated",
)


def write_tables(cache: Path, folder: Path) -> None:
    """experiment.md, errors.md, intervals.md and the figures of MNIST."""
    trials = {name: pd.read_csv(cache / f"{name}-trials.csv") for name in TITLES}
    found = {name: frame[frame["kept"] > 0] for name, frame in trials.items()}
    rows = {TITLES[name]: _experiment(frame, len(trials[name])) for name, frame in found.items()}
    table = pd.DataFrame(rows).assign(**{"paper (MNIST)": PAPER})
    title = f"{max(map(len, trials.values()))} trials each"
    (folder / "experiment.md").write_text(markdown(table.rename_axis(title).reset_index()))
    errors = pd.DataFrame({TITLES[name]: _errors(frame) for name, frame in found.items()})
    (folder / "errors.md").write_text(markdown(errors.rename_axis("estimate").reset_index()))
    intervals = pd.DataFrame({TITLES[name]: _intervals(frame) for name, frame in found.items()})
    (folder / "intervals.md").write_text(markdown(intervals.rename_axis("interval").reset_index()))
    for figure in ("3", "4a", "4b"):
        shutil.copyfile(cache / f"mnist-figure-{figure}.png", folder / f"reshaping-figure-{figure}.png")


def _experiment(done: pd.DataFrame, trials: int) -> dict[str, str]:
    def spread(name: str) -> str:
        return f"{done[name].mean():.2f} ({done[name].min():.2f} to {done[name].max():.2f})"

    return {
        "summed class ratio difference before": spread("before"),
        "... after": spread("after"),
        "trials closer after reshaping": f"{int((done['after'] < done['before']).sum())} of {trials}",
        "proven optimal": f"{int((done['gap'] == 0).sum())} of {trials}",
        "seconds to solve, median (most)": f"{done['seconds'].median():.1f} ({done['seconds'].max():.1f})",
        "kept": f"{done['kept'].min():,.0f} to {done['kept'].max():,.0f}",
    }


def _errors(done: pd.DataFrame) -> dict[str, str]:
    """Mean absolute error of every estimate, and the largest."""
    names = [column for column in done if column.startswith("estimate_")]
    found = {name.removeprefix("estimate_"): (done[name] - done["truth"]).abs() for name in names}
    return {name: f"{error.mean():.4f} ({error.max():.4f})" for name, error in found.items()}


def _intervals(done: pd.DataFrame) -> dict[str, str]:
    """How often each held the truth."""
    shares = {}
    for title, name in {"label shift": "shift_", "kept points": "", "all weightings": "range_"}.items():
        lower, upper = done[f"{name}lower"], done[f"{name}upper"]
        held = ((lower <= done["truth"]) & (done["truth"] <= upper)).mean()
        shares[f"truth inside that of {title}"] = f"{held:.0%}; mean {lower.mean():.3f} to {upper.mean():.3f}"
    return shares
