"""Sound bounds: how far a neuron's value can go when every input value lies in a known range (Lemma 1).

| file | contents |
| --- | --- |
| propagation | runs a network on what its input may be |
| input_box | what its input may be: a range, or any text |
| enclosure | a tensor that stands for all values it may have |
| interval | such a tensor with two numbers per value |
| operations, products, standardisation | how an interval passes through each operation |
| linear | sharper bounds: linear functions of the input instead of two numbers |
| reach | the bounds, and whether inputs come anywhere near them |
"""

from assay.reshaping.bounds.input_box import Limit
from assay.reshaping.bounds.propagation import neuron_bounds
from assay.reshaping.bounds.reach import NeuronBounds

__all__ = ["Limit", "NeuronBounds", "neuron_bounds"]
