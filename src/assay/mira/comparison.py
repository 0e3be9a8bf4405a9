"""Which network, and which of its layers, is easiest to monitor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from assay.engine import mapped
from assay.errors import InputError
from assay.mira.figures import ranking_figure, row_names
from assay.mira.result import MiraResult
from assay.mira.score import Layers, scores
from assay.mira.settings import MiraSettings, shows_mira_options
from assay.network import Network
from assay.notebook import Shown
from assay.storage import storable
from assay.table import tabled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@storable("MonitorabilityComparison")
@dataclass(frozen=True, eq=False)
class MonitorabilityComparison(Shown):
    """Results of networks and layers, the most monitorable first; `results[i]` belongs to `networks[i]`."""

    title: ClassVar[str] = "Which network is easiest to monitor?"

    networks: tuple[str, ...]
    results: tuple[MiraResult, ...]

    @tabled
    def to_frame(self) -> pd.DataFrame:
        """A row per network and layer, best first.

        `beats_next` is the share of bootstrap draws in which the score is above that of the next row: near 1
        the order is certain, near 0.5 it is not.
        """
        frame = pd.concat([result.to_frame() for result in self.results], ignore_index=True)
        frame.insert(0, "rank", range(1, len(frame) + 1))
        frame.insert(1, "network", list(self.networks))
        ahead = [
            float((one.draws > other.draws).mean())
            for one, other in zip(self.results, self.results[1:], strict=False)
        ]
        frame.insert(6, "beats_next", [*ahead, float("nan")])
        return frame

    def summary(self) -> str:
        frame = self.to_frame()
        names = row_names(frame)
        what = "layer" if frame["network"].nunique() == 1 and len(frame) > 1 else "network"
        words = [
            f"{names[0]} is the {what} whose failures show most clearly from inside, with a MIRA score of "
            f"{frame['score'].iloc[0]:.4g}; the order is {', '.join(names)}."
        ]
        if unsure := [
            f"{names[row]} and {names[row + 1]}"
            for row in range(len(frame) - 1)
            if frame["beats_next"][row] < 0.95
        ]:
            words.append(f"{'; '.join(unsure)} cannot be told apart with these inputs.")
        flagged = sorted({names[row] for row, result in enumerate(self.results) if result.warnings})
        if flagged:
            words.append(f"Read the warnings of {', '.join(flagged)} (last column) before you decide.")
        words.append("assay.validate_monitorability checks whether these scores track detection.")
        return " ".join(words)

    def plot(self) -> "Figure":
        return ranking_figure(self.to_frame())


@shows_mira_options
def compare_monitorability(
    networks: Mapping[str, Network] | Network,
    train: Any,
    test: Any,
    layers: Sequence[Layers] = ("penultimate",),
    *,
    engine: str = "here",
    **options: Any,
) -> MonitorabilityComparison:
    """MIRA scores of networks, of layers, or of both, ranked.

    A group in `layers`, ("4", "penultimate"), is scored jointly. All layers of a network share its forward
    passes, so that more layers cost little more. The options are those of `mira_score`
    (`assay.mira.MiraSettings`) and apply to all networks: scores can be compared only at one accuracy
    threshold. `engine` scores networks in other processes ("processes") or on a Ray cluster ("ray"), with the
    same result.
    """
    settings = MiraSettings(**options)
    named = {"network": networks} if isinstance(networks, Network) else dict(networks)
    if not named:
        raise InputError("expected at least one network to compare, got none; pass {'name': network}")
    if isinstance(layers, str):
        layers = [layers]
    score = partial(_scores_of_one_network, train, test, layers, settings)
    found = mapped(score, named.items(), engine, description="networks", total=len(named))
    rows = [(name, result) for name, results in zip(named, found, strict=True) for result in results]
    rows.sort(key=lambda row: -row[1].score)
    return MonitorabilityComparison(tuple(name for name, _ in rows), tuple(result for _, result in rows))


def _scores_of_one_network(
    train: Any, test: Any, layers: Sequence[Layers], settings: MiraSettings, named: tuple[str, Network]
) -> list[MiraResult]:
    name, network = named
    try:
        return scores(network, train, test, layers, settings)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
