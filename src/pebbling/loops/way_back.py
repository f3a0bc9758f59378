"""The way back over one loop: the rest of its schedule, with cotangents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..chain import Advance, Free, Record, Restore, Reverse, Snapshot, Turn
from ..chain.runs import Turns
from .play import parted

if TYPE_CHECKING:
    from .checkpointed import SweptLoop

WORKING = -1
"""The slot of the state before the last step, between the sweep and the way back."""


class LoopWayBack:
    """Takes the cotangents of a loop's outputs to its inputs; nothing of a step outlives it."""

    def __init__(self, passage: SweptLoop, seeds: list[Any], into: list[Any], outs: int, emitted: list[int]) -> None:
        """``seeds`` is used up; ``into`` is added to. ``outs`` and ``emitted`` count the outputs besides the state."""
        self.passage, self.into, self.rich = passage, into, passage.program.rich
        width = self.width = passage.width
        self.cotangents, self.outs, self.emitted = parted(seeds, width, outs, emitted)
        self.first, self.none = into[:width], [None] * width
        replays, last = passage.replays, passage.steps - 1
        self.seen_from = 0 if replays.all else last if replays.on else passage.steps
        self.wrt = [*passage.reached, *passage.wanted]
        into[:width] = self.none

    def go(self, actions: Iterable[Any]) -> None:
        """Take the actions one by one."""
        passage, shelf, program = self.passage, self.passage.shelf, self.passage.program
        consts, tapes, replays = passage.consts, passage.tapes, passage.replays
        tiers = passage.tiers
        stored = bool(passage.stores)
        state = shelf.take(WORKING) if passage.at_last else []
        pending, at = None, 0
        for action in actions:
            kind = type(action)
            if pending is not None and kind is not Record:
                state = self._record(state, pending, at)
                pending = None
            if kind is Turn:
                self._turn(state, action[0], action[0] + 1)
            elif kind is Restore:
                state = passage.restore(action[1], action[2]) if stored else shelf.get(action[1])
            elif kind is Advance:
                start, stop = action
                if replays.all:
                    state = self._advance_seen(state, start, stop)
                else:
                    state = program.advance(state, consts, start, stop)
            elif kind is Turns:
                start, stop, slot = action
                self._turn(state if slot < 0 else shelf.take(slot), start, stop)
            elif kind is Snapshot:
                tiers[action[2]].put(action[1], state, action[0])
            elif kind is Free:
                tiers[action[2]].free(action[1])
            elif kind is Record:
                (step,) = action
                pending, at = step if pending is None else pending, step + 1
            elif kind is Reverse and tapes and tapes[-1].stop == action[0] + 1:
                block = tapes.pop()
                self._pull(block.start, block.stop, block.outs, block.pullback)
                del block
        self.into[: self.width] = self._summed()

    def _turn(self, state: list[Any], start: int, stop: int) -> None:
        """Steps ``start … stop-1`` with a tape, and back."""
        passage = self.passage
        outputs, pullback = passage.tape(state, start, stop, self.wrt)
        if stop > self.seen_from:
            passage.see(stop, outputs[: self.width])
        outputs.clear()
        self._pull(start, stop, passage.taped.outs, pullback)

    def _record(self, state: list[Any], start: int, stop: int) -> list[Any]:
        passage = self.passage
        passage.state = state
        passage.record(start, stop, self.wrt)
        state, passage.state = passage.state, []
        if stop > self.seen_from:
            passage.see(stop, state)
        return state

    def _pull(self, start: int, stop: int, outs: int, pullback: Any) -> None:
        """Cotangents over steps ``start … stop-1``."""
        into = self.into
        cotangents, self.cotangents = self.cotangents, []
        if self.rich:
            for stay in self.passage.lasting.until(start, stop):
                emitted = self.emitted[stay.step]
                into[stay.places[start - stay.first]], emitted[stay.position] = emitted[stay.position], None
            cotangents += self.outs if stop == self.passage.steps else [None] * outs
            for parts in self.emitted[start:stop]:
                cotangents += parts
            del self.emitted[start:]
            self.outs = []
        if start == 0:
            into[: self.width], self.first = self.first, []
        pullback(cotangents, into)
        self.cotangents = into[: self.width]
        into[: self.width] = self.none

    def _advance_seen(self, state: list[Any], start: int, stop: int) -> list[Any]:
        passage = self.passage
        for step in range(start, stop):
            state = passage.program.advance(state, passage.consts, step, step + 1)
            passage.see(step + 1, state)
        return state

    def _summed(self) -> list[Any]:
        """The cotangents of the initial state; without a step they are those of the final one, to be added."""
        if not self.first:
            return self.cotangents
        return [
            new if old is None else old if new is None else old + new for old, new in zip(self.first, self.cotangents)
        ]
