"""The least excess of a part of a plan for each of its lengths, kept where it is within a slack.

Used by ``excess``, which says what excess is. ``remainders`` has the same methods for lengths
modulo a number.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


class Exhausted(Exception):
    """More work than was allowed."""


class LengthCurve(NamedTuple):
    """Excess by length, from ``start`` steps on; infinite where it is above the slack."""

    start: int
    excess: np.ndarray


_NOTHING = LengthCurve(0, np.empty(0))
_SMALL = 4096
_OVERHEAD = 2000  # a call to NumPy, in elements


class Lengths:
    """Curves for plans of up to ``longest`` steps within ``slack``; stops after so much ``effort``, in elements."""

    def __init__(self, longest: int, slack: float, effort: float = inf) -> None:
        self.longest, self.slack, self.effort = longest, slack, effort

    def reach(self, least: int, most: int) -> tuple[int, int]:
        """The lengths that matter for a part whose best lengths are given."""
        return 1, self.longest

    def leaf(self, start: int, excess: np.ndarray, least: int, most: int) -> LengthCurve:
        """A curve from its heights; it has none from ``least`` to ``most`` steps."""
        return self._within(start, excess)

    def either(self, one: LengthCurve, above: float, two: LengthCurve, beyond: float) -> LengthCurve:
        """The better of two ways, each with what it falls short of the best offer."""
        start = min(one.start, two.start)
        excess = np.full(max(one.start + len(one.excess), two.start + len(two.excess)) - start, inf)
        for curve, shortfall in ((one, above), (two, beyond)):
            part = excess[curve.start - start : curve.start - start + len(curve.excess)]
            np.minimum(part, curve.excess + shortfall, out=part)
        return self._within(start, excess)

    def joined(self, one: LengthCurve, two: LengthCurve) -> LengthCurve:
        """One part after the other: the least sum for each length of both together.

        It is found where one of the two bends upwards: elsewhere a step more for one and a step
        less for the other, or the reverse, does not raise the sum.
        """
        if len(one.excess) == 0 or len(two.excess) == 0:
            return _NOTHING
        self._spend(_OVERHEAD * 20)
        if len(one.excess) * len(two.excess) <= _SMALL:
            return self._within(one.start + two.start, _all_sums(one.excess, two.excess))
        excess = np.full(len(one.excess) + len(two.excess) - 1, inf)
        for bent, other in ((one.excess, two.excess), (two.excess, one.excess)):
            bends = upward_bends(bent)
            self._spend(len(bends) * (_OVERHEAD + len(other)))
            for first in bends:
                part = excess[first : first + len(other)]
                np.minimum(part, bent[first] + other, out=part)
        return self._within(one.start + two.start, excess)

    def chained(self, link: LengthCurve, shortfall: float, end: LengthCurve, short: float) -> LengthCurve:
        """Any number of links in a row and an end, each link and the end with what they fall short."""
        excess = np.full(self.longest + 1, inf)
        excess[end.start : end.start + len(end.excess)] = end.excess + short
        if len(link.excess) == 0:
            return self._within(0, excess)
        block, reach = link.start, link.start + len(link.excess) - 1
        self._spend(self.longest * (len(link.excess) + 3 * _OVERHEAD / block))
        excess = np.concatenate((np.full(reach, inf), excess))
        links = link.excess[::-1, None] + shortfall
        for first in range(reach + end.start + block, len(excess), block):
            here = excess[first : first + block]
            before = sliding_window_view(excess[first - reach : first - block + len(here)], len(here))
            np.minimum(here, (before + links).min(axis=0), out=here)
        return self._within(0, excess[reach:])

    def least(self, curve: LengthCurve, steps: int) -> float:
        """No part of that many steps has less excess."""
        return self.at(curve, steps)

    def at(self, curve: LengthCurve, steps: int) -> float:
        """The least excess of a part of that many steps, where one is known."""
        inside = 0 <= steps - curve.start < len(curve.excess)
        return float(curve.excess[steps - curve.start]) if inside else inf

    def lowest(self, left: LengthCurve, right: LengthCurve, steps: int) -> tuple[int, float, int]:
        """How many of the steps go to the left part for the least sum, that sum, and how often in a row."""
        first = max(left.start, steps - right.start - len(right.excess) + 1)
        last = min(left.start + len(left.excess) - 1, steps - right.start)
        if first > last:
            return 0, inf, 1
        sums = left.excess[first - left.start : last - left.start + 1]
        sums = sums + right.excess[steps - last - right.start : steps - first - right.start + 1][::-1]
        best = int(np.argmin(sums))
        return first + best, float(sums[best]), 1

    def same(self, one: LengthCurve, two: LengthCurve) -> bool:
        """Whether two curves agree."""
        return one.start == two.start and np.array_equal(one.excess, two.excess)

    def _within(self, start: int, excess: np.ndarray) -> LengthCurve:
        excess = excess[: max(0, self.longest + 1 - start)]
        excess = np.where(excess <= self.slack, excess, inf)
        finite = np.flatnonzero(excess < inf)
        return LengthCurve(start + int(finite[0]), excess[finite[0] : finite[-1] + 1]) if len(finite) else _NOTHING

    def _spend(self, effort: float) -> None:
        self.effort -= effort
        if self.effort < 0:
            raise Exhausted


def upward_bends(excess: np.ndarray) -> list[int]:
    """Where a curve bends upwards; next to gaps and at the ends it does."""
    padded = np.concatenate(([inf], excess, [inf]))
    finite = np.flatnonzero(excess < inf)
    rise, rise_before = padded[finite + 2] - padded[finite + 1], padded[finite + 1] - padded[finite]
    return finite[~(rise <= rise_before)].tolist()


def _all_sums(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """The least sum for each length from all pairs; the rows are skewed so that equal lengths share a column."""
    rows, columns = len(one), len(two)
    sums = np.full((rows, columns + rows), inf)
    sums[:, :columns] = one[:, None] + two
    return sums.ravel()[: rows * (columns + rows - 1)].reshape(rows, columns + rows - 1).min(axis=0)
