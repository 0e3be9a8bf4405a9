"""Reconstruction: doubt inputs that a network of normal ones cannot reconstruct (Sabokrou et al. 2018)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from assay.errors import InputError
from assay.monitors.metadata import Labels, Metadata, Needs
from assay.monitors.monitor import Monitor
from assay.monitors.parts.alocc import (
    CROSS_ENTROPY,
    OPTIMIZERS,
    SQUARED,
    Training,
    Weights,
    realness,
    reconstructed,
    reconstruction_error,
    seen,
    trained,
)
from assay.monitors.parts.class_rows import UNSEEN, fitting_classes, unseen_remedy
from assay.monitors.parts.reservoir import Reservoir, checked_limit
from assay.monitors.parts.row_blocks import row_blocks
from assay.monitors.parts.row_keys import RowKeys
from assay.trace import Trace

ALL = -1
"""The key of the one network for all classes."""

BLOCK = 512
"""Rows scored at a time, which bounds memory."""

MEASURES = ("error", "discriminator")
LOSSES = (SQUARED, CROSS_ENTROPY)


class Reconstruction(Monitor):
    """s(x) = mean_i (x_i - R(x)_i)^2, R a reconstructor trained against a discriminator D.

    Adversarially learned one-class classifier, ALOCC (Sabokrou, Khalooei, Fathy, Adeli 2018), as the
    safety-monitor benchmark uses it: by the reconstruction error. measure="discriminator" is the original's
    own score, here -log D(R(x)). per_class=True trains a pair for every class and uses that of the predicted
    one. Fit uses labels where they are known, else predictions.

    The benchmark's threshold, the average training error per class, is `paper_thresholds_` (classes,): give
    it to Guard as the threshold. An average is not a quantile (Table II there: 0.50 to 0.63 of good inputs
    above it); Guard.calibrate keeps a false-alarm rate instead.

    Inputs (N, C, H, W) or (N, H, W) of any size from 4 x 4 go through convolutions, all others as vectors.
    They are standardised per channel or column, so errors are in variances of the training data; a constant
    column keeps its unit. loss="cross-entropy" is that of the benchmark's authors: inputs in [0, 1] as they
    are, a reconstruction R(x) in (0, 1), and s(x) = mean_i -x_i log R(x)_i - (1 - x_i) log(1 - R(x)_i), which
    has the entropy of a grey pixel in it however well it is reconstructed; `noise` is then in the inputs' own
    units. Networks are smaller than the original's. Each trains on at most `limit` rows for
    `epochs` passes, from the seed alone. With per_class, a class never seen scores UNSEEN,
    the largest.
    """

    metadata = Metadata(
        score="mean squared error of reconstructing the input (ALOCC)",
        needs=Needs(labels=Labels.OPTIONAL, inputs=True, inputs_in_fit=True),
        fit="epochs * M * P",
        cost="N * P",
        state="4 * W",
        unmergeable="it trains a network on raw inputs, which it does not keep",
        paper="Sabokrou et al.",
        year=2018,
    )

    def __init__(
        self,
        *,
        per_class: bool = False,
        measure: str = "error",
        epochs: int = 20,
        batch_size: int = 64,
        optimizer: str = "adam",
        learning_rate: float = 1e-3,
        noise: float = 0.2,
        reconstruction_weight: float = 0.4,
        loss: str = SQUARED,
        limit: int | None = 10_000,
        seed: int = 0,
    ) -> None:
        if measure not in MEASURES:
            raise InputError(f"expected measure to be one of {list(MEASURES)}, got {measure!r}")
        if loss not in LOSSES:
            raise InputError(f"expected loss to be one of {list(LOSSES)}, got {loss!r}")
        if optimizer not in OPTIMIZERS:
            raise InputError(f"expected optimizer to be one of {list(OPTIMIZERS)}, got {optimizer!r}")
        if epochs < 1 or batch_size < 1 or not learning_rate > 0:
            raise InputError(
                "expected at least 1 epoch, a batch_size of at least 1 and a positive learning_rate, "
                f"got {epochs}, {batch_size} and {learning_rate}"
            )
        self.per_class = per_class
        self.measure = measure
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.noise = noise
        self.reconstruction_weight = reconstruction_weight
        self.loss = loss
        self.limit = checked_limit(limit)
        self.seed = seed

    shape_: tuple[int, ...]
    shift_: Tensor
    scale_: Tensor
    reconstructors_: dict[int, Weights]
    discriminators_: dict[int, Weights]
    paper_thresholds_: Tensor

    def _fit(self, traces: Iterator[Trace]) -> None:
        inputs, classes = self._sampled(traces)
        self._keep_scale(torch.cat(list(inputs.values())))
        self.reconstructors_, self.discriminators_ = {}, {}
        for key, rows in inputs.items():
            reconstructor, discriminator = trained(self._standard(rows), self._training())
            self.reconstructors_[key] = reconstructor
            if self.measure == "discriminator":
                self.discriminators_[key] = discriminator
        scores = torch.cat([self._doubt(key, rows) for key, rows in inputs.items()])
        self.remedy_ = unseen_remedy(inputs, self.classes_) if self.per_class else ""
        self.paper_thresholds_ = _averages(scores, torch.cat(list(classes.values())), self.classes_)

    def _score(self, trace: Trace) -> Tensor:
        inputs = self._images(trace)
        if tuple(inputs.shape[1:]) != self.shape_:
            raise InputError(
                f"expected inputs of shape {self.shape_} as in fit, got {tuple(inputs.shape[1:])}; "
                "resize them"
            )
        if not self.per_class:
            return trace.of_inputs(self._doubt(ALL, inputs))
        scores = torch.full((len(trace),), UNSEEN, dtype=torch.float64)
        for label in torch.unique(trace.predictions).tolist():
            if label in self.reconstructors_:
                rows = trace.predictions == label
                scores[rows] = self._doubt(label, inputs[rows])
        return scores

    def _traced_score(self, trace: Trace) -> Tensor:
        """Every class's reconstruction of every row; the predicted class's is taken."""
        if not self.per_class:
            return self._score(trace)
        inputs, predictions = self._images(trace), trace.predictions
        scores = torch.full_like(predictions, UNSEEN, dtype=torch.float64)
        for label in self.reconstructors_:
            scores = torch.where(predictions == label, self._doubt(label, inputs), scores)
        return scores

    def _sampled(self, traces: Iterator[Trace]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Inputs and classes of the rows each network learns from, in the order they came."""
        kept: dict[int, Reservoir] = {}
        row_keys, seen = RowKeys(self.seed), 0
        for trace in traces:
            values, labels = self._checked_inputs(trace), self._classes(trace)
            drawn = row_keys.next(values)
            keys = labels if self.per_class else torch.full_like(labels, ALL)
            for key in torch.unique(keys).tolist():
                here = keys == key
                places = here.nonzero().squeeze(1) + seen
                parts = {"inputs": values[here], "classes": labels[here], "places": places}
                kept.setdefault(key, Reservoir(self.limit)).add(drawn[here], parts)
            seen += len(labels)
        inputs, classes = (
            {key: rows.rows(name)[rows.rows("places").argsort()] for key, rows in sorted(kept.items())}
            for name in ("inputs", "classes")
        )
        return inputs, classes

    def _classes(self, trace: Trace) -> Tensor:
        """The class of every input; one for all where inputs have several predictions."""
        if trace.source is None:
            return fitting_classes(trace)
        return torch.zeros(trace.input_count, dtype=torch.long)

    def _checked_inputs(self, trace: Trace) -> Tensor:
        values = self._images(trace)
        if not hasattr(self, "shape_"):
            self.shape_ = tuple(values.shape[1:])
        if tuple(values.shape[1:]) != self.shape_ or not torch.isfinite(values).all():
            raise InputError(
                f"expected finite inputs of one shape, {self.shape_}, to fit Reconstruction on, got "
                f"{tuple(values.shape[1:])} or values that are not finite; resize or remove those rows first"
            )
        return values

    def _images(self, trace: Trace) -> Tensor:
        """Images (N, C, H, W) where they are that, else vectors (N, d)."""
        inputs = trace.known_inputs
        if self.per_class and trace.source is not None:
            raise InputError(
                "expected a Trace with one row per input for a network per class, got one with several; pass "
                "per_class=False"
            )
        if not isinstance(inputs, Tensor):
            raise InputError(
                f"expected inputs in one tensor to reconstruct, got {sorted(inputs)}; use another monitor"
            )
        images = inputs[:, None] if inputs.ndim == 3 else inputs
        return images if images.ndim == 4 and min(images.shape[2:]) >= 4 else inputs.flatten(1)

    def _training(self) -> Training:
        return Training(
            self.epochs,
            self.batch_size,
            self.optimizer,
            self.learning_rate,
            self.noise,
            self.reconstruction_weight,
            self.loss,
            self.seed,
        )

    def _keep_scale(self, inputs: Tensor) -> None:
        if self.loss == CROSS_ENTROPY:
            self._keep_fractions(inputs)
            return
        across = [dimension for dimension in range(inputs.ndim) if dimension != 1]
        values = inputs.double()
        self.shift_ = values.mean(dim=across, keepdim=True)[0].float()
        spread = values.std(dim=across, keepdim=True, correction=0)[0]
        self.scale_ = torch.where(spread > 1e-6 * values.abs().amax(), spread, 1.0).float()

    def _keep_fractions(self, inputs: Tensor) -> None:
        """No scaling, so that values stay in [0, 1]."""
        low, high = (float(end) for end in inputs.aminmax())
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"expected inputs in [0, 1] for loss='cross-entropy', got {low:.3g} to {high:.3g}; scale "
                "them, or use loss='squared'"
            )
        shape = [1] * (inputs.ndim - 1)
        self.shift_, self.scale_ = torch.zeros(shape), torch.ones(shape)

    def _standard(self, inputs: Tensor) -> Tensor:
        return (inputs.float() - self.shift_) / self.scale_

    def _doubt(self, key: int, inputs: Tensor) -> Tensor:
        """The scores of inputs by one network."""
        scores = [torch.empty(0, dtype=torch.float64)]
        with torch.no_grad():
            for rows in row_blocks(self._standard(inputs), BLOCK):
                made = reconstructed(self.reconstructors_[key], rows)
                if self.measure == "discriminator":
                    sure = realness(self.discriminators_[key], seen(self.loss, made)).double()
                    scores.append((-sure).clamp(min=0) + (-sure.abs()).exp().log1p())  # -log sigmoid(sure)
                else:
                    error = reconstruction_error(self.loss, made, rows).double()
                    scores.append(error.flatten(1).mean(dim=1))
        return torch.cat(scores)


def _averages(scores: Tensor, classes: Tensor, count: int) -> Tensor:
    """The mean score of each class; a class without rows takes that of all."""
    rows = torch.bincount(classes, minlength=count)
    totals = torch.zeros(count, dtype=torch.float64).index_add_(0, classes, scores)
    return torch.where(rows > 0, totals / rows.clamp(min=1), scores.mean())
