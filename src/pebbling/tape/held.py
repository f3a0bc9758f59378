"""What a sweep leaves for the way back over a chain, and the actions of that way.

A sweep that followed its schedule to the end goes on with the rest of it. Any other (of unknown length,
ended early, or thinned since) holds some states, and goes back over the gaps between these
(``chain/gaps.py``). The state before the last step is at hand in any case.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise, takewhile
from typing import Any

from ..chain import Action, EndForward, Revolve, Snapshot, Turn
from ..chain.binomial import advances
from ..chain.gaps import way_back
from .snapshots import TapeSnapshot

_MANY = 24
"""Snapshots beyond which it takes too long to find the very best ones to keep."""


@dataclass
class HeldStates:
    """Snapshots and kept values of steps, and what to do with them."""

    steps: int
    capacity: int
    slots: dict[Any, TapeSnapshot] = field(default_factory=dict)
    tapes: dict[int, Any] = field(default_factory=dict)
    working: tuple[int, list[Any]] | None = None
    """The cut before the last step."""
    rest: Iterator[Action] | None = None
    """The rest of the schedule, if it was followed to the end."""

    def actions(self) -> Iterator[Any]:
        """The way back."""
        if self.rest is not None:
            return self.rest
        self.tapes.clear()
        held = sorted((snapshot.step, place) for place, snapshot in self.slots.items())
        if not held or held[0][0] > 0:
            self.slots["start"] = TapeSnapshot(0, [])
            held.insert(0, (0, "start"))
        slots, end = max(self.capacity, len(held)), self.steps
        last: list[Action] = []
        if self.working is not None and end:
            end -= 1
            last = [Turn(end)]
        spare = [("gap", number) for number in range(slots - len(held))]
        return chain(last, way_back(held, end, slots, spare))

    def thin(self, count: int) -> None:
        """Keep at most ``count`` snapshots besides that of the beginning, those that save the most.

        ``steps`` is the length of the chain, so far if it goes on.
        """
        self.rest = None
        self.tapes.clear()
        places = sorted(self.slots, key=lambda place: self.slots[place].step)
        inner = [place for place in places if self.slots[place].step > 0]
        if len(inner) > max(count, _MANY):
            inner = self._nearest(inner, count)
        while len(inner) > count:
            costs = [self._without(inner, i) for i in range(len(inner))]
            self.slots.pop(inner.pop(costs.index(min(costs)))).drop()

    def _nearest(self, inner: list[Any], count: int) -> list[Any]:
        """Drop all but those next to where a plan for the steps so far would have them."""
        held = [self.slots[place].step for place in inner]
        sweep = takewhile(lambda action: not isinstance(action, EndForward), Revolve(self.steps, count + 1))
        wanted = [action.step for action in sweep if isinstance(action, Snapshot) and action.step]
        chosen = {min(bisect_left(held, step), len(held) - 1) for step in wanted}
        for index in set(range(len(inner))) - chosen:
            self.slots.pop(inner[index]).drop()
        return [inner[index] for index in sorted(chosen)]

    def _without(self, inner: list[Any], left_out: int) -> int:
        starts = [0, *[self.slots[place].step for i, place in enumerate(inner) if i != left_out], self.steps]
        capacity = max(self.capacity, len(starts))
        return sum(advances(stop - start, capacity - i) for i, (start, stop) in enumerate(pairwise(starts)))

    def drop(self) -> None:
        """Let go of everything."""
        for snapshot in self.slots.values():
            snapshot.drop()
        self.slots.clear()
        self.tapes.clear()
        self.working = self.rest = None
