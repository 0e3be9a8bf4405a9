"""MultiLayerMahalanobis: far from every class in several layers, weighed together (Lee et al. 2018)."""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.mahalanobis import Mahalanobis
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.covariance import checked_estimator
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.joint_fit import collect_together
from assay.monitors.parts.row_keys import RowKeys
from assay.monitors.parts.row_sample import TraceSample
from assay.monitors.relative_mahalanobis import RelativeMahalanobis
from assay.outputs import LOGITS
from assay.trace import Trace

_FOLDS = 5
_PENALTIES = np.logspace(-4, 4, 10)
"""What scikit-learn's LogisticRegressionCV, the authors' choice, tries."""


class MultiLayerMahalanobis(Monitor):
    """s(x) = sum over layers l of a_l min_c D_l^2(x, c), with D_l the Mahalanobis distance in layer l
    (Lee et al. 2018, section 2.2, "feature ensemble"; see `Mahalanobis`).

    The weights a_l are, as published,
    - by default 1 / (standard deviation of min_c D_l^2 over the training rows), so that no layer drowns the
      others: the multi-branch Mahalanobis of Anthony and Kamnitsas 2023, up to a constant. It needs nothing
      but training data; at most `limit` rows, a uniform sample, are kept until fitting is done;
    - `weights=`, one per layer, for weights found elsewhere;
    - `weigh(inside, outside)` after `fit`: logistic regression on labelled examples of both, as Lee et al.
      do. Distances are standardised first (the authors' are not), so that the penalty treats layers alike.

    With `relative` every layer gives its relative distance instead (Ren et al. 2021; see
    `RelativeMahalanobis`): a weighted RMD.

    Rows are fitted under their label where the Trace has labels, else under their prediction. The paper's
    perturbation of inputs is left to `Mahalanobis`. The network must be observed with these layers.
    """

    metadata = Metadata(
        score="weighted sum of Mahalanobis scores over layers",
        needs=Needs(labels=Labels.OPTIONAL),
        fit="N * d**2 * len(layers)",
        cost="N * d**2 * len(layers)",
        state="4 * d**2 * len(layers)",
        paper="Lee et al.",
        year=2018,
    )

    members_: list[Mahalanobis | RelativeMahalanobis]
    weights_: Tensor
    deviations_: Tensor

    def __init__(
        self,
        *,
        layers: Sequence[str],
        weights: Sequence[float] | None = None,
        estimator: str = "empirical",
        relative: bool = False,
        limit: int | None = 10_000,
        seed: int = 0,
    ) -> None:
        if isinstance(layers, str) or not layers or len(set(layers)) < len(layers):
            raise InputError(
                f"expected a list of different layers, got {layers!r}; pass layers=['conv1', 'penultimate']"
            )
        if weights is not None and len(weights) != len(layers):
            raise InputError(f"expected one weight per layer ({len(layers)}), got {len(weights)}")
        if limit is not None and limit < 2:
            raise InputError(f"expected a limit of at least 2 rows, got {limit}")
        self._layers = tuple(layers)
        self.weights = None if weights is None else [float(weight) for weight in weights]
        self.estimator = checked_estimator(estimator)
        self.relative = relative
        self.limit = limit
        self.seed = seed

    @property
    def layers(self) -> tuple[str, ...]:
        return self._layers

    def by_layer(self, trace: Trace) -> Tensor:
        """(layers, N): min_c D^2, or the relative distance, in every layer, before weighing, to see which
        layer objects."""
        self._check_fitted()
        return torch.stack([member.score(trace) for member in self.members_])

    def weigh(self, inside: Trace, outside: Trace) -> Self:
        """Take the weights that best separate inputs `inside` the training distribution from those `outside`.

        Neither should have been fitted on. Layers that point the wrong way get a negative weight.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV

        parts = [self.by_layer(trace) / self.deviations_[:, None] for trace in (inside, outside)]
        for name, part in zip(("inside", "outside"), parts, strict=True):
            if part.shape[1] < _FOLDS or not torch.isfinite(part).all():
                raise InputError(
                    f"expected at least {_FOLDS} rows {name} with finite distances to weigh layers by, got "
                    f"{int(torch.isfinite(part).all(dim=0).sum())} of {part.shape[1]}; pass others"
                )
        centre = parts[0].mean(dim=1, keepdim=True)  # helps the solver, and changes no weight
        rows = torch.cat([part - centre for part in parts], dim=1).T.numpy()
        answers = np.repeat([0, 1], [part.shape[1] for part in parts])
        search = GridSearchCV(LogisticRegression(max_iter=1000), {"C": _PENALTIES}, cv=_FOLDS)
        coefficients = search.fit(rows, answers).best_estimator_.coef_[0]
        self.weights_ = torch.from_numpy(coefficients) / self.deviations_
        return self

    @property
    def _parts(self) -> Sequence[Monitor]:
        return getattr(self, "members_", ())

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        member = RelativeMahalanobis if self.relative else Mahalanobis
        self.members_ = [member(layer=layer, estimator=self.estimator) for layer in self._layers]
        sample = TraceSample(self.limit)
        collect_together(self.members_, self._with_sample(traces, sample))
        return {"sample": sample}

    def _describe(self, sample: TraceSample) -> None:
        spread = self.by_layer(sample.trace()).std(dim=1, correction=0)
        self.deviations_ = torch.where(spread > 0, spread, 1)
        self.weights_ = 1 / self.deviations_
        if self.weights is not None:
            self.weights_ = torch.tensor(self.weights, dtype=torch.float64)
        remedies = [(member.layer, member.remedy_) for member in self.members_ if member.remedy_]
        self.remedy_ = "; ".join(f"layer {layer!r}: {remedy}" for layer, remedy in remedies)

    def _with_sample(self, traces: Iterator[Trace], sample: TraceSample) -> Iterator[Trace]:
        keys = RowKeys(self.seed)
        for trace in traces:
            features = {layer: trace.layer(layer) for layer in self._layers}
            sample.add(Trace(trace.logits, features, outputs=LOGITS), keys.next(trace.logits))
            yield trace

    def _score(self, trace: Trace) -> Tensor:
        return self.weights_ @ self.by_layer(trace)
