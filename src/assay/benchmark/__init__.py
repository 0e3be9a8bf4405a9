"""The safety-monitor benchmark: which monitor catches which faults, at which threshold and at what cost."""

from assay.benchmark.building import build_scenarios
from assay.benchmark.oracle import Outcome, overall_outcome, specific_outcome
from assay.benchmark.ranking import Ranking
from assay.benchmark.result import BenchmarkResult
from assay.benchmark.run import run_benchmark
from assay.benchmark.scenario import Scenario

__all__ = [
    "BenchmarkResult",
    "Outcome",
    "Ranking",
    "Scenario",
    "build_scenarios",
    "overall_outcome",
    "run_benchmark",
    "specific_outcome",
]
