"""Is this network fit to ship? Questions 1 and 2 asked at once, and the reference for 3, with gates."""

from assay.check.gate import Gate
from assay.check.junit import junit
from assay.check.result import Check
from assay.check.run import check_network

__all__ = ["Check", "Gate", "check_network", "junit"]
