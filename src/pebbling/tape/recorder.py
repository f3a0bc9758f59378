"""Keeps what a plan asks for while the user's own loop goes on.

A step is looked at when it has ended: only then it is known which values it read, so a snapshot is taken
one step late, of exactly what is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from ..budget import most_stored
from ..chain import Action, Advance, EndForward, Free, Online, Record, Schedule, Snapshot
from .handle import ValueNode
from .held import HeldStates
from .snapshots import TapeSnapshot, TapeSnapshots


class Recorder(Protocol):
    """What a recording tells of its steps, and what it gets from them at the end."""

    def taping(self, step: int) -> bool:
        """Whether all values of a step that is about to begin are to be kept."""

    def reach(self, step: int, cut: Sequence[ValueNode], values: list[Any]) -> None:
        """A step has ended: the cut before it, and all values made in it if they were to be kept."""

    def finish(self, steps: int) -> HeldStates:
        """The loop has ended."""

    def drop(self) -> None:
        """Let go of everything."""


class PlannedRecorder:
    """Follows a schedule for a known number of steps."""

    def __init__(self, shelf: TapeSnapshots, schedule: Schedule, slow: int | None) -> None:
        """``slow`` is the tier that is in the store."""
        self._shelf, self._schedule, self._slow = shelf, schedule, slow
        self._actions: Iterator[Any] = iter(schedule)
        if slow is not None:
            shelf.most = most_stored(schedule)
        self._ahead: deque[Any] = deque()
        rooms = [schedule.steps if room.capacity is None else int(room.capacity) for room in schedule.model.rooms]
        self.held = HeldStates(0, max(1, sum(rooms)))

    def taping(self, step: int) -> bool:
        place = 0
        while (action := self._peek(place)) is not None and type(action) in (Snapshot, Free):
            place += 1
        return type(action) is Record and action.step == step

    def reach(self, step: int, cut: Sequence[ValueNode], values: list[Any]) -> None:
        state = [node.value for node in cut]
        self.held.working = step, state
        while (action := self._peek(0)) is not None:
            kind = type(action)
            if kind is EndForward or (kind is Advance and step < action.stop - 1):
                return
            self._ahead.popleft()
            if kind is Snapshot:
                keep(self._shelf, self.held, (action.tier, action.slot), step, cut, action.tier == self._slow)
            elif kind is Free:
                self.held.slots.pop((action.tier, action.slot)).drop()
            elif kind is Record:
                self.held.tapes[step] = (list(state), values, {})
                return
            else:
                return

    def finish(self, steps: int) -> HeldStates:
        self.held.steps = steps
        if steps == self._schedule.steps and type(self._peek(0)) is EndForward:
            self._ahead.popleft()
            rest: Iterator[Action] = chain(self._ahead, self._actions)
            self.held.rest = rest
        return self.held

    def drop(self) -> None:
        self.held.drop()

    def _peek(self, place: int) -> Any:
        while len(self._ahead) <= place:
            action = next(self._actions, None)
            if action is None:
                return None
            self._ahead.append(action)
        return self._ahead[place]


class OnlineRecorder:
    """Keeps snapshots of a loop whose length nobody knows."""

    def __init__(self, shelf: TapeSnapshots, online: Online, slow: bool) -> None:
        self._shelf, self._slow = shelf, slow
        if slow:
            shelf.most = online.slots
        self._placement = online.placement()
        self._kept = next(self._placement, None)
        self.held = HeldStates(0, online.slots)

    def taping(self, step: int) -> bool:
        return False

    def reach(self, step: int, cut: Sequence[ValueNode], values: list[Any]) -> None:
        self.held.working = step, [node.value for node in cut]
        kept = self._kept
        while kept is not None and kept.step < step:
            kept = next(self._placement, None)
        if kept is not None and kept.step == step:
            evicted = self.held.slots.pop((0, kept.slot), None)
            if evicted is not None:
                evicted.drop()
            keep(self._shelf, self.held, (0, kept.slot), step, cut, self._slow)
            kept = next(self._placement, None)
        self._kept = kept

    def finish(self, steps: int) -> HeldStates:
        self.held.steps = steps
        return self.held

    def take(self, steps: int) -> HeldStates:
        """All that is held so far, although the chain may go on."""
        taken, self.held = self.finish(steps), HeldStates(0, self.held.capacity)
        return taken

    def drop(self) -> None:
        self.held.drop()


def keep(
    shelf: TapeSnapshots, held: HeldStates, place: Any, step: int, cut: Sequence[ValueNode], slow: bool
) -> TapeSnapshot:
    """Put the cut before a step in its place, and let its nodes know."""
    snapshot = held.slots[place] = shelf.put(step, [node.value for node in cut], slow)
    for position, node in enumerate(cut):
        node.held = [*(node.held or ()), (snapshot, position)]
    return snapshot
