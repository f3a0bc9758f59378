"""States and tapes in one memory: the lower convex hull of the optimal forwards, at any length.

The recurrence of ``mixed_table``, relaxed to convex functions: the sum over a split becomes a merge
of slopes, the choice between tape and split a common tangent, so a function of 10⁹ steps is a few
hundred runs of equal slope, made as far as they are needed. The hull bounds the optimum from below;
where tape/state is a whole number, the optimum is the hull rounded up (found by comparison with the
exact programme, which the tests repeat).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from math import comb, inf
from typing import Any, NamedTuple

from .binomial import beta

NEVER = 1 << 60


class SlopeRun(NamedTuple):
    """Rises of equal size: the slope, and between which two points of whole numbers it leads.

    The slope is ``rise / steps`` correctly rounded, so equal slopes are equal numbers; denominators
    below 10⁷ keep different ones apart.
    """

    slope: float
    rise: int
    steps: int


def _run(rise: int, steps: int) -> SlopeRun:
    return SlopeRun(rise / steps, rise, steps)


_END = SlopeRun(inf, 0, 0)


class Hull:
    """A convex lower bound on the forwards for n ≥ 1 steps: 1, and then rises in growing order.

    ``smaller`` are all the hulls that the runs are made from, the smallest first: they are made
    ready before this one asks for them, so that a tall stack of hulls does not recurse.
    """

    def __init__(self, runs: Iterable[SlopeRun], smaller: Callable[[], list[Hull]] = list) -> None:
        self._more = iter(runs)
        self._smaller = smaller
        self._runs: list[SlopeRun] = []
        self._slopes: list[float] = []
        self._ends, self._values = [1], [1]

    def __iter__(self) -> Iterator[SlopeRun]:
        for run in count():
            if run == len(self._runs) and not self._extend():
                return
            yield self._runs[run]

    def rounded(self, steps: int) -> int:
        """The bound for ``steps`` steps as a whole number."""
        if not self._far_enough(steps):
            return NEVER
        last = bisect_left(self._ends, steps)
        if last == 0:
            return 1
        _, rise, number = self._runs[last - 1]
        return self._values[last] - rise * (self._ends[last] - steps) // number

    def splits(self, steps: int, rest: Hull) -> tuple[int, int]:
        """The range of j that minimises j + self(j) + rest(steps - j)."""
        assert self._far_enough(steps)
        _, rise, number = self._runs[bisect_left(self._ends, steps) - 1]
        slope, less = rise / number, (rise - number) / number
        low = max(1 + self._below(less), steps - 1 - rest._upto(slope), 1)
        return low, min(1 + self._upto(less), steps - 1 - rest._below(slope), steps - 1)

    def _below(self, slope: float) -> int:
        self._reach(slope)
        return self._ends[bisect_left(self._slopes, slope)] - 1

    def _upto(self, slope: float) -> int:
        self._reach(slope)
        return self._ends[bisect_right(self._slopes, slope)] - 1

    def _far_enough(self, steps: int) -> bool:
        while self._ends[-1] < steps:
            if not self._reach(self._slopes[-1] + 1 if self._slopes else 2):
                return self._ends[-1] >= steps
        return True

    def _reach(self, slope: float) -> bool:
        """Make runs until one is steeper than ``slope``; whether there is one."""
        if not (self._slopes and self._slopes[-1] > slope):
            for hull in [*self._smaller(), self]:
                while not (hull._slopes and hull._slopes[-1] > slope) and hull._extend():
                    pass
        return bool(self._slopes) and self._slopes[-1] > slope

    def _extend(self) -> bool:
        run = next(self._more, _END)
        if run.steps:
            self._runs.append(run)
            self._slopes.append(run.slope)
            self._ends.append(self._ends[-1] + run.steps)
            self._values.append(self._values[-1] + run.rise)
        return run.steps > 0


class EqualSizes:
    """The hull where a tape is as large as a state, in closed form.

    Slope 1 is taken m times, then for d = 2, 3, … and k = m … 1 slope d + 1/k is taken
    k·C(m-k+d-2, d-2) times. (Maddison's mixed schedule, J. Comput. Sci. 82, 2024, has these counts.)
    """

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def rounded(self, steps: int) -> int:
        """The bound for ``steps`` steps as a whole number."""
        if self.memory == 0:
            return 1 if steps == 1 else NEVER
        value, rises, depth, k = _locate(self.memory, steps)
        return value + depth * rises - (-rises // k if depth > 1 else 0)

    def splits(self, steps: int, rest: EqualSizes) -> tuple[int, int]:
        """The range of j that minimises j + self(j) + rest(steps - j)."""
        _, _, depth, k = _locate(self.memory, steps)
        low = max(1 + self._smaller(depth - 1, k + 1), steps - 1 - rest._smaller(depth, k), 1)
        return low, min(1 + self._smaller(depth - 1, k), steps - 1 - rest._smaller(depth, k + 1), steps - 1)

    def _smaller(self, depth: int, k: int) -> int:
        """How many rises are at most d + 1/k."""
        if depth < 2:
            return self.memory if depth == 1 else 0
        return comb(self.memory + depth - 1, depth - 1) - 1 + _taken(self.memory, depth, self.memory - k)


@lru_cache(1 << 16)
def _locate(memory: int, steps: int) -> tuple[int, int, int, int]:
    """The run that reaches ``steps``: the value at its start, the rises taken from it, its d and its k."""
    rises = steps - 1
    if rises <= memory:
        return 1, rises, 1, memory
    rises, value, depth = rises - memory, 1 + memory, 2
    while rises > (all_of_depth := comb(memory + depth - 1, depth)):
        value += depth * all_of_depth + comb(memory + depth - 2, depth - 1)
        rises, depth = rises - all_of_depth, depth + 1
    fewer = bisect_left(range(memory), rises, key=lambda i: _taken(memory, depth, i))
    before = _taken(memory, depth, fewer - 1)
    value += depth * before + (comb(fewer + depth - 2, depth - 1) if fewer else 0)
    return value, rises - before, depth, memory - fewer


def _taken(memory: int, depth: int, fewer: int) -> int:
    """How many rises with this d have k from ``memory`` down to ``memory - fewer``."""
    if fewer < 0:
        return 0
    return memory * comb(fewer + depth - 1, depth - 1) - (depth - 1) * comb(fewer + depth - 1, depth)


def hull(memory: int, state: int, tape: int) -> Any:
    """The hull for ``memory`` units left, where a state takes ``state`` units and a tape ``tape``."""
    return EqualSizes(memory // state) if tape == state else _family(state, tape).hull(memory)


@lru_cache(64)
def _family(state: int, tape: int) -> _Hulls:
    return _Hulls(state, tape)


class _Hulls:
    """The hulls for all amounts of memory with the same sizes of state and tape."""

    def __init__(self, state: int, tape: int) -> None:
        self.state, self.tape = state, tape
        self._hulls: dict[int, Hull] = {}

    def hull(self, memory: int) -> Hull:
        for left in self._left(memory):
            if left not in self._hulls:
                self._hulls[left] = self._make(left)
        return self._hulls[memory]

    def _make(self, memory: int) -> Hull:
        if memory < self.tape:
            return Hull(_states_only(memory // self.state))
        states = self._hulls[memory - self.state] if memory >= self.state else None
        runs = _tapes_or_split(self._hulls[memory - self.tape], states)
        return Hull(runs, lambda: [self._hulls[left] for left in self._left(memory)[:-1]])

    @lru_cache(1 << 12)  # noqa: B019, families live as long as the process
    def _left(self, memory: int) -> list[int]:
        """Every amount that is left when states and tapes are kept, the smallest first."""
        found, todo = {memory}, [memory]
        while todo:
            left = todo.pop()
            for less in (left - self.state, left - self.tape) if left >= self.tape else ():
                if less >= 0 and less not in found:
                    found.add(less)
                    todo.append(less)
        return sorted(found)


def _states_only(slots: int) -> Iterator[SlopeRun]:
    """Binomial checkpointing: beta(c, r) - beta(c, r-1) rises of r + 1."""
    for repeats in count(1) if slots else ():
        number = beta(slots, repeats) - beta(slots, repeats - 1)
        yield _run((repeats + 1) * number, number)


def _tapes_or_split(tapes: Iterable[SlopeRun], states: Iterable[SlopeRun] | None) -> Iterator[SlopeRun]:
    """The hull of the lower of two functions: one tape and then ``tapes``, or a split.

    The first is 2 at two steps and rises as ``tapes`` does; the second is 3 there and rises by the
    merged slopes of ``states`` and of the result plus 1. As a line turns upwards it touches each at
    a moving point; the result follows the one it touches lower, and changes over by a tangent.
    """
    own = [_run(1, 1)]
    yield own[0]
    lower, upper = _HullPoint(_Ahead(tapes), 2), _HullPoint(_Merged(own, states), 3)
    while True:
        slope, ahead = min(lower.slope, upper.slope), upper.steps - lower.steps
        if ahead > 0 and (upper.value - lower.value) / ahead <= slope:
            own.append(_run(upper.value - lower.value, ahead))
            lower, upper = upper, lower
            yield own[-1]
        elif slope == inf:
            return
        elif lower.slope == slope:
            own.append(lower.step())
            yield own[-1]
        else:
            upper.step()


class _Ahead:
    """A stream of runs with a look at the next one."""

    def __init__(self, runs: Iterable[SlopeRun]) -> None:
        self._runs = iter(runs)
        self._next: SlopeRun | None = None

    @property
    def slope(self) -> float:
        if self._next is None:
            self._next = next(self._runs, _END)
        return self._next.slope

    def take(self) -> SlopeRun:
        run, self._next = self._next, None
        return next(self._runs, _END) if run is None else run


class _Merged:
    """The runs of ``own`` with 1 added and those of ``states``, in growing order, while ``own`` still grows."""

    def __init__(self, own: list[SlopeRun], states: Iterable[SlopeRun] | None) -> None:
        self._own, self._taken = own, 0
        self._possible = states is not None
        self._states = _Ahead(states if states is not None else ())

    @property
    def _raised(self) -> float:
        if self._taken == len(self._own) or not self._possible:
            return inf
        _, rise, steps = self._own[self._taken]
        return (rise + steps) / steps

    @property
    def slope(self) -> float:
        return min(self._raised, self._states.slope)

    def take(self) -> SlopeRun:
        slope, rise, steps = self.slope, 0, 0
        if self._states.slope == slope:
            _, rise, steps = self._states.take()
        while self._raised == slope:
            run = self._own[self._taken]
            rise, steps = rise + run.rise + run.steps, steps + run.steps
            self._taken += 1
        return _run(rise, steps)


class _HullPoint:
    """A point moving along a convex function, run by run, from two steps on."""

    def __init__(self, runs: _Ahead | _Merged, value: int) -> None:
        self._runs = runs
        self.steps, self.value = 2, value

    @property
    def slope(self) -> float:
        return self._runs.slope

    def step(self) -> SlopeRun:
        run = self._runs.take()
        self.steps, self.value = self.steps + run.steps, self.value + run.rise
        return run
