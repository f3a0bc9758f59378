"""A schedule's actions compressed into rows that a compiled loop runs through.

A backward row is (load, start, ahead, store, run, top, last, back): take the state of step
``start`` from slot ``load``; advance ``ahead`` steps; ``run`` times, advance one more step and put
the state into the next slot, from ``store`` on; then reverse ``back`` steps from ``last`` down,
whose states are in slots ``top``, ``top - 1``, … A forward row is (start, ahead, store, run); the
initial state is in slot 0 from the start. All loops inside a row are tight, so what matters is the number of rows:
splits that make the reversed leaves long (``Revolve(…, prefer="runs")``) need 20 times fewer rows
than those that write the fewest snapshots.

Slots are numbered anew, as a stack: a state that a plan only has in hand when its step is turned
gets the slot above those in use, so there is one slot more than the plan has snapshots. A step that
a plan records with its tape is kept by its state here, and evaluated once more when it is reversed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ..chain import Advance, EndForward, Free, Record, Restore, Reverse, Snapshot, Turn, binomial
from ..chain.schedule import Schedule
from ..errors import ScheduleError

BACKWARD = ("load", "start", "ahead", "store", "run", "top", "last", "back")
FORWARD = ("start", "ahead", "store", "run")


@dataclass(frozen=True, eq=False)
class PlanRows:
    """The rows of the first sweep and of the way back, and the number of slots they use."""

    forward: np.ndarray
    backward: np.ndarray
    slots: int


@lru_cache(64)
def binomial_rows(steps: int, slots: int) -> PlanRows:
    """The rows of ``Revolve(steps, slots, prefer="runs")``, made without going through its actions."""
    first, rest = _first_sweep(steps, slots)
    top = len(first) - 1
    back = top + 1
    while back > 1 and first[top - back + 1][0] + back - 1 != steps - 1:
        back -= 1
    backward: list[tuple[int, ...]] = [(top, steps - 1, 0, top + 1, 0, top, steps - 1, back)]
    for slot, start, length in reversed(rest):
        _segment(slot, start, length, slots, backward)
    used = max([top, *(row[3] + row[4] - 1 for row in backward if row[4])])
    return PlanRows(_forward([position for position, _ in first]), _table(backward, 8), used + 1)


def _first_sweep(steps: int, slots: int) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
    """The states kept on the first sweep as (position, slot), and the segments left to reverse after the last leaf."""
    kept, slot, start = [(0, 0)], 0, 0
    rest: list[tuple[int, int, int]] = []
    length = steps
    while length > 1:
        free = slots - 1 - slot
        if length <= free + 2:
            kept += [(start + j, slot + j) for j in range(1, length)]
            return kept, rest
        ahead = length - 1 if free == 0 else binomial.longest_runs(length, free + 1)
        rest.append((slot, start, ahead))
        slot, start, length = slot + 1, start + ahead, length - ahead
        kept.append((start, slot))
    return kept, rest


def _segment(slot: int, start: int, length: int, slots: int, out: list[tuple[int, ...]]) -> None:
    """Reverse ``length`` steps whose first state is in ``slot``, with the slots above it."""
    todo = [(slot, start, length)]
    while todo:
        slot, start, length = todo.pop()
        free = slots - 1 - slot
        if length == 1:
            previous = out[-1]
            if previous[5] - previous[7] == slot and previous[6] - previous[7] == start:
                out[-1] = (*previous[:7], previous[7] + 1)
            else:
                out.append((slot, start, 0, slot + 1, 0, slot, start, 1))
        elif length <= free + 2:
            last = start + length - 1
            before = out[-1]
            if before[7] == 0 and before[3] == slot and before[4] == 1:
                out[-1] = (*before[:4], length, slot + length - 1, last, length)
            else:
                out.append((slot, start, 0, slot + 1, length - 1, slot + length - 1, last, length))
        elif free == 0:
            out.append((slot, start, length - 2, slot + 1, 1, slot + 1, start + length - 1, 1))
            todo.append((slot, start, length - 1))
        else:
            ahead = binomial.longest_runs(length, free + 1)
            out.append((slot, start, ahead - 1, slot + 1, 1, 0, 0, 0))
            todo += [(slot, start, ahead), (slot + 1, start + ahead, length - ahead)]


def _forward(positions: list[int]) -> np.ndarray:
    """Rows that put the states of the given positions into slots 0, 1, 2, …"""
    rows: list[list[int]] = []
    for slot, (before, position) in enumerate(pairwise(positions), 1):
        if position == before + 1 and rows:
            rows[-1][3] += 1
        else:
            rows.append([before, position - before - 1, slot, 1])
    return _table(rows, 4)


@lru_cache(64)
def schedule_rows(schedule: Schedule) -> PlanRows:
    """The rows of any chain plan."""
    if schedule.steps == 0:
        raise ValueError("a schedule of 0 steps has no rows")
    reader = _Reader(schedule.steps)
    for action in _flat(schedule):
        reader.read(action)
    return reader.rows()


def _flat(schedule: Schedule) -> Iterable[object]:
    """Actions, with a kept tape seen as a stored state that is turned from its slot."""
    for action in schedule:
        match action:
            case Record(step):
                yield Snapshot(step, -1 - step, 0)
                yield Advance(step, step + 1)
            case Reverse(step):
                yield Restore(step, -1 - step, 0)
                yield Free(step, -1 - step, 0)
                yield Turn(step)
            case _:
                yield action


class _Reader:
    """Turns actions into rows, one after another."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.slots: dict[tuple[int, int], int] = {}
        self.most = 0
        self.first: list[list[int]] = []
        self.back: list[list[int]] = []
        self.ended = False
        self.at: tuple[int, int] | None = None  # slot and step of the state last seen in a slot
        self.ahead = 0  # steps advanced since

    def read(self, action: object) -> None:
        match action:
            case Advance(start, stop):
                self.ahead += stop - start
            case Snapshot(step, slot, tier):
                target = self._take((tier, slot))
                self._put(step, target)
            case Restore(step, slot, tier):
                self.at, self.ahead = (self.slots[tier, slot], step), 0
            case Free(_, slot, tier):
                del self.slots[tier, slot]
            case Turn(step):
                self._turn(step)
            case EndForward():
                self._end()
            case _:
                raise ScheduleError(f"{action!r} can't be compiled into a loop")

    def _take(self, key: tuple[int, int]) -> int:
        used = set(self.slots.values())
        target = self._above() if self._above() == len(used) else min(set(range(len(used) + 1)) - used)
        self.slots[key] = target
        self.most = max(self.most, target + 1)
        return target

    def _above(self) -> int:
        return 1 + max(self.slots.values(), default=-1)

    def _put(self, step: int, target: int) -> None:
        if not self.ended:
            self._put_first(step, target)
            return
        assert self.at is not None
        slot, start = self.at
        last = self.back[-1] if self.back else None
        if self.ahead == 0:
            if target != slot:
                raise ScheduleError(f"the state of step {step} is stored twice: that can't be compiled into a loop")
            return
        if last and last[7] == 0 and self.ahead == 1 and last[3] + last[4] - 1 == slot and target == slot + 1:
            last[4] += 1
        else:
            self.back.append([slot, start, self.ahead - 1, target, 1, 0, 0, 0])
        self.at, self.ahead = (target, step), 0

    def _put_first(self, step: int, target: int) -> None:
        if self.at is None and step == target == 0:
            pass
        elif self.at is None or self.ahead == 0:
            raise ScheduleError(
                f"the state of step {step} is stored twice, or without the first: that can't be compiled"
            )
        elif self.ahead == 1 and self.first and self.first[-1][2] + self.first[-1][3] == target:
            self.first[-1][3] += 1
        else:
            self.first.append([self.at[1], self.ahead - 1, target, 1])
        self.at, self.ahead = (target, step), 0

    def _end(self) -> None:
        """Close the first sweep: the state in hand, that of the last step, goes into a slot of its own."""
        step = (self.at[1] if self.at else 0) + self.ahead
        if step < self.steps and (self.at is None or self.ahead):
            target = self._above()
            self.most = max(self.most, target + 1)
            self._put_first(step, target)
        self.ended = True

    def _turn(self, step: int) -> None:
        if self.ahead:
            target = self._above()
            self.most = max(self.most, target + 1)
            self._put(step, target)
        assert self.at is not None
        slot = self.at[0]
        last = self.back[-1] if self.back else None
        if last and last[7] and last[5] - last[7] == slot and last[6] - last[7] == step:
            last[7] += 1
        elif last and not last[7] and last[3] + last[4] - 1 == slot:
            last[5:] = [slot, step, 1]
        else:
            self.back.append([slot, step, 0, slot + 1, 0, slot, step, 1])

    def rows(self) -> PlanRows:
        return PlanRows(_table(self.first, 4), _table(self.back, 8), self.most)


def _table(rows: Iterable[Iterable[int]], width: int) -> np.ndarray:
    return np.array([tuple(row) for row in rows], np.int32).reshape(-1, width)
