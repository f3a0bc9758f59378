"""The fastest plan for a hierarchy of tiers: a bound, a plan, and where they differ the proof.

In this order, until bound and plan meet: the bound from ``prices`` and the plan that ``descent``
makes of it; the least ``excess`` over that bound for lengths modulo their period, and a plan from
it; the least excess for all lengths, which is exact, unless it would take too long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf

from .descent import descend
from .excess import Excess, period
from .lengths import Exhausted
from .price_search import Market
from .prices import Prices
from .problem import NodeChoice, PlanNode, TierProblem, total_time

METHODS = ("auto", "exact", "hull")

_STEPS = 100_000  # the exact dynamic programme is left out for more steps than these
_EFFORT = 1.5e9  # elements, about five seconds
_QUICK = 2e8
_WIDER = 4


@dataclass(frozen=True)
class Found:
    """The choices of a plan, its time, and a lower bound on the time of every plan, in units of the problem."""

    choices: dict[PlanNode, NodeChoice]
    time: int
    bound: int


def fastest(problem: TierProblem, method: str = "auto") -> Found:
    """The fastest plan; or, with ``"hull"`` and where it would take too long, a good one with a bound."""
    if problem.steps <= 1 or not problem.levels:
        time = problem.leaf.time(problem.steps) if problem.steps else 0
        assert time is not None
        return Found({}, time, time)
    market = Market(problem)
    prices = market.right_for(problem.root)
    choices = descend(market)
    plan = Found(choices, total_time(problem, choices), ceil(prices.bound(problem.root)))
    if plan.time > plan.bound and method != "hull" and 1 < (modulus := period(prices)) < problem.steps:
        plan = _improved(plan, prices, modulus, _QUICK)
    if plan.time > plan.bound and (method == "exact" or (method == "auto" and problem.steps <= _STEPS)):
        plan = _improved(plan, prices, 0, inf if method == "exact" else _EFFORT)
    return plan


def _improved(plan: Found, prices: Prices, modulus: int, effort: float) -> Found:
    """The better of a plan and the one with the least excess, and the bound that follows.

    The slack starts small and widens until there is a plan within it, since the work grows with it.
    """
    problem, scale = prices.problem, prices.scale
    base = prices.price * problem.steps - prices.offer(problem.root, 0)[0]
    excess, wide = None, problem.forward * scale
    while excess is None or excess.least is None:
        slack, wide = min(wide, plan.time * scale - base), _WIDER * wide
        try:
            excess = Excess(prices, slack, modulus, effort)
        except Exhausted:
            return plan
        effort = excess.curves.effort
        least = slack if excess.least is None else excess.least
        plan = replace(plan, bound=max(plan.bound, -((-base - least) // scale)))
    choices = excess.plan() if plan.time > plan.bound else None
    if choices is not None and (time := total_time(problem, choices)) < plan.time:
        plan = replace(plan, choices=choices, time=time)
    proven = not modulus or plan.time * scale - base - least <= excess.rounding
    return replace(plan, bound=plan.time) if proven else plan
