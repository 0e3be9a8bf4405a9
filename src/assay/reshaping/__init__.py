"""Reshaping: what is the accuracy out there, from histograms of neuron values alone.

Cheng, Ruess and Theodorou, "Safety performance of neural networks in the presence of covariate shift". A
device counts, per watched neuron, how often its value fell into each bin, and sends only the counts. At home,
the largest part of the labelled test set with the same histograms is kept, and what is measured on that part
stands for what is happening out there.

| file | holds |
| --- | --- |
| bounds, operations, linear | how far a neuron's value can go (Lemma 1) |
| bins, histogram, privacy | what a device counts (Definition 1, Eq. 3) |
| similarity | when two histograms are alike (Definitions 2 and 3) |
| cells, subset, mismatch | which test points are kept (Definition 4), and why where none can be |
| patterns, program, interior, search, swaps, certificate | the solver; none of it knows torch |
| worker, process | the solver's own process, and the one that may end it |
| indicator, bootstrap, weighting, estimate, trials | what follows for accuracy, and how sure that is |
"""

from assay.reshaping.bins import Bins
from assay.reshaping.bounds.neuron_bounds import neuron_bounds
from assay.reshaping.estimate import Estimate
from assay.reshaping.histogram import Histogram
from assay.reshaping.indicator import accuracy, recall
from assay.reshaping.mismatch import CannotMatchError
from assay.reshaping.similarity import implied_kappa, kl_similarity, portion_similarity
from assay.reshaping.subset import Reshaping, reshape
from assay.reshaping.trials import ReshapingTrials

__all__ = [
    "Bins",
    "CannotMatchError",
    "Estimate",
    "Histogram",
    "Reshaping",
    "ReshapingTrials",
    "accuracy",
    "implied_kappa",
    "kl_similarity",
    "neuron_bounds",
    "portion_similarity",
    "recall",
    "reshape",
]
