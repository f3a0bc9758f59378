"""By how much a plan must exceed the lower bound of ``prices``: the proof that a plan is the fastest.

At fixed prices a plan of n steps takes the bound plus what its parts fall short of the best offers:
for each choice that is not the best one, and for each leaf that has not one of the best lengths. So
a plan within ``slack`` of the bound has no part that falls short by more, and a dynamic programme
over the excess of every part by its length need look only at lengths with at most that excess. It
has one curve for each slot and each depth of the prices, of the few lengths that matter there.

Lengths may be taken modulo some number of steps instead: plans of n steps are among those whose
length leaves the same remainder, so the least excess of those is a lower bound (Gomory's group
relaxation, 1965). With the number of steps by which two ways of equal value differ as modulus it is
nearly always the least excess itself, at a cost that does not depend on the number of steps.
"""

from __future__ import annotations

from math import gcd, inf
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import binomial
from .prices import Prices
from .tiers import DOWN, Choice, Node


class Exhausted(Exception):
    """More work than was allowed."""


class Curve(NamedTuple):
    """The least excess of a part by its length, from ``start`` steps on; infinite where it is above the slack."""

    start: int
    excess: np.ndarray

    def at(self, steps: int) -> float:
        """The least excess for one length."""
        inside = 0 <= steps - self.start < len(self.excess)
        return float(self.excess[steps - self.start]) if inside else inf


_NOTHING = Curve(0, np.empty(0))
_SMALL = 4096


class Curves:
    """Sums and minima of curves; what exceeds the slack or the longest length is dropped."""

    def __init__(self, slack: float, longest: int, modulus: int | None, effort: float) -> None:
        self.slack, self.longest, self.modulus, self.effort = slack, longest, modulus, effort

    def trimmed(self, start: int, excess: np.ndarray) -> Curve:
        """A curve without what does not matter."""
        if self.modulus is not None:
            start, excess = 0, _folded(start, excess, self.modulus)
        else:
            excess = excess[: max(0, self.longest + 1 - start)]
        excess = np.where(excess <= self.slack, excess, inf)
        finite = np.flatnonzero(excess < inf)
        if len(finite) == 0:
            return _NOTHING
        return Curve(start + int(finite[0]), excess[finite[0] : finite[-1] + 1])

    def either(self, one: Curve, above: float, two: Curve, beyond: float) -> Curve:
        """The better of two ways, whose curves lie ``above`` and ``beyond`` what is needed here."""
        start = min(curve.start for curve in (one, two))
        stop = max(curve.start + len(curve.excess) for curve in (one, two))
        excess = np.full(stop - start, inf)
        for curve, higher in ((one, above), (two, beyond)):
            part = excess[curve.start - start : curve.start - start + len(curve.excess)]
            np.minimum(part, curve.excess + higher, out=part)
        return self.trimmed(start, excess)

    def joined(self, one: Curve, two: Curve) -> Curve:
        """One part after the other: the least sum for each length of both together.

        It is taken where one of the two bends upwards: elsewhere a step more for one and a step
        less for the other does not raise the sum in one of both directions.
        """
        if len(one.excess) == 0 or len(two.excess) == 0:
            return _NOTHING
        if len(one.excess) * len(two.excess) <= _SMALL:
            return self.trimmed(one.start + two.start, _small_sums(one.excess, two.excess))
        excess = np.full(len(one.excess) + len(two.excess) - 1, inf)
        for bent, other in ((one.excess, two.excess), (two.excess, one.excess)):
            bends = _bends(bent)
            self._spend(len(bends) * (2000 + len(other)))
            for first in bends:
                part = excess[first : first + len(other)]
                np.minimum(part, bent[first] + other, out=part)
        return self.trimmed(one.start + two.start, excess)

    def chained(self, link: Curve, end: Curve) -> Curve:
        """Any number of links in a row, and an end."""
        if len(link.excess) == 0:
            return end
        if self.modulus is not None:
            while not _same(end, longer := self.either(end, 0.0, self.joined(link, end), 0.0)):
                end = longer
            return end
        self._spend(self.longest * (len(link.excess) + 5000 / link.start))
        pad, block = link.start + len(link.excess) - 1, link.start
        excess = np.full(pad + self.longest + 1, inf)
        excess[pad + end.start : pad + end.start + len(end.excess)] = end.excess
        backwards = link.excess[::-1, None]
        for stop in range(pad + end.start + 2 * block, len(excess) + block, block):
            after = excess[stop - block : stop]
            before = sliding_window_view(excess[stop - block - pad : stop - 2 * block + len(after)], len(after))
            np.minimum(after, (before + backwards).min(axis=0), out=after)
        return self.trimmed(0, excess[pad:])

    def _spend(self, effort: float) -> None:
        self.effort -= effort
        if self.effort < 0:
            raise Exhausted


def _small_sums(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The least sum for each length, from all pairs; the sums of row i begin i places further right."""
    rows, columns = len(one), len(two)
    sums = np.full((rows, columns + rows), inf)
    sums[:, :columns] = one[:, None] + two
    return sums.ravel()[: rows * (columns + rows - 1)].reshape(rows, columns + rows - 1).min(axis=0)


def _folded(start: int, excess: np.ndarray, modulus: int) -> np.ndarray:
    """The least excess for each remainder of the length."""
    before = start % modulus
    after = -(before + len(excess)) % modulus
    return np.pad(excess, (before, after), constant_values=inf).reshape(-1, modulus).min(axis=0, initial=inf)


def _bends(excess: np.ndarray) -> list[int]:
    padded = np.concatenate(([inf], excess, [inf]))
    finite = np.flatnonzero(excess < inf)
    rise, rise_before = padded[finite + 2] - padded[finite + 1], padded[finite + 1] - padded[finite]
    return finite[~(rise <= rise_before)].tolist()


class Excess:
    """The curves of all parts at given prices, for plans within ``slack`` of their bound."""

    def __init__(self, prices: Prices, slack: int, modulus: int | None = None, effort: float = inf) -> None:
        self.prices, self.problem, self.slack, self.modulus = prices, prices.problem, slack, modulus
        self.unit = max(1, slack >> 50)  # so that floats hold every excess, exactly where it is 1
        tolerance = 0.0 if self.unit == 1 else slack / self.unit * 2.0**-40
        self.curves = Curves(slack / self.unit + tolerance, self.problem.steps, modulus, effort)
        self._leaves: dict[int, Curve] = {}
        self._levels: list[list[tuple[list[Curve], list[Curve]]]] = []
        for level in range(len(self.problem.levels)):
            self._levels.append([([], [])] * self._depths(level))
            for depth in reversed(range(len(self._levels[level]))):
                self._levels[level][depth] = self._columns(level, depth)

    @property
    def least(self) -> int:
        """The least excess of a plan for all steps, rounded down where it is not exact."""
        steps = self.problem.steps if self.modulus is None else self.problem.steps % self.modulus
        excess = min(self.curve(self.problem.root, 0).at(steps), self.slack / self.unit)
        return int(excess) if self.unit == 1 else int(excess * (1 - 2.0**-40)) * self.unit

    def curve(self, node: Node, depth: int) -> Curve:
        """The curve of a node at a depth of the prices."""
        if node.level < 0:
            return self._leaf(depth)
        depths = self._levels[node.level]
        if node.slots == 0 or depth >= len(depths):
            return self.curve(self.problem.below(node), depth)
        curves = depths[depth][node.kept]
        return curves[min(node.slots, len(curves) - 1)]

    def shortfalls(self, node: Node, depth: int) -> tuple[float, float]:
        """By how much the node falls short if left to the faster levels, and if split."""
        level, prices = self.problem.levels[node.level], self.prices
        best = prices.offer(node, depth)[0]
        left = prices.offer(node._replace(kept=True), depth + 1)[0]
        right = prices.offer(self.problem.node(0, node.level, node.slots - 1), depth)[0]
        transfers = (level.read + (0 if node.kept else level.write)) * prices.scale
        down = best - prices.below(node.level, depth)[0]
        return down / self.unit, (best - left - right + transfers) / self.unit

    def _depths(self, level: int) -> int:
        """How often the price must be lowered until no split of the level stays within the slack."""
        depths, read = len(self.prices.columns[level]), self.problem.levels[level].read * self.prices.scale
        while read - self.prices.below(level, depths + 1)[0] <= self.slack:
            depths += 1
        return depths

    def _columns(self, level: int, depth: int) -> tuple[list[Curve], list[Curve]]:
        """The open and the kept curves for 0, 1, … slots; slots after the last change nothing."""
        slots = self.problem.levels[level].slots
        steady = self._steady(level, depth)
        below = self.curve(Node(0, level, 0, False), depth)
        if slots >= self.problem.steps and steady == 0:
            return self._plenty(below, level, depth)
        opened, kept, before = [below], [below], _NOTHING
        for number in range(1, slots + 1):
            left = self.curve(Node(0, level, number, True), depth + 1)
            joined = self.curves.joined(left, opened[-1])
            for curves, is_kept in ((opened, False), (kept, True)):
                down, split = self.shortfalls(Node(0, level, number, is_kept), depth)
                curves.append(self.curves.either(below, down, joined, split))
            if number > steady and left is before and _same(*opened[-2:]) and _same(*kept[-2:]):
                break
            before = left
        return opened, kept

    def _steady(self, level: int, depth: int) -> float:
        """The number of slots from which on the offers are worth the same."""
        if depth >= len(self.prices.columns[level]):
            return 0
        columns = self.prices.columns[level][depth]
        return max(column.last for column in columns) if all(column.growth[0] == 0 for column in columns) else inf

    def _plenty(self, below: Curve, level: int, depth: int) -> tuple[list[Curve], list[Curve]]:
        """The same where slots never run out: any number of snapshots in a row."""
        slots = self.problem.levels[level].slots
        left = self.curve(Node(0, level, slots, True), depth + 1)
        down, split = self.shortfalls(Node(0, level, slots, False), depth)
        link = self.curves.trimmed(left.start, left.excess + split)
        opened = self.curves.chained(link, self.curves.trimmed(below.start, below.excess + down))
        down, split = self.shortfalls(Node(0, level, slots, True), depth)
        return [below, opened], [below, self.curves.either(below, down, self.curves.joined(left, opened), split)]

    def _leaf(self, depth: int) -> Curve:
        if depth not in self._leaves:
            self._leaves[depth] = self._leaf_curve(depth)
        return self._leaves[depth]

    def _leaf_curve(self, depth: int) -> Curve:
        """The curve of a leaf: straight between lengths beta(slots, r), where it bends by ``forward``."""
        if self.problem.leaf.slots == 0:
            return self.curves.trimmed(1, np.zeros(1))
        _, least, most = self.prices.below(0, depth)
        longest = least + self.modulus - 1 if self.modulus else max(least, self.problem.steps)
        shorter, longer = self._flank(depth, least, False), np.empty(0)
        if most < longest:
            longer = self._flank(depth, most, True)
        excess = np.concatenate((shorter[::-1], np.zeros(min(most, longest) - least + 1), longer))
        return self.curves.trimmed(least - len(shorter), excess)

    def _flank(self, depth: int, length: int, longer: bool) -> np.ndarray:
        """The excess of leaves 1, 2, … steps longer (or shorter) than the last of the best lengths."""
        leaf, scale = self.problem.leaf, self.prices.scale
        price = self.prices.price - depth * self.problem.forward * scale
        rank = binomial.repeats(length, leaf.slots) + longer
        room = self.modulus or (self.problem.steps if longer else length - 1)
        pieces, excess = [np.empty(0)], 0
        while room and rank:
            rise = abs(scale * (leaf.turn + leaf.read + rank * leaf.forward) - price)
            end = binomial.beta(leaf.slots, rank if longer else rank - 1)
            number = min(abs(end - length), room, (self.slack - excess) // rise)
            pieces.append(excess / self.unit + rise / self.unit * np.arange(1, number + 1))
            if number < abs(end - length):
                break
            excess, length, room = excess + rise * number, end, room - number
            rank += 1 if longer else -1
        return np.concatenate(pieces)

    def plan(self) -> dict[Node, Choice]:
        """The choices of a plan with the least excess."""
        choices: dict[Node, Choice] = {}
        todo = [(self.problem.root, 0)]
        while todo:
            node, depth = todo.pop()
            if node.level >= 0 and node not in choices:
                choices[node] = self._choice(node, depth)
                right, left = self.problem.parts(node, choices[node])
                todo += [(right, depth)] if left is None else [(right, depth), (left, depth + 1)]
        return choices

    def _choice(self, node: Node, depth: int) -> Choice:
        if node.steps == 1 or depth >= len(self._levels[node.level]):
            return DOWN
        down, split = self.shortfalls(node, depth)
        left = self.curve(node._replace(kept=True), depth + 1)
        right = self.curve(self.problem.node(0, node.level, node.slots - 1), depth)
        length, excess = _lowest(left, right, node.steps)
        if self.curve(self.problem.below(node), depth).at(node.steps) + down <= excess + split:
            return DOWN
        return Choice(1, length, min(node.slots, self._enough(node.level, depth + 1)))

    def _enough(self, level: int, depth: int) -> int:
        """The number of slots beyond which a kept node gains nothing."""
        slots = self.problem.levels[level].slots
        if slots >= self.problem.steps:
            return slots
        return len(self._levels[level][depth][True]) - 1 if depth < len(self._levels[level]) else 1


def _lowest(left: Curve, right: Curve, steps: int) -> tuple[int, float]:
    """How many of the steps go to the left part for the least sum, and that sum."""
    first = max(left.start, steps - right.start - len(right.excess) + 1)
    last = min(left.start + len(left.excess) - 1, steps - right.start)
    if first > last:
        return 0, inf
    sums = left.excess[first - left.start : last - left.start + 1]
    sums = sums + right.excess[steps - last - right.start : steps - first - right.start + 1][::-1]
    best = int(np.argmin(sums))
    return first + best, float(sums[best])


def _same(one: Curve, two: Curve) -> bool:
    return one.start == two.start and np.array_equal(one.excess, two.excess)


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
        level = problem.levels[node.level]
        left, right = node._replace(kept=True), problem.node(0, node.level, node.slots - 1)
        best, below = prices.offer(node, depth), prices.below(node.level, depth)
        one, two = prices.offer(left, depth + 1), prices.offer(right, depth)
        transfers = (level.read + (0 if node.kept else level.write)) * prices.scale
        splits = one[0] + two[0] - transfers == best[0]
        if below[0] == best[0]:
            todo.append((problem.below(node), depth))
            if splits:
                number = gcd(number, one[1] + two[1] - below[1])
        if splits:
            todo += [(left, depth + 1), (right, depth)]
    return number
