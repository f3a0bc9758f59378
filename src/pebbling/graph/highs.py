"""Linear and integer programmes solved by HiGHS; the extra ``solver`` brings it in."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from .indexed import Floats
from .linear import Programme


@dataclass(frozen=True, eq=False)
class Answer:
    """Values of the variables, if any were found, and a lower bound on the price of all that there could be."""

    values: Floats | None
    bound: float
    infeasible: bool = False


def available() -> bool:
    """Whether HiGHS is installed."""
    return find_spec("highspy") is not None


def relaxed(problem: Programme, seconds: float, seed: int) -> Answer:
    """The programme with values between 0 and 1; the bound is proven by weak duality."""
    highs = _model(problem, seconds, seed, whole=False)
    highs.run()
    status = str(highs.getModelStatus()).rsplit(".", 1)[-1]
    if status == "kInfeasible":
        return Answer(None, np.inf, True)
    solution = highs.getSolution()
    bound = problem.bound(np.array(solution.row_dual)) if solution.dual_valid else -np.inf
    return Answer(np.array(solution.col_value) if solution.value_valid else None, bound)


def whole(problem: Programme, seconds: float, seed: int, nodes: int) -> Answer:
    """The programme with what is alive at each point as 0 or 1, by branch and cut over at most so many nodes."""
    highs = _model(problem, seconds, seed, whole=True)
    highs.setOptionValue("mip_max_nodes", nodes)
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", 1e-6)
    highs.run()
    status = str(highs.getModelStatus()).rsplit(".", 1)[-1]
    if status == "kInfeasible":
        return Answer(None, np.inf, True)
    solution = highs.getSolution()
    values = np.array(solution.col_value)
    found = solution.value_valid and len(values) == len(problem.price)
    # Branch and cut works to a tolerance of a millionth: that much is taken off what it claims.
    return Answer(values if found else None, float(highs.getInfo().mip_dual_bound) - 2e-6)


def _model(problem: Programme, seconds: float, seed: int, whole: bool) -> Any:
    import highspy

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(problem.price), len(problem.limit)
    model.col_cost_, model.col_lower_, model.col_upper_ = problem.price, problem.lower, problem.upper
    model.row_lower_ = np.full(len(problem.limit), -np.inf)
    model.row_upper_ = problem.limit
    order = np.argsort(problem.row, kind="stable")
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.searchsorted(problem.row[order], np.arange(len(problem.limit) + 1))
    model.a_matrix_.index_ = problem.column[order]
    model.a_matrix_.value_ = problem.coefficient[order]
    if whole:
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in problem.whole]
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "time_limit": max(seconds, 0.01),
    }.items():
        highs.setOptionValue(name, value)
    highs.passModel(model)
    return highs
