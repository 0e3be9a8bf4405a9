"""Which test points to keep, in numbers alone: no torch, no networks (import-linter checks it).

| file | contents |
| --- | --- |
| patterns | the cells of every test point, as a matrix that is never built |
| program | the problem of Definition 4 and the linear programs around it |
| interior | the interior-point method that solves those linear programs |
| rounding, swaps | from a fractional solution to whole points |
| certificate | proven limits, checked independently of the solver |
| process, worker | the solver's own process, and the one that starts and may end it |
"""

from assay.reshaping.solver.patterns import Patterns
from assay.reshaping.solver.process import solved
from assay.reshaping.solver.program import PortionTarget, SubsetProblem, distinct

__all__ = ["Patterns", "PortionTarget", "SubsetProblem", "distinct", "solved"]
