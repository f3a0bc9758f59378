"""The search for the price at which a number of steps is one of the best.

Best lengths grow with the price. So the price is first enclosed between two that differ by
``forward``, then found from chords of the convex hull of the least times: each chord's slope is the
next price, and each price gives a vertex of the hull (Eisner and Severance, J. ACM 23, 1976).
"""

from __future__ import annotations

from fractions import Fraction
from math import inf
from typing import NamedTuple

from .prices import Prices
from .problem import PlanNode, TierProblem


class Vertex(NamedTuple):
    """A number of steps and the least time for it, where the hull is exact."""

    steps: int
    time: Fraction


class Market:
    """The prices of one problem, each found once."""

    def __init__(self, problem: TierProblem) -> None:
        self.problem = problem
        self._known: dict[tuple[Fraction, int, int], Prices] = {}

    def right_for(self, node: PlanNode) -> Prices:
        """Prices at which the node's number of steps is one of the best."""
        low, high = self._enclose(node)
        prices = self._at(low, node)
        if low == high:
            return prices
        short, long = _vertex(prices, node, -1), _vertex(self._at(high, node), node, 1)
        while side := (prices := self._at((long.time - short.time) / (long.steps - short.steps), node)).side(node):
            vertex = _vertex(prices, node, side)
            short, long = (vertex, long) if side < 0 else (short, vertex)
        return prices

    def _enclose(self, node: PlanNode) -> tuple[Fraction, Fraction]:
        """The right price, twice, or one too low and one too high that differ by ``forward``."""
        leaf, forward = self.problem.leaf, self.problem.forward
        floor = Fraction(leaf.turn + leaf.read % forward)  # too low, and in line with the kinks of binomial times
        low, high, middle = 0, 0, 1
        while high - low != 1:
            price = floor + middle * forward
            side = self._at(price, node, node.steps).side(node)
            if side == 0:
                return price, price
            low, high = (middle, high) if side < 0 else (low, middle)
            middle = (low + high) // 2 if high else 2 * low
        return floor + low * forward, floor + high * forward

    def _at(self, price: Fraction, node: PlanNode, longest: float = inf) -> Prices:
        """Prices for a node, in full unless they are seen to be too high for ``longest`` steps."""
        key = (price, node.level, node.slots)
        prices = self._known.get(key)
        if prices is None:
            prices = Prices(self.problem, node, price.numerator, price.denominator, longest)
            if longest == inf or prices.side(node) <= 0:
                self._known[key] = prices
        return prices


def _vertex(prices: Prices, node: PlanNode, side: int) -> Vertex:
    """The shortest (1) or the longest (-1) of the best lengths."""
    value, least, most = prices.offer(node, 0)
    steps = least if side > 0 else most
    return Vertex(steps, Fraction(prices.price * steps - value, prices.scale))
