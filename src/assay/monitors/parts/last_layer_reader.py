"""The parent of monitors that work with the weights of the last layer."""

from abc import abstractmethod
from collections.abc import Iterator

from assay.monitors.monitor import Monitor
from assay.monitors.parts.gathered import Gathered
from assay.monitors.parts.last_layer import LastLayer, LastLayerFit
from assay.trace import Trace


class _LastLayerReader(Monitor):
    """Recovers the layer from what it did."""

    layer: str

    def _gather(self, traces: Iterator[Trace]) -> dict[str, Gathered]:
        return {"fit": LastLayerFit.of(traces, self.layer, self.dimensions_[self.layer], self.classes_)}

    def _describe(self, fit: LastLayerFit) -> None:
        self._use(fit.last_layer())

    @abstractmethod
    def _use(self, last: LastLayer) -> None:
        """Set the fitted state from the layer."""
