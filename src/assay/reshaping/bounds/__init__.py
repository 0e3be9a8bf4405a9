"""Sound bounds: how far a neuron's value can go when every input value lies in a known range (Lemma 1).

| file | contents |
| --- | --- |
| propagation | runs a traced network on intervals instead of numbers |
| operations | how an interval passes through each operation |
| linear | sharper bounds: linear functions of the input instead of intervals |
"""

from assay.reshaping.bounds.propagation import Limit, neuron_bounds

__all__ = ["Limit", "neuron_bounds"]
