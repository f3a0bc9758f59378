"""Binomial checkpointing that keeps tapes where they fit: runs of neighbouring steps are taped at once.

Griewank and Walther's splits, chosen so that the last steps form long runs; a span whose tapes fit into
the slots it has left is taped in one go and not replayed. With tapes no larger than states this takes
hardly more forwards than ``Mixed``, which is optimal there, and needs none of its tables: it is for
loops whose whole memory is a few kilobytes. Tapes larger than states make it plain binomial
checkpointing, nearly; the gap to ``Mixed`` then reaches a fifth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .actions import Action, Advance, EndForward, Free, Record, Restore, Reverse, Snapshot, Turn
from .binomial import longest_runs
from .cost import Model, Room
from .revolve import FIRST, FRESH, KEPT, halves
from .schedule import Schedule
from .spans import Each, Item, Span, Sub
from .validate import amount, whole


class Turns(NamedTuple):
    """Tape steps ``start … stop-1`` at once and reverse them; ``slot`` gives up their first state, unless it is -1."""

    start: int
    stop: int
    slot: int


@dataclass(frozen=True)
class Runs(Schedule):
    """Reverse ``steps`` steps with ``slots`` units of memory, each for one state or ``1 / tape`` tapes.

    The slot of the initial state is for states alone: who called the loop holds that state in any case.

    >>> Runs(1000, 16).cost.forwards, Runs(1000, 16, tape=1000).cost.forwards
    (3016, 3860)
    """

    steps: int
    slots: int
    tape: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        object.__setattr__(self, "tape", amount(self.tape, "tape", positive=True))

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.slots),), tape=self.tape)

    @property
    def root(self) -> Span:
        return (self.steps, self.slots, FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        steps, slots, how = span
        slot = self.slots - slots
        if steps <= 1 or not self._fits(steps, slot):
            return halves(span, slot, longest_runs)
        last = Sub(steps - 1, (1, slots, FIRST if how == FIRST else FRESH))
        return [
            *([Free(0, slot, 0)] if how == KEPT else []),
            Each(Record, 0, steps - 1),
            last,
            Each(Reverse, 0, steps - 1),
        ]

    def _fits(self, steps: int, slot: int) -> bool:
        """Whether the tapes of a span fit, but for the last one; the first slot is not for tapes."""
        return (steps - 1) * self.tape <= self.slots - max(slot, 1)

    def __iter__(self) -> Iterator[Action]:
        """The actions one by one."""
        for action in self.coarse():
            if type(action) is not Turns:
                yield action
                continue
            start, stop, slot = action
            if slot >= 0:
                yield Restore(start, slot, 0)
                yield Free(start, slot, 0)
            yield from map(Record, range(start, stop - 1))
            yield Turn(stop - 1)
            yield from map(Reverse, range(stop - 2, start - 1, -1))

    def coarse(self) -> Iterator[Any]:
        """The same actions with every run but the first as one, straight from the splits."""
        new: Any = tuple.__new__
        splits = dict[tuple[int, int], int]()
        waiting: list[tuple[int, int, int]] = []
        start, steps, slot, kept = 0, self.steps, 0, False
        while True:
            while steps > 1 and not self._fits(steps, slot):
                part = splits.get((steps, slot))
                if part is None:
                    part = splits[steps, slot] = longest_runs(steps, self.slots - slot)
                if not kept:
                    yield new(Snapshot, (start, slot, 0))
                yield new(Advance, (start, start + part))
                waiting.append((start, part, slot))
                start, steps, slot, kept = start + part, steps - part, slot + 1, False
            if start + steps == self.steps:
                yield from self._last(start, steps)
            else:
                yield new(Turns, (start, start + steps, slot if kept else -1))
            if not waiting:
                return
            start, steps, slot = waiting.pop()
            kept = True
            if steps > 1 and not self._fits(steps, slot):
                yield new(Restore, (start, slot, 0))

    def _last(self, start: int, steps: int) -> Iterator[Action]:
        """The run that ends the sweep: its tapes are kept while the result of the loop is used."""
        yield from map(Record, range(start, start + steps - 1))
        yield EndForward()
        if steps:
            yield Turn(start + steps - 1)
            yield from map(Reverse, range(start + steps - 2, start - 1, -1))
