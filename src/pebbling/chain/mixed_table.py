"""States and tapes in one memory: the exact dynamic programme, for plans of moderate size.

U_m(n) = min(1 + U_{m-a}(n-1),  min_j  j + U_m(j) + U_{m-1}(n-j)) with a = tape/state: either the
tape of the first step is kept while the rest is reversed, or the first state is, while steps from j
on are. Ties are broken by the fewest snapshots written, so the plan is optimal in forwards and,
among all such plans, in writes. Time grows as steps² × levels; ``mixed_hull`` takes over beyond.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

RECORD_FIRST = 0  # the choice to keep the first step's tape; any other choice is the first split
_NEVER = 1 << 60


class MixedLevel:
    """What is optimal with one amount of memory left: forwards, and the choices for 1 … n steps."""

    def __init__(self, steps: int, states: MixedLevel | None, tapes: MixedLevel | None) -> None:
        """``states`` and ``tapes`` are the levels that remain once a state, or a tape, is kept."""
        self.forwards = np.full(steps + 1, _NEVER)
        self.forwards[:2] = (0, 1)[: steps + 1]
        self.stores = np.zeros((2, steps + 1), np.int64)  # first state not stored yet, stored already
        self.choice = np.zeros((2, steps + 1), np.int64)
        if states is not None or tapes is not None:
            for number in range(2, steps + 1):
                self._solve(number, states, tapes)

    def _solve(self, n: int, states: MixedLevel | None, tapes: MixedLevel | None) -> None:
        recorded = _NEVER if tapes is None else 1 + tapes.forwards[n - 1]
        splits = np.empty(0, np.int64)
        if states is not None:
            splits = np.arange(1, n) + self.forwards[1:n] + states.forwards[n - 1 : 0 : -1]
        best = min(recorded, splits.min(initial=_NEVER))
        self.forwards[n] = min(best, _NEVER)
        optimal = np.flatnonzero(splits == best) + 1
        for kept in (0, 1):
            stores, choice = _NEVER, RECORD_FIRST
            if recorded == best and tapes is not None:
                stores = tapes.stores[0, n - 1]
            if len(optimal) and states is not None:
                written = 1 - kept + self.stores[1, optimal] + states.stores[0, n - optimal]
                fewest = written.argmin()
                if written[fewest] < stores:
                    stores, choice = written[fewest], optimal[fewest]
            self.stores[kept, n], self.choice[kept, n] = stores, choice


@lru_cache(16)
def levels(steps: int, memory: Fraction, tape: Fraction) -> dict[Fraction, MixedLevel]:
    """The level of every amount of memory that can remain."""
    found: dict[Fraction, MixedLevel] = {}
    for left in sorted(amounts_left(steps, memory, tape)):
        found[left] = MixedLevel(steps, found.get(left - 1), found.get(left - tape))
    return found


def amounts_left(steps: int, memory: Fraction, tape: Fraction) -> set[Fraction]:
    """Every amount of memory that is left when some states and some tapes are kept."""
    return {
        memory - states - kept * tape
        for states in range(min(int(memory), steps) + 1)
        for kept in range(min(int((memory - states) / tape), steps) + 1)
    }
