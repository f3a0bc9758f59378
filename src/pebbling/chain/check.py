"""The abstract machine that proves a schedule valid, and counts what it takes.

It holds a working state, numbered slots in tiers, and kept tapes, and knows nothing of how the
schedule was found. Every action is held against these rules:

1.  an advance starts at the working state and goes forward, at most to the end;
2.  a store copies the working state into an empty slot, and no tier ever holds more than it may;
3.  a restore reads a slot that holds just that step, which is not yet reversed;
4.  a turn, and a reversal from a kept tape, take the last step that is not yet reversed;
5.  a kept tape is there when it is used, and is dropped then;
6.  at the end every step is reversed, every slot is empty and no tape is left;
7.  the first sweep ends once, at the last step or after it, before anything is reversed.

That steps n-1 … 0 are reversed once each follows from 4 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import numpy as np

from ..errors import ScheduleError
from .actions import Action, Advance, EndForward, Free, Record, Restore, Reverse, Snapshot, Turn
from .cost import Cost, Model, Room
from .schedule import Schedule
from .tally import size_of


def check(schedule: Schedule | Iterable[Action], model: Model | None = None) -> Cost:
    """Run a schedule on the abstract machine; the cost as counted, or a ``ScheduleError``.

    A bare list of actions is checked too, against ``model`` or, without one, as if there were room for everything.

    >>> from pebbling import Revolve
    >>> check(Revolve(10, 3)).advances
    15
    """
    if model is None:
        model = schedule.model if isinstance(schedule, Schedule) else _unbounded(schedule := list(schedule))
    machine = ChainMachine(model)
    for action in schedule:
        machine.do(action)
    return machine.finish()


def _unbounded(actions: list[Action]) -> Model:
    steps = [
        a.stop if isinstance(a, Advance) else a.step + 1 for a in actions if isinstance(a, Advance | Turn | Record)
    ]
    tiers = [a.tier for a in actions if isinstance(a, Snapshot)]
    return Model(max(steps, default=0), (Room(None),) * (1 + max(tiers, default=0)))


class ChainMachine:
    """The state of the game: what is where, what is reversed, what was counted."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.end = model.steps
        self.working: int | None = 0
        self.slots: dict[tuple[int, int], int] = {}
        self.tapes: set[int] = set()
        self.ended = False
        self.index = -1
        self.action: Action | None = None
        self.tapings = 0
        self.most_tapes = 0
        self.stores = [0] * len(model.rooms)
        self.restores = [0] * len(model.rooms)
        self.held: list[float] = [0] * len(model.rooms)
        self.peaks: list[float] = [0] * len(model.rooms)
        self.advanced = 0
        self._starts = np.zeros(model.steps + 1, np.int64) if isinstance(model.forward, tuple) else None

    def do(self, action: Action) -> None:
        """Take one action, or raise."""
        self.index += 1
        self.action = action
        match action:
            case Advance(start, stop):
                self._at(start)
                if not start < stop <= self.end:
                    self._refuse(f"an advance goes forward, at most to step {self.end}")
                self.working = stop
                self.advanced += stop - start
                if self._starts is not None:
                    self._starts[start] += 1
                    self._starts[stop] -= 1
            case Snapshot(step, slot, tier):
                self._at(step)
                if (tier, slot) in self.slots:
                    self._refuse(f"slot {slot} of tier {tier} holds step {self.slots[tier, slot]}")
                self.slots[tier, slot] = step
                self.stores[tier] += 1
                self._take(tier, size_of(self.model.state, step))
            case Restore(step, slot, tier):
                self._holds(step, slot, tier)
                if step >= self.end:
                    self._refuse(f"steps from {self.end} on are reversed already")
                self.working = step
                self.restores[tier] += 1
            case Free(step, slot, tier):
                self._holds(step, slot, tier)
                del self.slots[tier, slot]
                self.held[tier] -= size_of(self.model.state, step)
            case Record(step):
                self._at(step)
                if step >= self.end or step in self.tapes:
                    self._refuse("that step is reversed already" if step >= self.end else "its tape is kept already")
                self.tapes.add(step)
                self.tapings += 1
                self.most_tapes = max(self.most_tapes, len(self.tapes))
                self._take(0, size_of(self.model.tape, step))
                self.working = step + 1
            case Turn(step):
                self._at(step)
                self.tapings += 1
                self._reversed(step)
            case Reverse(step):
                if step not in self.tapes:
                    self._refuse("no tape of that step is kept")
                self.tapes.remove(step)
                self.held[0] -= size_of(self.model.tape, step)
                self._reversed(step)
            case EndForward():
                if self.ended:
                    self._refuse("the first sweep has ended before")
                if self.working is None or self.working < self.end - 1:
                    self._refuse(f"the first sweep has come to step {self.working} of {self.end}")
                self.ended = True
            case _:
                self._refuse("that is not an action")

    def finish(self) -> Cost:
        """The counts, once everything is reversed and nothing is held."""
        self.action = None
        if not self.ended:
            self._refuse("the first sweep never ended")
        if self.end:
            self._refuse(f"steps 0 … {self.end - 1} are not reversed")
        if self.slots or self.tapes:
            self._refuse(f"slots {sorted(self.slots)} and the tapes of steps {sorted(self.tapes)} are left")
        advanced = self.advanced if self._starts is None else np.cumsum(self._starts)[:-1].tolist()
        return Cost(
            forwards=self.advanced + self.tapings,
            advances=self.advanced,
            stores=sum(self.stores),
            restores=sum(self.restores),
            peak=self.peaks[0],
            time=self.model.time(advanced, self.stores, self.restores),
            tapes=self.most_tapes,
            peaks=tuple(self.peaks),
        )

    def _at(self, step: int) -> None:
        if self.working != step:
            where = "unknown" if self.working is None else f"that of step {self.working}"
            self._refuse(f"the working state is {where}")

    def _holds(self, step: int, slot: int, tier: int) -> None:
        held = self.slots.get((tier, slot))
        if held != step:
            self._refuse(f"slot {slot} of tier {tier} " + ("is empty" if held is None else f"holds step {held}"))

    def _take(self, tier: int, size: float) -> None:
        self.held[tier] += size
        self.peaks[tier] = max(self.peaks[tier], self.held[tier])
        capacity = self.model.rooms[tier].capacity
        if capacity is not None and self.held[tier] > capacity:
            self._refuse(f"tier {tier} would hold {self.held[tier]:g} of at most {capacity:g}")

    def _reversed(self, step: int) -> None:
        if not self.ended:
            self._refuse("the first sweep has not ended")
        if step != self.end - 1:
            self._refuse(f"the next step to reverse is {self.end - 1}")
        self.end = step
        self.working = None

    def _refuse(self, rule: str) -> NoReturn:
        where = "at the end" if self.action is None else f"action {self.index}, {self.action!r}"
        raise ScheduleError(f"{where}: {rule}", None if self.action is None else self.index)
