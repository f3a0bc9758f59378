"""The fastest plan for a hierarchy of tiers: a bound, a plan, and where they differ the proof.

In this order, until bound and plan meet: the bound from ``prices`` and the plan that keeps close to
it; a sharper bound from lengths modulo their period; the exact dynamic programme, which always ends
with the fastest plan, unless it would take too long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from .descent import descend
from .excess import Excess, Exhausted, period
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
    """The fastest plan, or with ``"hull"``, or where that takes too long, a good one with a bound."""
    market = Market(problem)
    prices = market.right_for(problem.root)
    choices = descend(market)
    plan = Plan(choices, total_time(problem, choices), ceil(prices.bound(problem.root)))
    if plan.time > plan.bound and method != "hull":
        plan = _sharpened(plan, prices)
    if plan.time > plan.bound and (method == "exact" or (method == "auto" and problem.steps <= _STEPS)):
        plan = _solved(plan, prices, inf if method == "exact" else _EFFORT)
    return plan


def _sharpened(plan: Plan, prices: Prices) -> Plan:
    modulus = period(prices)
    if modulus < 2:
        return plan
    try:
        excess = Excess(prices, _slack(plan, prices), modulus, _QUICK)
    except Exhausted:
        return plan
    return Plan(plan.choices, plan.time, _bound(prices, excess.least))


def _solved(plan: Plan, prices: Prices, effort: float) -> Plan:
    try:
        excess = Excess(prices, _slack(plan, prices), effort=effort)
    except Exhausted:
        return plan
    choices = excess.plan()
    time = total_time(prices.problem, choices)
    return Plan(choices, time, time)


def _slack(plan: Plan, prices: Prices) -> int:
    """By how much the plan exceeds the bound, in the whole numbers of the prices."""
    root = prices.problem.root
    return plan.time * prices.scale - (prices.price * root.steps - prices.offer(root, 0)[0])


def _bound(prices: Prices, excess: int) -> int:
    root = prices.problem.root
    return -((prices.offer(root, 0)[0] - prices.price * root.steps - excess) // prices.scale)
