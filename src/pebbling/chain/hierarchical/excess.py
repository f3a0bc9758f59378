"""By how much a plan must exceed the lower bound of ``prices``: the proof that a plan is the fastest.

At fixed prices a plan of n steps takes the bound plus what its parts fall short of the best offers:
for each choice that is not the best one, and for each leaf that has not one of the best lengths. So
a plan within ``slack`` of the bound has no part that falls short by more, and a dynamic programme
over the excess of every part by its length need look only at lengths with at most that excess. It
has one curve for each slot and each depth of the prices, of the few lengths that matter there.

Over all such lengths (``Lengths``) it is exact. Over lengths modulo the number of steps by which
two ways of equal value differ (``Remainders``) it is a lower bound, nearly always the least excess
itself, at a cost that does not depend on the number of steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from math import gcd, inf
from typing import Any

import numpy as np

from .. import binomial
from .lengths import Lengths
from .prices import Prices
from .problem import DOWN, NodeChoice, PlanNode
from .remainders import Remainders


class Excess:
    """The curves of all parts at given prices, for plans within ``slack`` of their bound.

    Without a modulus they are exact; after so much ``effort`` it gives up and raises ``Exhausted``.
    """

    def __init__(self, prices: Prices, slack: int, modulus: int = 0, effort: float = inf) -> None:
        self.prices, self.problem, self.slack, self.modulus = prices, prices.problem, slack, modulus
        self.unit = max(1, slack >> 50)  # so that floats hold every excess, and exactly where it is 1
        self.rounding = 0 if self.unit == 1 else slack >> 40
        tolerance = self.rounding / self.unit
        most, steps = slack / self.unit + tolerance, self.problem.steps
        self.curves: Any = (
            Remainders(modulus, steps, most, tolerance, effort) if modulus else Lengths(steps, most, effort)
        )
        self._leaves: dict[int, Any] = {}
        self._levels: list[list[tuple[list[Any], list[Any]]]] = []
        for level in range(len(self.problem.levels)):
            self._levels.append([([], [])] * self._depths(level))
            for depth in reversed(range(len(self._levels[level]))):
                self._levels[level][depth] = self._columns(level, depth)

    @property
    def least(self) -> int | None:
        """No plan for all steps has less excess, to 12 digits where floats do not hold it; ``None`` above the slack."""
        least = self.curves.least(self.curve(self.problem.root, 0), self.problem.steps)
        return min(self.slack, int(Fraction(least) * self.unit)) if least < inf else None

    def plan(self) -> dict[PlanNode, NodeChoice] | None:
        """The choices of a plan with the least excess; ``None`` where remainders promised too much."""
        choices: dict[PlanNode, NodeChoice] = {}
        todo = [(self.problem.root, 0)]
        while todo:
            node, depth = todo.pop()
            if node.level >= 0 and node not in choices:
                choice = self._choice(node, depth)
                if choice is None:
                    return None
                choices[node] = choice
                right, left = self.problem.parts(node, choice)
                todo += [(right, depth)] if left is None else [(right, depth), (left, depth + 1)]
        return choices

    def curve(self, node: PlanNode, depth: int) -> Any:
        """The curve of a node at a depth of the prices."""
        if node.level < 0:
            if depth not in self._leaves:
                self._leaves[depth] = self._leaf(depth)
            return self._leaves[depth]
        depths = self._levels[node.level]
        if node.slots == 0 or depth >= len(depths):
            return self.curve(self.problem.below(node), depth)
        curves = depths[depth][node.kept]
        return curves[min(node.slots, len(curves) - 1)]

    def _choice(self, node: PlanNode, depth: int) -> NodeChoice | None:
        if node.steps == 1 or depth >= len(self._levels[node.level]):
            return DOWN
        down, split = self._shortfalls(node, depth)
        left = self.curve(node._replace(kept=True), depth + 1)
        right = self.curve(self.problem.node(0, node.level, node.slots - 1), depth)
        length, excess, times = self.curves.lowest(left, right, node.steps)
        below = self.curves.at(self.curve(self.problem.below(node), depth), node.steps)
        if below == excess == inf:
            return None
        if below + down <= excess + split:
            return DOWN
        times = 1 if node.kept or not self._plenty(node.level) else min(times, self.problem.longest_run)
        return NodeChoice(times, length, min(node.slots, self._enough(node.level, depth + 1)))

    def _shortfalls(self, node: PlanNode, depth: int) -> tuple[float, float]:
        """What a node falls short of its best offer if left to the faster levels, and if split."""
        best, below = self.prices.offer(node, depth)[0], self.prices.below(node.level, depth)[0]
        return (best - below) / self.unit, (best - self.prices.split(node, depth)[0]) / self.unit

    def _depths(self, level: int) -> int:
        """How often the price may be lowered: at most once a step, and while splits stay within the slack."""
        depths, read = len(self.prices.columns[level]), self.problem.levels[level].read * self.prices.scale
        while depths < self.problem.steps and read - self.prices.below(level, depths + 1)[0] <= self.slack:
            depths += 1
        return min(depths, self.problem.steps)

    def _plenty(self, level: int) -> bool:
        """Whether slots of a level never run out."""
        return self.problem.levels[level].slots >= self.problem.steps

    def _enough(self, level: int, depth: int) -> int:
        """The number of slots beyond which a kept node gains nothing."""
        if self._plenty(level):
            return self.problem.steps
        return len(self._levels[level][depth][True]) - 1 if depth < len(self._levels[level]) else 1

    def _columns(self, level: int, depth: int) -> tuple[list[Any], list[Any]]:
        """The open and the kept curves for 0, 1, … slots; slots after the last change nothing."""
        curves, slots, steady = self.curves, self.problem.levels[level].slots, self._steady(level, depth)
        below = self.curve(PlanNode(0, level, 0, False), depth)
        opened, kept, before = [below], [below], None
        if self._plenty(level) and steady < inf:
            left = self.curve(PlanNode(0, level, slots, True), depth + 1)
            down, split = self._shortfalls(PlanNode(0, level, slots, False), depth)
            opened.append(curves.chained(left, split, below, down))
            down, split = self._shortfalls(PlanNode(0, level, slots, True), depth)
            return opened, [below, curves.either(below, down, curves.joined(left, opened[1]), split)]
        for number in range(1, slots + 1):
            left = self.curve(PlanNode(0, level, number, True), depth + 1)
            joined = curves.joined(left, opened[-1])
            for column, is_kept in ((opened, False), (kept, True)):
                down, split = self._shortfalls(PlanNode(0, level, number, is_kept), depth)
                column.append(curves.either(below, down, joined, split))
            if number > steady and left is before and curves.same(*opened[-2:]) and curves.same(*kept[-2:]):
                break
            before = left
        return opened, kept

    def _steady(self, level: int, depth: int) -> float:
        """The number of slots from which on the offers are worth the same."""
        if depth >= len(self.prices.columns[level]):
            return 0
        columns = self.prices.columns[level][depth]
        return max(column.last for column in columns) if all(column.growth[0] == 0 for column in columns) else inf

    def _leaf(self, depth: int) -> Any:
        """The curve of a leaf: no excess for the best lengths, and straight from one beta(slots, r) to the next."""
        leaf, prices = self.problem.leaf, self.prices
        value, least, most = prices.below(0, depth)
        price = prices.price - depth * self.problem.forward * prices.scale

        def excess(steps: int) -> int:
            time = leaf.time(steps)
            assert time is not None
            return time * prices.scale - price * steps + value

        lowest, highest = self.curves.reach(least, most) if leaf.slots else (1, 1)
        best = min(least, highest)
        if excess(best) > self.slack:
            return self.curves.leaf(best, np.empty(0), least, most)
        first = lowest + bisect_left(range(lowest, best), -self.slack, key=lambda steps: -excess(steps))
        last = best + bisect_right(range(best + 1, highest + 1), self.slack, key=excess)
        bends = {first, last}
        if leaf.slots:
            ranks = range(binomial.repeats(first, leaf.slots), binomial.repeats(last, leaf.slots))
            bends.update(binomial.beta(leaf.slots, rank) for rank in ranks)
        at = sorted(bends)
        heights = [excess(steps) / self.unit for steps in at]
        curve = np.interp(np.arange(last - first + 1), [steps - first for steps in at], heights)
        return self.curves.leaf(first, curve, least, most)


def period(prices: Prices) -> int:
    """The number of steps by which ways of equal value differ, 0 if there are none, from the root on."""
    problem, number = prices.problem, 0
    todo, seen = [(problem.root, 0)], set()
    while todo:
        node, depth = todo.pop()
        if node.level >= 0 and depth < len(prices.columns[node.level]):
            last = prices.columns[node.level][depth][node.kept].last
            node = node._replace(slots=min(node.slots, last + 1))  # each slot more does the same again
        if node.level < 0 or (node, depth) in seen:
            continue
        seen.add((node, depth))
        best, below, split = prices.offer(node, depth), prices.below(node.level, depth), prices.split(node, depth)
        if below[0] == split[0]:
            number = gcd(number, split[1] - below[1])
        if below[0] == best[0]:
            todo.append((problem.below(node), depth))
        if split[0] == best[0]:
            right = problem.node(0, node.level, node.slots - 1)
            todo += [(node._replace(kept=True), depth + 1), (right, depth)]
    return number
