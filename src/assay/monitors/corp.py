"""CoRP: what kernel PCA of the directions of features leaves over (Fang et al. 2024)."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Metadata
from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.moments import ClassMoments
from assay.monitors.parts.neighbour_bank import normalised
from assay.monitors.parts.row_blocks import in_blocks, row_blocks
from assay.trace import Trace

_ROWS = 1024  # mapped at a time: intermediate results stay in cache

_FLAT = 1e-10
"""Variance of phi, whose length is about 1, below which rows differ by rounding alone."""


class CoRP(Monitor):
    """s(x) = ||(I - U U') (phi(x) - mean phi)||, with phi(x) = sqrt(2 / M) cos(Omega z + t) and
    z = f(x) / ||f(x)||: the reconstruction error of principal component analysis in a Gaussian kernel's
    space.

    Fang et al. 2024 (kernel PCA for out-of-distribution detection; cosine kernel, then random Fourier
    features). The `frequencies` = M rows of Omega are normal with variance 2 gamma, t uniform in [0, 2 pi):
    together the kernel exp(-gamma ||z - z'||^2). U spans the fewest principal directions that explain the
    share `explained` of the variance. Defaults are the authors' for CIFAR-10; ImageNet: gamma 3,
    4096 frequencies and 0.5. The authors' score is the negative. Any layer will do.
    """

    metadata = Metadata(
        score="what kernel PCA of z / ‖z‖, by random Fourier features, leaves over",
        fit="N * frequencies * (d + frequencies) + frequencies**3",
        cost="N * frequencies * (d + q)",
        state="4 * frequencies * (d + q)",
        paper="Fang et al.",
        year=2024,
    )

    frequencies_: Tensor
    phases_: Tensor
    mean_: Tensor
    axes_: Tensor

    def __init__(
        self,
        *,
        layer: str = "penultimate",
        gamma: float = 2.0,
        frequencies: int = 2048,
        explained: float = 0.8,
        seed: int = 0,
    ) -> None:
        if not gamma > 0 or frequencies < 2 or not 0 < explained < 1:
            raise InputError(
                "expected gamma above 0, at least 2 frequencies and an explained share between 0 and 1, got "
                f"{gamma}, {frequencies} and {explained}"
            )
        self.layer = layer
        self.gamma = gamma
        self.frequencies = frequencies
        self.explained = explained
        self.seed = seed

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        self.frequencies_, self.phases_ = self._random_map()
        moments = ClassMoments(1, self.frequencies)
        for (features,) in in_blocks((trace.layer(self.layer),) for trace in traces):
            mapped = self._fourier_features(features)
            moments.add(mapped, torch.zeros(len(mapped), dtype=torch.long))
        return {"moments": moments}

    def _describe(self, moments: ClassMoments) -> None:
        variances, directions = torch.linalg.eigh(moments.scatter)
        largest = variances.flip(0).clamp(min=0)
        shares = largest.cumsum(dim=0) / largest.sum()
        count = min(int((shares < self.explained).sum()) + 1, self.frequencies - 1)
        self.mean_ = moments.mean.float()
        self.axes_ = directions[:, -count:].float().contiguous()
        if largest.sum() < _FLAT * moments.rows:
            self.remedy_ = "all rows had the same direction, so that nothing was learned; fit on more rows"

    def _random_map(self) -> tuple[Tensor, Tensor]:
        """Omega' (d, M) and t (M,)."""
        generator = np.random.default_rng(self.seed)
        deviation = math.sqrt(2 * self.gamma)
        omega = deviation * generator.normal(size=(self.frequencies, self.dimensions_[self.layer]))
        phases = 2 * np.pi * generator.random(self.frequencies)
        return torch.from_numpy(omega.T).float().contiguous(), torch.from_numpy(phases).float()

    def _fourier_features(self, features: Tensor) -> Tensor:
        """phi, one row per row."""
        angles = torch.addmm(self.phases_, normalised(features), self.frequencies_)
        return angles.cos() * math.sqrt(2 / self.frequencies)

    def _score(self, trace: Trace) -> Tensor:
        return torch.cat([self._residuals(rows) for rows in row_blocks(trace.layer(self.layer), _ROWS)])

    def _residuals(self, features: Tensor) -> Tensor:
        # What U does not explain, by Pythagoras: a good share of the whole, so that little cancels.
        centred = self._fourier_features(features) - self.mean_
        explained = (centred @ self.axes_).square().sum(dim=1).double()
        return (centred.square().sum(dim=1).double() - explained).clamp(min=0).sqrt()
