"""Every name that reshaping exports, once. `__init__.py` loads each on first use (see lazy_loader)."""

from .bins import Bins as Bins
from .bounds import neuron_bounds as neuron_bounds
from .counts_estimate import CountsEstimate as CountsEstimate
from .counts_estimate import estimate_from_counts as estimate_from_counts
from .estimate import IndicatorEstimate as IndicatorEstimate
from .fleet import FleetEstimates as FleetEstimates
from .fleet import estimate_fleet as estimate_fleet
from .histogram import Histogram as Histogram
from .indicator import Indicator as Indicator
from .indicator import Ratio as Ratio
from .indicator import accuracy as accuracy
from .indicator import recall as recall
from .mismatch import CannotMatchError as CannotMatchError
from .privacy import Privacy as Privacy
from .proposal import BinsProposal as BinsProposal
from .proposal import propose_bins as propose_bins
from .sensitivity import Sensitivity as Sensitivity
from .similarity import implied_kappa as implied_kappa
from .similarity import kl_similarity as kl_similarity
from .similarity import portion_similarity as portion_similarity
from .subset import Reshaping as Reshaping
from .subset import reshape as reshape
from .trials import ReshapingTrials as ReshapingTrials
