"""Is accuracy falling? What a network's certainties say about it without a single label."""

from assay.volatility.certainty import local_volatilities, log_volatility, volatility_in_certainty
from assay.volatility.evidence import Evidence, Staked
from assay.volatility.reference import Reference
from assay.volatility.watch import VolatilityState, VolatilityWatch

__all__ = [
    "Evidence",
    "Reference",
    "Staked",
    "VolatilityState",
    "VolatilityWatch",
    "local_volatilities",
    "log_volatility",
    "volatility_in_certainty",
]
