"""An interior-point method for programs whose columns are patterns.

Every program of this solver has the same shape, with a few hundred cells and up to millions of points:

    minimise    cost . x + scalar_cost * z
    subject to  P x + t - slope * z = constant     one row per cell, P the 0-1 matrix of the patterns
                sum(t over the first neuron) - balance * z = 0
                dense . x = 1                      if there is such a row
                0 <= x <= upper,  0 <= t <= allowance * z

Mehrotra's predictor-corrector method needs, per step, one Cholesky factorisation with as many rows as there
are cells, and the Gram matrix of the patterns. Hand-written because no library uses that shape: the
interior point of HiGHS took 6.4 s for 20,000 points and 50 s for 100,000, its simplex longer, and general
sparse products are seven times slower than the joint histograms that make up this Gram matrix. HiGHS still
does the exact search, and checks this file in the tests. Whatever comes out is only ever used together with a
certificate that does not depend on how it was found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from assay.reshaping.array_types import Floats
from assay.reshaping.solver.patterns import Patterns


@dataclass(frozen=True, eq=False)
class Program:
    """The arrays of the program above; `upper` None means that x has no upper limit."""

    patterns: Patterns
    cost: Floats
    scalar_cost: float
    slope: Floats
    constant: Floats
    balance: float
    allowance: float
    upper: Floats | None = None
    dense: Floats | None = None


@dataclass(eq=False)
class Variables:
    """The variables, and the multipliers of rows and limits: a point, or a step from one."""

    x: Floats
    t: Floats
    z: float
    cell_duals: Floats
    border_duals: Floats
    x_low: Floats
    x_high: Floats
    t_low: Floats
    t_high: Floats


@dataclass(eq=False)
class Iterate(Variables):
    """The present point of the method, with the distances to upper limits and the progress."""

    x_slack: Floats
    t_slack: Floats
    steps: int = 0
    gap: float = np.inf
    infeasibility: float = np.inf

    @property
    def converged(self) -> bool:
        return self.gap <= TOLERANCE and self.infeasibility <= TOLERANCE

    @property
    def multipliers(self) -> Floats:
        """Of "at least" minus "at most" in each cell: what the certificates start from."""
        return self.t_low - self.t_high

    @property
    def reduced_costs(self) -> Floats:
        """The value of each column's limits."""
        return self.x_low - self.x_high


TOLERANCE = 1e-8
MOST_STEPS = 200
STALL = 15  # steps without progress: only rounding errors are left, and the certificate says how good that is


def solution(program: Program, deadline: Callable[[], bool] = lambda: False) -> Iterate:
    """The best point found; O(points x neurons^2 + cells^3) per step, and 20 to 60 steps whatever the size.

    Stops early, with the point it has, once `deadline()` holds.
    """
    iterate = _start(program)
    best, since = replace(iterate), 0
    for step in range(1, MOST_STEPS + 1):
        # A program without a solution sends the multipliers to infinity, which ends the method.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            usable = not deadline() and _advance(program, iterate)
        if not usable:
            break
        iterate.steps = step
        _measure(program, iterate)
        if max(iterate.gap, iterate.infeasibility) < max(best.gap, best.infeasibility):
            best, since = replace(iterate), 0
        since += 1
        if iterate.converged or since > STALL:
            break
    return best


def _start(program: Program) -> Iterate:
    """Well inside every limit, with all complementarity products equal."""
    points, cells = program.patterns.points, program.patterns.cells
    x = np.ones(points) if program.upper is None else program.upper / 2
    slack = np.full(points, np.inf) if program.upper is None else program.upper - x
    z = max(float(x.sum()), 1.0)
    t = np.full(cells, program.allowance * z / 2)
    return Iterate(
        x=x,
        x_slack=slack,
        t=t,
        t_slack=t.copy(),
        z=z,
        cell_duals=np.zeros(cells),
        border_duals=np.zeros(2),
        x_low=1 / x,
        x_high=np.zeros(points) if program.upper is None else 1 / slack,
        t_low=1 / t,
        t_high=1 / t,
    )


@dataclass(eq=False)
class _Residuals:
    cells: Floats
    total: float
    dense: float
    x: Floats
    t: Floats
    z: float


def _residuals(program: Program, at: Iterate) -> _Residuals:
    """The residuals of the equality rows and of stationarity."""
    first = program.patterns.sizes[0]
    in_sum, in_dense = at.border_duals
    x = program.cost - program.patterns.prices(at.cell_duals) - at.x_low + at.x_high
    t = -at.cell_duals - at.t_low + at.t_high
    t[:first] -= in_sum
    dense = 0.0
    if program.dense is not None:
        x -= in_dense * program.dense
        dense = 1.0 - float(program.dense @ at.x)
    return _Residuals(
        cells=program.constant - program.patterns.totals(at.x) - at.t + program.slope * at.z,
        total=program.balance * at.z - float(at.t[:first].sum()),
        dense=dense,
        x=x,
        t=t,
        z=program.scalar_cost
        + float(program.slope @ at.cell_duals)
        + program.balance * in_sum
        - program.allowance * float(at.t_high.sum()),
    )


class _Newton:
    """The linear system of one step: a Cholesky factor of the cells, and a border of three rows.

    The border rows are the sum over the first neuron, the dense row, and z. Without a dense row, an equation
    that says zero takes its place.
    """

    def __init__(self, program: Program, at: Iterate, residuals: _Residuals) -> None:
        self.program, self.at, self.residuals = program, at, residuals
        self.x_scale = 1 / (at.x_low / at.x + at.x_high / at.x_slack)
        self.t_scale = 1 / (at.t_low / at.t + at.t_high / at.t_slack)
        self.pull = program.allowance * at.t_high / at.t_slack
        gram = program.patterns.gram(self.x_scale)
        diagonal = np.einsum("ii->i", gram)
        diagonal += self.t_scale
        diagonal *= 1 + 1e-13
        if not np.isfinite(diagonal).all():
            raise LinAlgError
        self.factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
        self.border, self.corner = self._borders()
        self.solved_border = cho_solve(self.factor, self.border, check_finite=False)

    def _borders(self) -> tuple[Floats, Floats]:
        program, first = self.program, self.program.patterns.sizes[0]
        border = np.zeros((program.patterns.cells, 3))
        border[:first, 0] = self.t_scale[:first]
        border[:, 2] = self.t_scale * self.pull - program.slope
        corner = np.diag([float(self.t_scale[:first].sum()), 1.0, 0.0])
        pulled = float((self.t_scale[:first] * self.pull[:first]).sum())
        corner[0, 2] = corner[2, 0] = pulled - program.balance
        corner[2, 2] = float((self.pull**2 * self.t_scale).sum() - program.allowance * self.pull.sum())
        if program.dense is not None:
            border[:, 1] = program.patterns.totals(self.x_scale * program.dense)
            corner[1, 1] = float((self.x_scale * program.dense) @ program.dense)
        return border, corner

    def step(self, x_low: Floats, x_high: Floats, t_low: Floats, t_high: Floats) -> Variables:
        """Towards the given changes of the complementarity products."""
        program, at, residuals = self.program, self.at, self.residuals
        first = program.patterns.sizes[0]
        x_pull = residuals.x - x_low / at.x + x_high / at.x_slack
        t_pull = residuals.t - t_low / at.t + t_high / at.t_slack
        x_side, t_side = self.x_scale * x_pull, self.t_scale * t_pull
        cells = residuals.cells + program.patterns.totals(x_side) + t_side
        corner = np.array(
            [
                residuals.total + float(t_side[:first].sum()),
                0.0 if program.dense is None else residuals.dense + float(program.dense @ x_side),
                residuals.z
                - program.allowance * float((t_high / at.t_slack).sum())
                + float(self.pull @ t_side),
            ]
        )
        inner = cho_solve(self.factor, cells, check_finite=False)
        border = np.linalg.solve(
            self.corner - self.border.T @ self.solved_border, corner - self.border.T @ inner
        )
        cell_duals = inner - self.solved_border @ border
        in_sum, in_dense, z = (float(value) for value in border)
        x_price = program.patterns.prices(cell_duals)
        if program.dense is not None:
            x_price += in_dense * program.dense
        t_price = cell_duals + self.pull * z
        t_price[:first] += in_sum
        x = self.x_scale * (x_price - x_pull)
        t = self.t_scale * (t_price - t_pull)
        return Variables(
            x=x,
            t=t,
            z=z,
            cell_duals=cell_duals,
            border_duals=np.array([in_sum, in_dense]),
            x_low=(x_low - at.x_low * x) / at.x,
            x_high=(x_high + at.x_high * x) / at.x_slack,
            t_low=(t_low - at.t_low * t) / at.t,
            t_high=(t_high - at.t_high * (program.allowance * z - t)) / at.t_slack,
        )


def _advance(program: Program, at: Iterate) -> bool:
    """One predictor-corrector step, in place; False where the linear system has no usable answer."""
    try:
        newton = _Newton(program, at, _residuals(program, at))
        aim = newton.step(
            -at.x * at.x_low, -_product(at.x_slack, at.x_high), -at.t * at.t_low, -at.t_slack * at.t_high
        )
        mean = _complementarity(at)
        centring = (
            _complementarity(_iterate_after(program, at, aim, *_lengths(program, at, aim, 1.0))) / mean
        ) ** 3
        target = centring * mean
        step = newton.step(
            target - at.x * at.x_low - aim.x * aim.x_low,
            _where_limited(program, target - _product(at.x_slack, at.x_high) + aim.x * aim.x_high),
            target - at.t * at.t_low - aim.t * aim.t_low,
            target - at.t_slack * at.t_high - (program.allowance * aim.z - aim.t) * aim.t_high,
        )
    except LinAlgError:
        return False
    if not np.isfinite(step.z) or not np.isfinite(step.cell_duals).all():
        return False
    moved = _iterate_after(program, at, step, *_lengths(program, at, step, 0.995))
    at.__dict__.update(moved.__dict__)
    return True


def _product(slack: Floats, high: Floats) -> Floats:
    """Slack times multiplier; zero where there is no limit (infinite slack)."""
    return np.where(np.isinf(slack), 0.0, slack) * high


def _where_limited(program: Program, values: Floats) -> Floats:
    return np.zeros_like(values) if program.upper is None else values


def _lengths(program: Program, at: Iterate, step: Variables, share: float) -> tuple[float, float]:
    """How far the variables and the multipliers can go along the step before one of them reaches zero."""
    primal = [(at.x, step.x), (at.t, step.t), (at.t_slack, program.allowance * step.z - step.t)]
    dual = [(at.x_low, step.x_low), (at.t_low, step.t_low), (at.t_high, step.t_high)]
    if program.upper is not None:
        primal.append((at.x_slack, -step.x))
        dual.append((at.x_high, step.x_high))
    return min(1.0, share * _reach(primal)), min(1.0, share * _reach(dual))


def _reach(pairs: list[tuple[Floats, Floats]]) -> float:
    fastest = max(float((-change / value).max()) for value, change in pairs)
    return 1 / fastest if fastest > 0 else np.inf


def _iterate_after(program: Program, at: Iterate, step: Variables, primal: float, dual: float) -> Iterate:
    z = at.z + primal * step.z
    x, t = at.x + primal * step.x, at.t + primal * step.t
    return Iterate(
        x=x,
        x_slack=at.x_slack - primal * step.x,
        t=t,
        t_slack=at.t_slack + primal * (program.allowance * step.z - step.t),
        z=z,
        cell_duals=at.cell_duals + dual * step.cell_duals,
        border_duals=at.border_duals + dual * step.border_duals,
        x_low=at.x_low + dual * step.x_low,
        x_high=at.x_high + dual * step.x_high,
        t_low=at.t_low + dual * step.t_low,
        t_high=at.t_high + dual * step.t_high,
    )


def _complementarity(at: Iterate) -> float:
    """The mean product of a variable's distance to its limit and that limit's multiplier."""
    limits = at.x.size + 2 * at.t.size + (0 if np.isinf(at.x_slack[0]) else at.x.size)
    total = at.x @ at.x_low + at.t @ at.t_low + at.t_slack @ at.t_high
    return float(total + _product(at.x_slack, at.x_high).sum()) / limits


def _measure(program: Program, at: Iterate) -> None:
    """Relative gap of the objectives and relative violation of the rows."""
    residuals = _residuals(program, at)
    objective = float(program.cost @ at.x) + program.scalar_cost * at.z
    gap = float(at.x @ at.x_low + at.t @ at.t_low + at.t_slack @ at.t_high)
    gap += float(_product(at.x_slack, at.x_high).sum())
    scale = max(1.0, abs(objective))
    rows = max(float(np.abs(residuals.cells).max()), abs(residuals.total))
    duals = max(float(np.abs(residuals.x).max()), float(np.abs(residuals.t).max()), abs(residuals.z))
    at.gap = gap / scale
    at.infeasibility = max(rows / max(1.0, at.z), abs(residuals.dense), duals)
