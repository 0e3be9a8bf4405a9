"""Detection of a network's failures by three monitors, tuned on noise (MIRA, Section 4.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.errors import InputError
from assay.mira.settings import MiraSettings
from assay.monitors import ODIN, Energy, Mahalanobis, Monitor
from assay.monitors.parts.reservoir import Reservoir
from assay.monitors.parts.row_keys import RowKeys
from assay.network import Network, length, perturbable, replaced, rows
from assay.statistics import auroc
from assay.trace import Inputs, Trace

TEMPERATURES = (500.0, 1000.0, 2000.0)
MAGNITUDES = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The grid of Appendix B.5, and the number of training and noise inputs on which it is searched."""

    temperatures: Sequence[float] = TEMPERATURES
    magnitudes: Sequence[float] = MAGNITUDES
    inputs: int = 500

    def __post_init__(self) -> None:
        if not self.temperatures or not self.magnitudes or self.inputs < 2:
            raise InputError(
                "expected at least one temperature, one magnitude and two inputs to tune monitors with, got "
                f"{len(self.temperatures)}, {len(self.magnitudes)} and {self.inputs}"
            )


def detection_table(
    network: Network,
    train: Any,
    test: Any,
    unknown: Mapping[str, Any],
    layer: str,
    settings: MiraSettings,
    tuning: Tuning,
) -> pd.DataFrame:
    """AUROC of ODIN, Mahalanobis and Energy between `test` and each unknown set.

    A row per monitor and set: monitor, unknown, auroc, temperature, magnitude. ODIN and Mahalanobis
    are tuned to separate training inputs from random noise; the unknown sets play no part in it. Memory is
    bounded by a few batches.
    """
    fitted = network.observe(train)
    chosen = tuned_monitors(network, train, fitted, layer, settings, tuning)
    known = _scores(network, test, chosen)
    table = []
    for name, data in unknown.items():
        theirs = _scores(network, data, chosen)
        for kind, monitor in chosen.items():
            table.append(
                {
                    "monitor": kind,
                    "unknown": name,
                    "auroc": _auroc(known[kind], theirs[kind]),
                    "temperature": getattr(monitor, "temperature", np.nan),
                    "magnitude": getattr(monitor, "magnitude", np.nan),
                }
            )
    return pd.DataFrame(table)


def tuned_monitors(
    network: Network, train: Any, fitted: Trace, layer: str, settings: MiraSettings, tuning: Tuning
) -> dict[str, Monitor]:
    """Each monitor with the settings that best separate training inputs from noise; the first one on ties."""
    sample = _input_sample(network, train, tuning.inputs, settings.seed)
    noise = random_noise(network, sample, settings)
    traces = [network.observe(inputs, keep_inputs=True) for inputs in (sample, noise)]

    def mahalanobis(magnitude: float) -> Monitor:
        monitor = Mahalanobis(
            layer=layer,
            covariance=settings.covariance,
            estimator=settings.estimator,
            network=network,
            magnitude=magnitude,
        )
        return monitor.fit(fitted)

    families: dict[str, Iterator[Monitor]] = {
        "ODIN": (
            ODIN(network, temperature=temperature, magnitude=magnitude).fit(fitted)
            for magnitude, temperature in product(tuning.magnitudes, tuning.temperatures)
        ),
        "Mahalanobis": (mahalanobis(magnitude) for magnitude in tuning.magnitudes),
    }
    chosen: dict[str, Monitor] = {
        name: max(family, key=lambda monitor: _auroc(*(monitor.score(trace) for trace in traces)))
        for name, family in families.items()
    }
    return chosen | {"Energy": Energy().fit(fitted)}


def random_noise(network: Network, sample: Inputs, settings: MiraSettings) -> Inputs:
    """Normal noise with the mean and spread of the sample's values, cut to the bounds; one per input.

    For text it replaces the embeddings.
    """
    inputs = network.embed(sample)
    values = perturbable(inputs).detach()
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(values.shape, generator=generator).to(values) * values.std() + values.mean()
    if settings.low is not None or settings.high is not None:
        noise = noise.clamp(settings.low, settings.high)
    return replaced(inputs, noise)


def _scores(network: Network, data: Any, monitors: Mapping[str, Monitor]) -> dict[str, Tensor]:
    parts: dict[str, list[Tensor]] = {name: [] for name in monitors}
    for inputs, _ in network.batches(data):
        trace = network.observe(inputs, keep_inputs=True)
        for name, monitor in monitors.items():
            parts[name].append(monitor.score(trace))
    return {name: torch.cat(part) for name, part in parts.items()}


def _auroc(known: Tensor, unknown: Tensor) -> float:
    """The chance that an unknown input scores above a known one; NaN ranks above every score."""
    known, unknown = (scores.nan_to_num(torch.inf, torch.inf, -torch.inf) for scores in (known, unknown))
    return auroc(known.numpy(), unknown.numpy()).value


def _input_sample(network: Network, data: Any, count: int, seed: int) -> Inputs:
    """Up to `count` inputs drawn at random, in one pass and with no more than these in memory."""
    batches = network.batches(data)
    if batches.whole is not None:
        total = length(batches.whole)
        chosen = np.random.default_rng(seed).choice(total, min(count, total), replace=False)
        return rows(batches.whole, torch.from_numpy(np.sort(chosen)))
    kept, keys = Reservoir(count), RowKeys(seed)
    for inputs, _ in batches:
        named = {"": inputs} if isinstance(inputs, Tensor) else inputs
        kept.add(keys.next(*named.values()), named)
    tensors = {str(name): part for name, part in kept.columns().items()}
    return tensors.get("", tensors)
