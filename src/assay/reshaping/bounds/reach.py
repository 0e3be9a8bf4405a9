"""NeuronBounds: bounds, and whether inputs come anywhere near them."""

from collections.abc import Callable, Mapping
from functools import cached_property

import torch
from torch import Tensor

Ends = tuple[Tensor, Tensor]
"""Lowest and highest value of every neuron, (d,) each."""

BINS = 1000
"""Bounds are vacuous where so many equal bins between them tell no two sample inputs apart."""


class NeuronBounds(dict[str, Ends]):
    """(lowest, highest) of every neuron by layer, which no input can leave.

    Bounds that are sound may still say nothing: in deep networks they can be wider by many orders than what
    any input does. `vacuous` lists the layers of which that is so: of no neuron do 16 sample inputs from the
    range (noise, extremes, one value everywhere, a narrow range; for texts, random tokens) span a thousandth
    of its bounds, or these are not even finite. It is found when it is asked for, by one forward pass.
    """

    def __init__(self, bounds: Mapping[str, Ends], reach: Callable[[], dict[str, Ends]]) -> None:
        super().__init__(bounds)
        self._reach = reach

    @cached_property
    def reached(self) -> dict[str, Ends]:
        """Smallest and largest value of every neuron over the sample inputs."""
        return self._reach()

    @property
    def vacuous(self) -> tuple[str, ...]:
        """The layers whose bounds say nothing."""
        return tuple(name for name in self if self._is_vacuous(name))

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence about each of them."""
        return tuple(self._warning(name) for name in self.vacuous)

    def _is_vacuous(self, name: str) -> bool:
        low, high = self[name]
        if not (torch.isfinite(low).all() and torch.isfinite(high).all()):
            return True
        least, most = self.reached[name]
        return not bool((BINS * (most - least) >= high - low).any())

    def _warning(self, name: str) -> str:
        low, high = self[name]
        least, most = self.reached[name]
        return (
            f"the bounds of layer {name!r} are vacuous: they are {float((high - low).max()):.3g} wide, where "
            f"sample inputs span {float((most - least).max()):.3g}; sound, but they say nothing"
        )
