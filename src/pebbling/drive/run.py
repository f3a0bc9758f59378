"""Runs a plan: a plain loop over its actions with real steps.

The run holds a working state and the step it belongs to, the adjoint, kept tapes and the shelves.
It counts and times what it does, and looks at the clock now and then for whoever wants to be told:
the journal and the progress bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from time import perf_counter
from typing import Any

from ..chain import Action, Advance, EndForward, Free, Record, Restore, Reverse, Store, Turn
from ..errors import CorruptSnapshot, ReplayError
from .holdings import Held, Holdings
from .report import Report
from .shelves import Shelf
from .steps import Adjoint, State, Steps
from .verify import Verifier


class Run:
    """One adjoint run, from its first state to its last adjoint."""

    def __init__(
        self,
        steps: Steps,
        number: int,
        state: State,
        seed: Callable[[State], Adjoint],
        shelves: list[Shelf],
        holdings: Holdings,
        report: Report,
        verifier: Verifier | None = None,
        trace: bool = False,
    ) -> None:
        self.steps, self.number, self.seed = steps, number, seed
        self.first = state
        self.state, self.at = state, 0
        self.adjoint: Adjoint = None
        self.final: State = None
        self.shelves, self.holdings = shelves, holdings
        self.table: dict[tuple[int, int], int] = {}
        self.tapes: dict[int, tuple[Any, Held]] = {}
        self.report, self.verifier = report, verifier
        self.index = 0
        self.phase = "sweep"
        self.every: Callable[[Run, float], float] | None = None
        self.reversed: Callable[[State, Adjoint, int], None] | None = None
        self.deadline = inf
        self._events = report.events if trace else None
        self._kept_first: Held | None = None
        self._handlers: dict[type, Callable[..., str]] = {
            Advance: self.advance,
            Store: self.store,
            Record: self._record,
            Reverse: self._reverse,
            EndForward: self._end_forward,
        }

    def go(self, actions: Iterable[Action], ahead: Iterator[Restore] | None = None) -> None:
        """Take the actions one by one; ``ahead`` are the restores from slow tiers, to be fetched early."""
        try:
            self._go(actions, ahead)
        except ValueError as error:
            if "read-only" in str(error):
                raise ReplayError(
                    f"step {self.at} writes into a state that is stored ({error}): a step must return its result in "
                    "new arrays and leave its input as it is"
                ) from error
            raise

    def _go(self, actions: Iterable[Action], ahead: Iterator[Restore] | None) -> None:
        seconds, steps, shelves, table = self.report.seconds, self.steps, self.shelves, self.table
        clock, handlers = perf_counter, self._handlers
        expected = None if ahead is None else next(ahead, None)
        last = clock()
        action: Any
        for action in actions:
            kind = type(action)
            if kind is Restore:
                step, slot, tier = action
                self.state, self.at = self._restore(step, slot, tier), step
                name = "store"
                if expected is not None and action == expected:
                    expected = self._expect(ahead)
            elif kind is Turn:
                (step,) = action
                state, self.state = self.state, None
                self.adjoint = steps.turn(state, self.adjoint, step)
                self._after_reversal(state, step)
                name = "reverse"
            elif kind is Free:
                step, slot, tier = action
                shelves[tier].free(slot)
                del table[tier, slot]
                name = "store"
            else:
                name = handlers[kind](*action)
                step = action[0] if action else self.number
            self.index += 1
            now = clock()
            seconds[name] += now - last
            if self._events is not None:
                self._events.append((kind.__name__.lower(), step, last, now - last))
            last = now
            if now >= self.deadline:
                self._tick(now)
                last = clock()

    def _expect(self, ahead: Iterator[Restore] | None) -> Restore | None:
        """Fetch the next state from a slow tier early, if it is there already."""
        expected = None if ahead is None else next(ahead, None)
        if expected is not None and self.table.get((expected.tier, expected.slot)) == expected.step:
            self.shelves[expected.tier].expect(expected.slot)
        return expected

    def keep_first(self) -> None:
        """Hold the first state: it is the caller's, and lost snapshots can be computed from it again."""
        self._kept_first = self.holdings.hold(self.first)

    def store(self, step: int, slot: int, tier: int) -> str:
        """Put the working state on a shelf."""
        self.shelves[tier].put(slot, step, self.state)
        self.table[tier, slot] = step
        self.report.stores += 1
        return "store"

    def free(self, step: int, slot: int, tier: int) -> None:
        """Take a state off its shelf."""
        self.shelves[tier].free(slot)
        del self.table[tier, slot]

    def advance(self, start: int, stop: int) -> str:
        """Take steps without a tape."""
        advance, state = self.steps.advance, self.state
        self.report.advances += stop - start
        if self.deadline == inf and not self._looks(start, stop):
            for step in range(start, stop):
                state = advance(state, step)
            self.state, self.at = state, stop
            return "advance"
        del state
        for step in range(start, stop):
            self.state = advance(self.state, step)
            self.at = step + 1
            self.look(self.state, step + 1)
            now = perf_counter()
            if now >= self.deadline and step + 1 < stop:
                self._tick(now)
        return "advance"

    def _looks(self, start: int, stop: int) -> bool:
        verifier = self.verifier
        return verifier is not None and (
            verifier.wanted is None or any(start < step <= stop for step in verifier.wanted)
        )

    def look(self, state: State, step: int) -> None:
        """Let the verifier see a state that was just computed."""
        if self.verifier is not None and self.verifier.wants(step):
            self.verifier.see(state, step)

    def _record(self, step: int) -> str:
        held = self.holdings.hold(self.state)
        self.state, tape = self.steps.record(self.holdings.state(held), step)
        self.tapes[step] = (tape, held)
        self.at = step + 1
        self.report.advances += 1
        self.look(self.state, step + 1)
        return "advance"

    def taped(self, state: State) -> tuple[Any, Held]:
        """A kept tape made again from the state before its step, for steps whose tape is that state."""
        held = self.holdings.hold(state)
        return self.holdings.state(held), held

    def state_of_tape(self, step: int) -> State:
        """The state before a step whose tape is kept."""
        return self.holdings.state(self.tapes[step][1])

    def _reverse(self, step: int) -> str:
        tape, held = self.tapes.pop(step)
        state = self.holdings.state(held)
        self.adjoint = self.steps.reverse(tape, self.adjoint, step)
        self._after_reversal(state, step)
        self.holdings.release(held)
        return "reverse"

    def _after_reversal(self, state: State, step: int) -> None:
        self.report.reversals += 1
        if self.reversed is not None:
            self.reversed(state, self.adjoint, step)

    def _end_forward(self) -> str:
        if self.at < self.number:
            held = self.holdings.hold(self.state)
            self.final = self.steps.advance(self.holdings.state(held), self.at)
            self.holdings.release(held)
            self.report.advances += 1
        else:
            self.final = self.state
        self.adjoint = self.seed(self.final)
        return "advance"

    def _restore(self, step: int, slot: int, tier: int) -> State:
        self.report.restores += 1
        try:
            return self.shelves[tier].get(slot)
        except CorruptSnapshot:
            return self._recover(step, slot, tier)

    def _recover(self, step: int, slot: int, tier: int) -> State:
        """Compute a damaged snapshot again from the latest good one before it, and put it back."""
        state, at = self.first, 0
        earlier = sorted(((held, place) for place, held in self.table.items() if held < step), reverse=True)
        for held, (other_tier, other_slot) in earlier:
            try:
                state, at = self.shelves[other_tier].get(other_slot), held
                break
            except CorruptSnapshot:
                continue
        for number in range(at, step):
            state = self.steps.advance(state, number)
        self.report.advances += step - at
        self.report.recovered += 1
        self.shelves[tier].put(slot, step, state)
        return state

    def _tick(self, now: float) -> None:
        assert self.every is not None
        self.deadline = self.every(self, now)

    def finish(self) -> None:
        """Complete the report."""
        report = self.report
        report.steps = self.number
        report.forwards = report.advances + report.reversals
        report.compared = 0 if self.verifier is None else self.verifier.compared
        for shelf in self.shelves:
            report.written[shelf.name], report.read[shelf.name] = shelf.written, shelf.read
            report.peak[shelf.name] = shelf.peak

    def clear(self) -> None:
        """Let go of everything that is held."""
        for shelf in self.shelves:
            shelf.clear()
        for _, held in self.tapes.values():
            self.holdings.release(held)
        self.tapes.clear()
        self.table.clear()
        if self._kept_first is not None:
            self.holdings.release(self._kept_first)
            self._kept_first = None
