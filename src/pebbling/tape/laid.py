"""What a sweep leaves for the way back over a chain, and the actions of that way.

A sweep that followed its schedule to the end goes on with the rest of it. Any other (of unknown length,
ended early, or thinned since) holds some states, and these cut the chain into gaps: gap i is reversed
with the slots that hold none of the states before it, by binomial checkpointing, which is optimal for a
gap. The state before the last step is at hand in any case.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

from ..chain import Action, Advance, EndForward, Free, Restore, Revolve, Snapshot, Turn
from ..chain.binomial import advances
from .shelf import TapeSnapshot

_MANY = 24
"""Snapshots beyond which it takes too long to find the very best ones to keep."""


@dataclass
class Laid:
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
        return gaps(held, self.steps, max(self.capacity, len(held)), self.working is not None)

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


def gaps(held: list[tuple[int, Any]], steps: int, slots: int, at_last: bool) -> Iterator[Any]:
    """From the end of a chain to its beginning; ``held`` are the steps of snapshots and their places, in order."""
    end = steps
    if at_last and steps:
        end -= 1
        yield Turn(end)
    for index in reversed(range(len(held))):
        start, place = held[index]
        if start < end:
            yield Restore(start, place, 0)
        if end - start < 2:
            yield Free(start, place, 0)
            if start < end:
                yield Turn(start)
        else:
            yield from _gap(start, place, end - start, slots - index)
        end = min(start, end)


def _gap(start: int, place: Any, steps: int, slots: int) -> Iterator[Any]:
    """One gap, whose first state is in its place already."""
    actions: Iterator[Any] = iter(Revolve(steps, slots))
    next(actions)
    for action in actions:
        kind = type(action)
        if kind is Advance:
            yield Advance(action[0] + start, action[1] + start)
        elif kind is Turn:
            yield Turn(action[0] + start)
        elif kind is not EndForward:
            yield kind(action[0] + start, ("gap", action[1]) if action[1] else place, 0)
