"""The plan whose compiled program fits the budget: planned by the model, measured by XLA, planned again.

XLA takes another number of bytes than the graph says: it fuses, reuses and packs. So a plan is made for a budget of
the graph, its program is compiled, and what XLA takes says for what budget to plan next. If no such plan fits, that
with the smallest peak of all is compiled, and what it takes is the smallest budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import BudgetError
from ...graph import Graph, GraphPlan, smallest, solve
from ...units import format_bytes
from .plan import FunctionPlan

_TRIES = 3
_CLOSE = 0.88
"""A plan that takes so much of the budget is not improved."""
_NOTHING = 0.01
"""Nor is one that repeats so little."""

Measure = Callable[[GraphPlan | None], int]


@dataclass
class Candidates:
    """The search for a plan of one graph; what was measured stays for other budgets."""

    graph: Graph
    time_limit: float
    measured: list[tuple[int, int, GraphPlan]] = field(default_factory=list)
    """The budget of the graph, the bytes that XLA took, the plan."""
    plain: int | None = None
    compiled: int = 0

    def plan(self, memory: float | str, limit: int, measure: Measure) -> FunctionPlan:
        """The plan for a budget; ``measure(None)`` is what the function takes without one."""
        self.compiled = 0
        whole = solve(self.graph, None)
        if self.plain is None:
            self.compiled += 1
            self.plain = measure(None)
        if self.plain <= limit:
            return FunctionPlan(whole, limit, self.plain, self.plain, self.compiled)
        floor = smallest(self.graph)
        low, high = floor, whole.peak  # what to ask of the graph lies between
        asked = int(0.99 * whole.peak * limit / self.plain)
        failed = 0
        for _ in range(_TRIES):
            asked = min(max(asked, low), high - 1)
            if high <= floor:
                break
            taken, plan = self._measured(asked, measure)
            if taken > limit:
                high = max(plan.peak, floor)
                asked = plan.peak - int(1.1 * (taken - limit) + 0.03 * failed * limit)
                failed += 1
            elif taken >= _CLOSE * limit or plan.overhead < _NOTHING:
                break
            else:
                low = asked
                asked += int(0.95 * (limit - taken))
        if all(taken > limit for _, taken, _ in self.measured):
            taken, _ = self._measured(floor, measure)
            if taken <= limit and high < whole.peak:
                self._measured((floor + high) // 2, measure)  # The one with the smallest peak may repeat far too much.
        fitting = [(plan, taken) for _, taken, plan in self.measured if taken <= limit]
        if not fitting:
            raise _too_little(memory, limit, min(t for _, t, _ in self.measured), self.plain)
        best, taken = min(fitting, key=lambda pair: pair[0].overhead)
        return FunctionPlan(best, limit, taken, self.plain, self.compiled)

    def _measured(self, asked: int, measure: Measure) -> tuple[int, GraphPlan]:
        known = next(((taken, plan) for budget, taken, plan in self.measured if budget == asked), None)
        if known is not None:
            return known
        below = [plan for budget, _, plan in self.measured if budget < asked]
        start = min(below, key=lambda plan: plan.overhead, default=None)
        plan = solve(self.graph, asked, time_limit=self.time_limit, start=start)
        taken = measure(plan)
        self.compiled += 1
        self.measured.append((asked, taken, plan))
        return taken, plan


def _too_little(memory: float | str, limit: int, least: int, plain: int) -> BudgetError:
    return BudgetError(
        f"memory={memory!r} is {format_bytes(limit)}, and the compiled gradient takes at least {format_bytes(least)} "
        f"({least} bytes), results and gradients included, where it takes {format_bytes(plain)} without a plan",
        minimum=least,
    )
