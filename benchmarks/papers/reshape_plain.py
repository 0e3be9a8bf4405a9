"""The plain program of the paper's Eq. 8, given as it stands to HiGHS or to SCIP through OR-Tools.

    python benchmarks/papers/reshape_plain.py plain.npz highs-milp --limit 300

`reshape.py table` writes the problem file and calls this script. It needs numpy and scipy, and highspy or
ortools, never both: their symbols clash in one process. So it imports nothing of assay.
"""

import argparse
import json
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

SOLVERS = ("highs-simplex", "highs-ipm", "highs-hipo", "clarabel", "highs-milp", "scip")
LIBRARIES = {"scip": "ortools", "clarabel": "clarabel"}  # the others are in highspy


def rows_of(stored: Any) -> tuple[np.ndarray, np.ndarray]:
    """Which row each point has in each neuron, and the operational portion of each row."""
    bins, counts, total = stored["bins"], stored["counts"], int(stored["total"])
    bins_of_neuron = counts.shape[1]
    rows = bins + bins_of_neuron * np.arange(bins.shape[1])
    tested = np.bincount(rows.ravel(), minlength=counts.size)
    used = (tested > 0) | (counts.ravel() > 0)
    number = np.cumsum(used) - 1
    return number[rows], counts.ravel()[used] / total


def matrix_of(rows: np.ndarray, portions: np.ndarray, epsilon: float) -> Any:
    """Columns x and s; rows "at most" and "at least" of each cell, then sum x - s."""
    from scipy import sparse

    points, neurons = rows.shape
    members = sparse.csc_matrix(
        (np.ones(points * neurons), rows.ravel(), np.arange(0, points * neurons + 1, neurons)),
        shape=(len(portions), points),
    )
    column = lambda values: sparse.csc_matrix(values[:, None])  # noqa: E731
    return sparse.vstack(
        [
            sparse.hstack([members, column(-(portions + epsilon))]),
            sparse.hstack([members, column(-(portions - epsilon))]),
            sparse.csc_matrix(np.append(np.ones(points), -1.0)[None]),
        ]
    ).tocsc()


def with_clarabel(rows: np.ndarray, portions: np.ndarray, epsilon: float, limit: float) -> dict[str, Any]:
    """The relaxation, as a conic program: A x + t = b with t in a zero cone and in non-negative ones."""
    import clarabel
    from scipy import sparse

    points, cells = len(rows), len(portions)
    matrix = matrix_of(rows, portions, epsilon)
    most, least, total = matrix[:cells], matrix[cells : 2 * cells], matrix[2 * cells :]
    square = sparse.identity(points + 1, format="csc")
    stacked = sparse.vstack([total, most, -least, -square, square[:points]]).tocsc()
    right = np.concatenate([np.zeros(1 + 2 * cells + points + 1), np.ones(points)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(len(right) - 1)]
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.time_limit, settings.max_threads = False, limit, 1
    cost = np.append(np.zeros(points), -1.0)
    empty = sparse.csc_matrix((points + 1, points + 1))
    start, cpu = time.perf_counter(), time.process_time()
    answer = clarabel.DefaultSolver(empty, cost, stacked, right, cones, settings).solve()
    found = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    return found | {"kept": -answer.obj_val, "bound": -answer.obj_val_dual, "status": str(answer.status)}


def with_highs(
    rows: np.ndarray, portions: np.ndarray, epsilon: float, solver: str, limit: float
) -> dict[str, Any]:
    """Over the kept points x, with s as an extra column: the same program, one variable per point."""
    import highspy

    points, cells = len(rows), len(portions)
    matrix = matrix_of(rows, portions, epsilon)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = points + 1, matrix.shape[0]
    model.col_cost_ = np.append(np.zeros(points), 1.0)
    model.col_lower_, model.col_upper_ = np.zeros(points + 1), np.append(np.ones(points), float(points))
    infinite = np.full(cells, highspy.kHighsInf)
    model.row_lower_ = np.concatenate([-infinite, np.zeros(cells), [0.0]])
    model.row_upper_ = np.concatenate([np.zeros(cells), infinite, [0.0]])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    model.sense_ = highspy.ObjSense.kMaximize
    if solver == "highs-milp":
        kinds = [highspy.HighsVarType.kInteger] * points + [highspy.HighsVarType.kContinuous]
        model.integrality_ = kinds
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", limit)
    if solver != "highs-milp":
        highs.setOptionValue("solver", solver.removeprefix("highs-"))
    highs.passModel(model)
    start, cpu = time.perf_counter(), time.process_time()
    highs.run()
    information = highs.getInfo()
    found: dict[str, Any] = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu}
    found["kept"] = information.objective_function_value
    found["bound"] = information.mip_dual_bound if solver == "highs-milp" else found["kept"]
    found["status"] = highs.modelStatusToString(highs.getModelStatus())
    return found


def with_scip(rows: np.ndarray, portions: np.ndarray, epsilon: float, limit: float) -> dict[str, Any]:
    """As the paper has it, br per removed point; the number left is a variable, which keeps rows sparse."""
    from ortools.linear_solver import pywraplp

    points, cells = len(rows), len(portions)
    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(1000 * limit))
    removed = [solver.BoolVar("") for _ in range(points)]
    left = solver.NumVar(0.0, float(points), "")
    whole = solver.Constraint(float(points), float(points))
    whole.SetCoefficient(left, 1.0)
    tested = np.bincount(rows.ravel(), minlength=cells)
    # ct - sum br - (p + epsilon) left <= 0 and ct - sum br - (p - epsilon) left >= 0
    upper = [solver.Constraint(-solver.infinity(), -float(count)) for count in tested]
    lower = [solver.Constraint(-float(count), solver.infinity()) for count in tested]
    for cell, portion in enumerate(portions):
        upper[cell].SetCoefficient(left, -float(portion + epsilon))
        lower[cell].SetCoefficient(left, -float(portion - epsilon))
    objective = solver.Objective()
    for variable, cells_of_point in zip(removed, rows.tolist(), strict=True):
        whole.SetCoefficient(variable, 1.0)
        objective.SetCoefficient(variable, 1.0)
        for cell in cells_of_point:
            upper[cell].SetCoefficient(variable, -1.0)
            lower[cell].SetCoefficient(variable, -1.0)
    objective.SetMinimization()
    start = time.perf_counter()
    status = solver.Solve()
    seconds = time.perf_counter() - start
    found = status in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE)
    return {
        "seconds": seconds,
        "kept": points - objective.Value() if found else None,
        "bound": points - objective.BestBound(),
        "status": {0: "Optimal", 1: "Feasible", 6: "Not solved"}.get(status, str(status)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", type=Path, help="the problem, as reshape.py table writes it (.npz)")
    parser.add_argument("solver", choices=SOLVERS)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the solver (default 300)")
    options = parser.parse_args()
    if not options.problem.is_file():
        parser.error(f"expected a problem file, got {options.problem}; reshape.py table writes one")
    library = LIBRARIES.get(options.solver, "highspy")
    if find_spec(library) is None:
        parser.error(f"{options.solver} needs {library}, which is not installed; use a Python that has it")
    with np.load(options.problem) as stored:
        rows, portions = rows_of(stored)
        epsilon = float(stored["epsilon"])
    if options.solver == "scip":
        found = with_scip(rows, portions, epsilon, options.limit)
    elif options.solver == "clarabel":
        found = with_clarabel(rows, portions, epsilon, options.limit)
    else:
        found = with_highs(rows, portions, epsilon, options.solver, options.limit)
    print(json.dumps({"solver": options.solver, **found}), flush=True)


if __name__ == "__main__":
    main()
