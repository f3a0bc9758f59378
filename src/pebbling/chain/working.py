"""Room that steps need while they run, beside the states and the tapes that a plan keeps.

A step that is run, taped or reversed needs its own room at that moment, and a reversal may leave something
behind until the end, as gradients of parameters are. For every choice of a plan that makes a least memory below which
it can't be taken, on the grid that the plan is made on. Counted so that what is planned fits: a state that a tape
holds as well is counted twice while the step after it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import numpy as np


class Working(NamedTuple):
    """What each step takes while it runs, in the unit of the memory.

    ``ahead`` is taken while a step runs forward, its input left out and its output counted; ``turn`` while it is
    taped and reversed at once, input and tape counted; ``back`` while it is reversed from a tape that was kept, the
    tape left out. ``left`` is what the reversal of a step leaves until all are reversed, and is part of neither.
    """

    ahead: Sequence[float]
    turn: Sequence[float]
    back: Sequence[float]
    left: Sequence[float]


class Gates(NamedTuple):
    """The least units of memory: for an advance from one step to another, for a record and for reversals.

    ``ahead[s, j]`` and ``record[s]`` come on top of ``behind[t]``, what the steps after t have left.
    """

    ahead: np.ndarray
    behind: np.ndarray
    record: np.ndarray
    back: np.ndarray
    turn: np.ndarray


def open_gates(steps: int) -> Gates:
    """Gates that hold nothing up."""
    none = np.zeros(steps, dtype=np.int64)
    return Gates(np.zeros((steps, steps + 1), dtype=np.int64), none, none, none, none)


def gates_of(state: Sequence[float], tape: Sequence[float], working: Working, unit: Fraction) -> Gates:
    """The gates for sizes on a grid of that unit."""

    def units(sizes: Sequence[float]) -> np.ndarray:
        return np.array([-(-Fraction(size) // unit) for size in sizes], dtype=np.int64)

    exact = _exact(state, tape, working)
    steps = len(state)
    ahead = np.zeros((steps, steps + 1), dtype=np.int64)
    for start in range(steps):
        ahead[start, start + 1 :] = units(exact.ahead[start])
    return Gates(ahead, *[units(sizes) for sizes in exact[1:]])


def least_memory(state: Sequence[float], tape: Sequence[float], working: Working) -> float:
    """The least memory with a plan, by the recursion for the plan's time with memory in its place."""
    exact, steps = _exact(state, tape, working), len(state)
    least = np.full((steps, steps), np.inf)
    for last in range(steps):
        least[last, last] = exact.turn[last]
        for start in range(last - 1, -1, -1):
            behind = exact.behind[last]
            taped = max(exact.record[start] + behind, exact.back[start], tape[start] + least[start + 1, last])
            ahead = np.array(exact.ahead[start][: last - start]) + behind
            split = np.maximum(ahead, state[start] + least[start + 1 : last + 1, last])
            least[start, last] = min(taped, float(np.min(np.maximum(split, least[start, start:last]))))
    return float(least[0, steps - 1]) if steps else 0.0


class _Exact(NamedTuple):
    """The same as gates, in the unit of the sizes; ``ahead[s]`` begins with the advance by one step."""

    ahead: list[list[float]]
    behind: list[float]
    record: list[float]
    back: list[float]
    turn: list[float]


def _exact(state: Sequence[float], tape: Sequence[float], working: Working) -> _Exact:
    steps = len(state)
    running = [size + extra for size, extra in zip(state, working.ahead)]
    # The input of the first step of an advance is the state that is kept.
    ahead = [list(accumulate([running[s], *[state[s] + one for one in running[s + 1 :]]], max)) for s in range(steps)]
    behind = [0.0, *accumulate(reversed(working.left))][::-1]
    back = [tape[s] + working.back[s] + behind[s] for s in range(steps)]
    turn = [working.turn[s] + behind[s] for s in range(steps)]
    return _Exact(ahead, behind[1:], running, back, turn)
