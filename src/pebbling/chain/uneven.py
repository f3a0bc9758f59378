"""Steps that differ: the cheapest plan for costs, or costs and sizes, given step by step.

With ``slots``, snapshots are alike and only costs differ: optimal among all plans that keep states
(see ``uneven_cost``). With ``memory``, states and tapes have sizes and both are kept: optimal among
the plans that keep a state until the steps after it are reversed (Rotor, see ``rotor``), for sizes
on a grid (see ``grid``). Neither looks for the fewest stores among plans of equal cost. Planning
takes time quadratic and cubic in the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import add
from typing import Any

from ..errors import BudgetError
from . import rotor, uneven_cost
from .actions import Advance, Free, Record, Restore, Reverse, Snapshot
from .choices import Solution
from .cost import Model, Room
from .grid import even_grid, feasible, onto_grid, smallest, summable
from .revolve import FIRST, FRESH, KEPT, leaf
from .schedule import Schedule
from .spans import Each, Item, Span, Sub
from .validate import amount, amounts, whole
from .working import Working, gates_of, least_memory


@dataclass(frozen=True)
class Uneven(Schedule):
    """Reverse steps that differ, with ``slots`` snapshots or within ``memory``, in the least time.

    ``forward[i]`` and ``backward[i]`` are the times of step i and of its reversal (0 if not given),
    ``state[i]`` is the size of the state before it and ``tape[i]`` that of its tape, in the unit of
    ``memory``. The working state and the tape that is being reversed are not counted, unless ``working``
    says what steps take while they run.

    Memory is planned on a grid of at most ``units`` units. Whole numbers are used as they are while
    ``memory``, divided by what all sizes have in common, is no larger than that; else sizes are
    rounded up to the grid, so the plan always fits the true sizes. Unless given, ``units`` is as
    many as are planned in a fraction of a second, between 500 and 20 000.

    >>> Uneven([1, 5, 1, 1, 9, 1], slots=2).cost.time
    39.0
    >>> Uneven([1, 2, 1], [2, 4, 2], state=[2, 1, 3], tape=[4, 2, 5], memory=3).cost.time
    15.0
    """

    forward: Sequence[float]
    backward: Sequence[float] | None = None
    state: Sequence[float] | None = None
    tape: Sequence[float] | None = None
    slots: int | None = field(default=None, kw_only=True)
    memory: float | None = field(default=None, kw_only=True)
    units: int | None = field(default=None, kw_only=True)
    working: Working | None = field(default=None, kw_only=True)
    steps: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._set("forward", amounts(self.forward, "forward"))
        self._set("steps", len(self.forward))
        if self.backward is not None:
            self._set("backward", amounts(self.backward, "backward", self.steps))
        if (self.slots is None) == (self.memory is None):
            given = "neither" if self.slots is None else "both"
            raise ValueError(f"Uneven takes either slots=, or sizes and memory=: {given} was given")
        if self.slots is not None:
            self._with_slots()
        else:
            self._with_memory()

    def _with_slots(self) -> None:
        self._set("slots", whole(self.slots, "slots", 1))
        for name in ("state", "tape", "units", "working"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} says nothing where slots are counted: leave it out, or give memory=")

    def _with_memory(self) -> None:
        for name in ("state", "tape"):
            if getattr(self, name) is None:
                raise ValueError(f"memory= needs the sizes of states and tapes, and {name} is missing")
            self._set(name, amounts(getattr(self, name), name, self.steps))
        self._set("memory", amount(self.memory, "memory"))
        if self.units is not None:
            self._set("units", whole(self.units, "units", 1))
        if self.working is not None:
            self._set("working", Working(*[amounts(sizes, "working", self.steps) for sizes in self.working]))
        if not self._feasible:
            least = self._smallest
            raise BudgetError(
                f"no plan for these {self.steps} steps fits in memory={self.memory!r}: the smallest that works is "
                f"{least!r}",
                least,
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def _feasible(self) -> bool:
        if self.working is None or not self.steps:
            return feasible(onto_grid(*self._sizes))
        return self._solution.value < math.inf

    @property
    def _smallest(self) -> float:
        """A memory that works; beside ``working``, the least one but for what the grid takes."""
        if self.working is None:
            return smallest(*self._sizes)
        state, tape, _, _ = self._sizes
        least = least_memory(state, tape, self.working)
        while self._solved(least).value == math.inf:
            least *= 1 + 1 / 512
        return least

    @property
    def _sizes(self) -> Any:
        units = self.units or min(max(500, 10**9 // max(self.steps, 1) ** 3), 20_000)
        return self.state, self.tape, self.memory, units

    @property
    def model(self) -> Model:
        forward = tuple(self.forward)
        turn = tuple(map(add, forward, self._backward))
        if self.slots is not None:
            return Model(self.steps, (Room(self.slots),), forward, turn)
        state, tape, memory, _ = self._sizes
        return Model(self.steps, (Room(memory),), forward, turn, summable(state, memory), summable(tape, memory))

    @property
    def _backward(self) -> Sequence[float]:
        return (0.0,) * self.steps if self.backward is None else self.backward

    @cached_property
    def _solution(self) -> Solution:
        """What the dynamic programme chose."""
        if self.slots is not None:
            return uneven_cost.solve(self.forward, self.slots)
        return self._solved(self.memory)

    def _solved(self, memory: Any) -> Solution:
        state, tape, _, units = self._sizes
        if self.working is None or not self.steps:
            return rotor.solve(self.forward, self._backward, onto_grid(state, tape, memory, units))
        # So many that all sizes rounded up to one unit each, some memory is enough.
        grid, unit = even_grid(state, tape, memory, max(units, 4 * self.steps + 4))
        return rotor.solve(self.forward, self._backward, grid, gates_of(state, tape, self.working, unit))

    @property
    def root(self) -> Span:
        return (self.steps, 0, self._solution.room, 0, FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        """The span (n, s, m, k, how) is the n steps from s on with room m, slot k the first that is free."""
        steps, start, room, slot, how = span
        if steps <= 1:
            return leaf(steps, slot, 0, how)
        choice, ahead = self._solution.choices[start, steps, room], FIRST if how == FIRST else FRESH
        if choice < 0:
            taped = -choice
            left = room - sum(self._solution.tape[start : start + taped])
            return [
                *([Free(0, slot, 0)] if how == KEPT else []),
                Each(Record, 0, taped),
                Sub(taped, (steps - taped, start + taped, left, slot, ahead)),
                Each(Reverse, 0, taped),
            ]
        return [
            *([Snapshot(0, slot, 0)] if how != KEPT else []),
            Advance(0, choice),
            Sub(choice, (steps - choice, start + choice, room - self._solution.state[start], slot + 1, ahead)),
            Restore(0, slot, 0),
            Sub(0, (choice, start, room, slot, KEPT)),
        ]

    def origin(self, span: Span) -> int:
        return span[1]
