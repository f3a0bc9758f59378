"""The least excess of a part of a plan for each remainder of its length modulo some number.

Used by ``excess``, which says what excess is, in place of ``lengths``: plans of n steps are among
those whose length leaves the same remainder as n, so the least excess of those is a lower bound
(Gomory's group relaxation, Linear Algebra and its Applications 2, 1969). A curve also knows the
shortest and the longest parts that have the least excess; in between every length with that
remainder is taken to have it too, which a plan made from it proves or disproves.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from .lengths import Exhausted, upward_bends


class RemainderCurve(NamedTuple):
    """By remainder: the least excess, and the shortest and the longest parts that have it."""

    excess: np.ndarray
    shortest: np.ndarray
    longest: np.ndarray


_DENSE = 64
_OVERHEAD = 60_000  # some calls to NumPy, in elements


class Remainders:
    """Curves for plans of ``steps`` steps within ``slack``, modulo ``modulus``; stops after so much ``effort``.

    What differs by no more than ``tie`` counts as equal.
    """

    def __init__(self, modulus: int, steps: int, slack: float, tie: float, effort: float = inf) -> None:
        self.modulus, self.steps, self.slack, self.tie, self.effort = modulus, steps, slack, tie, effort
        self._remainders = np.arange(modulus)
        self._too_long = steps + 1 + (self._remainders - steps - 1) % modulus

    def reach(self, least: int, most: int) -> tuple[int, int]:
        """The lengths that matter for a part whose best lengths are given: one with each remainder, above and below."""
        if most - least >= self.modulus:
            return least, least
        return max(1, least - self.modulus + 1), most + self.modulus - 1

    def leaf(self, start: int, excess: np.ndarray, least: int, most: int) -> RemainderCurve:
        """A curve from its heights; it has none from ``least`` to ``most`` steps."""
        too_long = max(0, start - self.steps) // self.modulus * self.modulus
        start, least, most = start - too_long, least - too_long, most - too_long
        if most - least >= self.modulus:
            most = min(most, self.steps + 2 * self.modulus)
            shortest = least + (self._remainders - least) % self.modulus
            return self._curve(np.zeros(self.modulus), shortest, most - (most - self._remainders) % self.modulus)
        before, after = start % self.modulus, -(start + len(excess)) % self.modulus
        heights = np.pad(excess, (before, after), constant_values=inf).reshape(-1, self.modulus)
        lengths = np.arange(start - before, start - before + heights.size).reshape(heights.shape)
        return self._best(heights, lengths, lengths)

    def either(self, one: RemainderCurve, above: float, two: RemainderCurve, beyond: float) -> RemainderCurve:
        """The better of two ways, each with what it falls short of the best offer."""
        excess = np.stack((one.excess + above, two.excess + beyond))
        return self._best(excess, np.stack((one.shortest, two.shortest)), np.stack((one.longest, two.longest)))

    def joined(self, one: RemainderCurve, two: RemainderCurve) -> RemainderCurve:
        """One part after the other: the least sum for each remainder of both together."""
        if self.modulus <= _DENSE:
            return self._joined_at(self._remainders, one, two)
        first, second = upward_bends(one.excess), upward_bends(two.excess)
        return self.either(
            self._joined_at(np.array(first, int), one, two), 0.0, self._joined_at(np.array(second, int), two, one), 0.0
        )

    def chained(self, link: RemainderCurve, shortfall: float, end: RemainderCurve, short: float) -> RemainderCurve:
        """Any number of links in a row and an end, each link and the end with what they fall short."""
        none = np.where(self._remainders == 0, 0.0, inf)
        row = self.either(RemainderCurve(none, self._remainders, self._remainders), 0.0, link, shortfall)
        while not self.same(row, longer := self.joined(row, row)):
            row = longer
        return self.joined(row, end._replace(excess=end.excess + short))

    def least(self, curve: RemainderCurve, steps: int) -> float:
        """No part of that many steps has less excess."""
        return float(curve.excess[steps % self.modulus])

    def at(self, curve: RemainderCurve, steps: int) -> float:
        """The least excess of a part of that many steps, where one is known."""
        remainder = steps % self.modulus
        known = curve.shortest[remainder] <= steps <= curve.longest[remainder]
        return float(curve.excess[remainder]) if known else inf

    def lowest(self, left: RemainderCurve, right: RemainderCurve, steps: int) -> tuple[int, float, int]:
        """How many of the steps go to the left part for the least sum, that sum, and how often in a row."""
        rest = (steps - self._remainders) % self.modulus
        first = np.maximum(left.shortest, steps - right.longest[rest])
        last = np.minimum(left.longest, steps - right.shortest[rest])
        sums = np.where(first <= last, left.excess + right.excess[rest], inf)
        best = int(np.argmin(sums))
        length = int(first[best])
        again = (steps - int(right.shortest[rest[best]])) // length if length and length % self.modulus == 0 else 1
        return length, float(sums[best]), max(1, again)

    def same(self, one: RemainderCurve, two: RemainderCurve) -> bool:
        """Whether two curves agree."""
        return all(map(np.array_equal, one, two))

    def _joined_at(self, places: np.ndarray, one: RemainderCurve, two: RemainderCurve) -> RemainderCurve:
        """The least sums with the first part at some of its remainders only."""
        self.effort -= 10 * len(places) * self.modulus + _OVERHEAD
        if self.effort < 0:
            raise Exhausted
        rest = (self._remainders - places[:, None]) % self.modulus
        return self._best(
            one.excess[places, None] + two.excess[rest],
            one.shortest[places, None] + two.shortest[rest],
            one.longest[places, None] + two.longest[rest],
        )

    def _best(self, excess: np.ndarray, shortest: np.ndarray, longest: np.ndarray) -> RemainderCurve:
        """Column by column the least excess, and the shortest and longest of the rows that have it."""
        least = excess.min(axis=0, initial=inf)
        best = excess <= least + self.tie
        shortest = np.where(best, shortest, self._too_long).min(axis=0, initial=self.steps + self.modulus)
        return self._curve(least, shortest, np.where(best, longest, 0).max(axis=0, initial=0))

    def _curve(self, excess: np.ndarray, shortest: np.ndarray, longest: np.ndarray) -> RemainderCurve:
        excess = np.where(excess <= self.slack, excess, inf)
        return RemainderCurve(excess, np.minimum(shortest, self._too_long), np.minimum(longest, self._too_long))
