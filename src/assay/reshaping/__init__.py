"""Reshaping: the accuracy in operation, from histograms of neuron values alone.

Cheng, Ruess and Theodorou, "Safety performance of neural networks in the presence of covariate shift". A
device counts, per watched neuron, how often its value fell into each bin, and sends only the counts. At home,
the largest part of the labelled test set with the same histograms is kept, and what is measured on that part
stands for what happens in operation.

| file | contents |
| --- | --- |
| bins, histogram, privacy | what a device counts (Definition 1, Eq. 3) |
| bounds/ | how far a neuron's value can go (Lemma 1) |
| similarity | when two histograms are similar (Definitions 2 and 3) |
| subset, occupied_bins, mismatch | which test points are kept (Definition 4), and why none can be |
| solver/ | the solver; it needs no torch |
| indicator | accuracy, recall, and indicators of your own |
| counts_estimate, sensitivity | label shift fitted to the histograms, its test, and the range for gamma |
| grouped_cells, mixture, simplex, mixture_bootstrap, indicator_draws | how it is fitted and drawn again |
| fleet, fleet_model | every device of a fleet |
| count_guesses | how likely inputs are right, for `assay.accuracy.accuracy_from_counts_and_labels` |
| proposal | which neurons and bins to count |
| estimate, indicator_bootstrap, weighting | every estimate side by side; the kept points' own |
| trials | whether reshaping brings classes closer, over many trials |
| figures | Figs. 3, 4a and 4b |

The public names are listed in `__init__.pyi` and load on first use, because the solver's own process imports
this package and must start without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
