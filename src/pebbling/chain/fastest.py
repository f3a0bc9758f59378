"""The fastest plan for a hierarchy of tiers: a bound, a plan, and where they differ the proof.

In this order, until bound and plan meet: the bound from ``prices`` and the plan that keeps close to
it; a sharper bound from lengths modulo their period; the exact dynamic programme, which always ends
with the fastest plan, unless it would take too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from .descent import descend
from .excess import Excess, period
from .lengths import Exhausted
from .prices import Market, Prices
from .tiers import Choice, Node, Problem, total_time

METHODS = ("auto", "exact", "hull")

_STEPS = 100_000  # the exact dynamic programme is left out for more steps than these
_EFFORT = 1.5e9  # elements, about five seconds
_QUICK = 1e8


@dataclass(frozen=True)
class Plan:
    """The choices of a plan, its time, and a lower bound on the time of every plan, in units of the problem."""

    choices: dict[Node, Choice]
    time: int
    bound: int


def fastest(problem: Problem, method: str = "auto") -> Plan:
    """The fastest plan; or, with ``"hull"`` and where it would take too long, a good one with a bound."""
    if problem.steps <= 1 or not problem.levels:
        time = problem.leaf.time(problem.steps) if problem.steps else 0
        assert time is not None
        return Plan({}, time, time)
    market = Market(problem)
    prices = market.right_for(problem.root)
    choices = descend(market)
    plan = Plan(choices, total_time(problem, choices), ceil(prices.bound(problem.root)))
    if plan.time > plan.bound and method != "hull" and 1 < (modulus := period(prices)) < problem.steps:
        plan = _improved(plan, prices, modulus, _QUICK)
    if plan.time > plan.bound and (method == "exact" or (method == "auto" and problem.steps <= _STEPS)):
        plan = _improved(plan, prices, 0, inf if method == "exact" else _EFFORT)
    return plan


def _improved(plan: Plan, prices: Prices, modulus: int, effort: float) -> Plan:
    """The better of a plan and the one with the least excess, and the bound that follows."""
    root = prices.problem.root
    bound = prices.price * root.steps - prices.offer(root, 0)[0]
    slack = plan.time * prices.scale - bound
    try:
        excess = Excess(prices, slack, modulus, effort)
    except Exhausted:
        return plan
    choices = excess.plan() if excess.least < slack else None
    if choices is not None and (time := total_time(prices.problem, choices)) < plan.time:
        plan, slack = Plan(choices, time, plan.bound), time * prices.scale - bound
    proven = not modulus or slack - excess.least <= excess.rounding
    return Plan(plan.choices, plan.time, plan.time if proven else -((-bound - excess.least) // prices.scale))
