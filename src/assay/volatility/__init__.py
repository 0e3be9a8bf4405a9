"""Is accuracy falling? A signal from the network's certainties, without labels."""

from assay.volatility.adapters import lightning_callback, trainer_callback
from assay.volatility.certainty import local_volatilities, log_volatility, volatility_in_certainty
from assay.volatility.clean_reference import CleanReference
from assay.volatility.comparison import VolatilityComparison, compare_volatility
from assay.volatility.contamination import ContaminationLimits, smallest_contamination
from assay.volatility.evidence import Evidence, Stakes
from assay.volatility.training import TrainingRecord
from assay.volatility.watch import VolatilityState, VolatilityWatch

__all__ = [
    "CleanReference",
    "ContaminationLimits",
    "Evidence",
    "Stakes",
    "TrainingRecord",
    "VolatilityComparison",
    "VolatilityState",
    "VolatilityWatch",
    "compare_volatility",
    "lightning_callback",
    "local_volatilities",
    "log_volatility",
    "smallest_contamination",
    "trainer_callback",
    "volatility_in_certainty",
]
