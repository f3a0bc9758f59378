"""Runs a plan: a plain loop over its actions with real steps.

The run holds a working state and the step it belongs to, the adjoint, kept tapes and the shelves.
It counts and times what it does, and looks at the clock now and then for whoever wants to be told:
the journal and the progress bar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from time import perf_counter
from typing import Any

from ..chain import Action, Advance, EndForward, Free, Record, Restore, Reverse, Snapshot, Turn
from ..errors import CorruptSnapshot, ResumeError
from ..logs import alarm
from ..tree import copy
from .holdings import Held, Holdings
from .report import Report
from .shelves import MemoryShelf, Shelf
from .steps import Adjoint, State, Steps
from .verify import Verifier

OVER = "over"
"""The phase of a run of which nothing but the result is left."""


class Run:
    """One adjoint run, from its first state to its last adjoint."""

    def __init__(
        self,
        steps: Steps,
        number: int,
        first: Held,
        seed: Callable[[State], Adjoint],
        shelves: list[Shelf],
        holdings: Holdings,
        report: Report,
        verifier: Verifier | None = None,
        trace: bool = False,
    ) -> None:
        self.steps, self.number, self.seed = steps, number, seed
        self._first = first
        self.state, self.at = holdings.state(first), 0
        self.adjoint: Adjoint = None
        self._final: Held | None = None
        self.shelves, self.holdings = shelves, holdings
        self.table: dict[tuple[int, int], int] = {}
        self.tapes: dict[int, Held] = {}
        self.report, self.verifier = report, verifier
        self.index = 0
        self.phase = "sweep"
        self._doing = ""
        self.every: Callable[[Run, float], float] | None = None
        self.reversed: Callable[[State, Adjoint, int], None] | None = None
        self.deadline = inf
        self._ahead: Iterator[Restore] | None = None
        self._events = report.events if trace else None
        if verifier is not None and verifier.all:
            verifier.see(self.state, 0)

    def first(self) -> State:
        """The initial state, as it was: lost snapshots can be computed from it again."""
        return self.holdings.state(self._first)

    def go(self, actions: Iterable[Action], ahead: Iterator[Restore] | None = None) -> None:
        """Take the actions one by one; ``ahead`` are the restores from slow tiers, to be fetched early."""
        seconds, shelves, table, events = self.report.seconds, self.shelves, self.table, self._events
        clock, handlers, kinds = perf_counter, _HANDLERS, _KINDS_OF_TIME
        watched = events is not None or self.deadline != inf
        self._ahead = ahead
        if ahead is not None and self._final is not None:
            self._expect()
        last, before = clock(), "advance"
        action: Any
        for action in actions:
            kind = type(action)
            name = kinds[kind]
            if name is not before:
                now = clock()
                seconds[before] += now - last
                last, before = now, name
            if kind is Restore:
                step, slot, tier = action
                self.state, self.at = self._restore(step, slot, tier), step
            elif kind is Free:
                step, slot, tier = action
                shelves[tier].free(slot)
                del table[tier, slot]
            else:
                handlers[kind](self, *action)
            self.index += 1
            if watched:
                now = clock()
                seconds[name] += now - last
                if events is not None:
                    events.append((kind.__name__.lower(), action[0] if action else self.number, last, now - last))
                last = now
                if now >= self.deadline:
                    self.tick(now)
                    last = clock()
        seconds[before] += clock() - last

    def tick(self, now: float) -> None:
        """Let those who wait for it look at the run."""
        assert self.every is not None
        self.deadline = self.every(self, now)

    def look(self, state: State, step: int) -> None:
        """Let the verifier see a state that was just computed."""
        if self.verifier is not None and self.verifier.wants(step):
            self.verifier.see(state, step)

    def advance(self, start: int, stop: int) -> None:
        """Take steps without a tape."""
        advance, verifier, report = self.steps.advance, self.verifier, self.report
        if self.deadline == inf and (verifier is None or not verifier.wants_any(start, stop)):
            state, self.state = self.state, None
            try:
                for step in range(start, stop):
                    state = advance(state, step)
            except BaseException:
                self.at = step
                raise
            self.state, self.at = state, stop
            report.advances += stop - start
            return
        for step in range(start, stop):
            self.state = advance(self.state, step)
            self.at = step + 1
            report.advances += 1
            self.look(self.state, step + 1)
            now = perf_counter()
            if now >= self.deadline and step + 1 < stop:
                self.tick(now)

    def _store(self, step: int, slot: int, tier: int) -> None:
        self.shelves[tier].put(slot, step, self.state)
        self.table[tier, slot] = step
        self.report.stores += 1

    def _record(self, step: int) -> None:
        holdings, verifier = self.holdings, self.verifier
        held = self.tapes[step] = holdings.hold(self.state, True)
        self.state = None
        self.state = self.steps.advance(holdings.state(held), step)
        self.at = step + 1
        self.report.advances += 1
        if verifier is not None and (verifier.all or verifier.target == step + 1):
            verifier.see(self.state, step + 1)

    def keep_tape(self, state: State, step: int) -> None:
        """Keep the state before a step as its tape."""
        self.tapes[step] = self.holdings.hold(state, keep=True)

    def state_of_tape(self, step: int) -> State:
        """The state before a step whose tape is kept."""
        return self.holdings.state(self.tapes[step])

    def _turn(self, step: int) -> None:
        held, self.state = self.holdings.hold(self.state), None
        self._back(step, held, keep=False)

    def _reverse(self, step: int) -> None:
        held = self.tapes.pop(step)
        self.at = step
        if self.verifier is not None and self.verifier.all:
            self.verifier.see(self.holdings.state(held), step, kept=True)
        self._back(step, held, keep=True)

    def _back(self, step: int, held: Held, keep: bool) -> None:
        holdings = self.holdings
        try:
            self.adjoint = self.steps.turn(holdings.state(held), self.adjoint, step)
        except BaseException:
            self._doing = f"the reversal of step {step}"
            raise
        if held.versions is not None:
            holdings.check(held)
        self.report.reversals += 1
        if self.reversed is not None:
            self.reversed(holdings.state(held), self.adjoint, step)
        holdings.release(held, keep)

    def _end_forward(self) -> None:
        if self.at < self.number:
            held = self.holdings.hold(self.state)
            self.state = self.holdings.state(held)
            final = self.steps.advance(self.holdings.state(held), self.at)
            self.holdings.check(held)
            self.holdings.release(held)
            self.report.advances += 1
        else:
            final = self.state
        self.keep_final(final)
        # The user's code may write into the adjoint, so it must not share memory with the final state.
        try:
            self.adjoint = copy(self.seed(self.final))
        except BaseException:
            self._doing = "seed"
            raise
        self._expect()

    def keep_final(self, state: State) -> None:
        """Hold the final state until the run is over: later steps must not write into it."""
        self._final = self.holdings.hold(state)

    @property
    def final(self) -> State:
        """The final state, or ``None`` while it is not known."""
        return None if self._final is None else self.holdings.state(self._final)

    @property
    def has_final(self) -> bool:
        """Whether the final state is known."""
        return self._final is not None

    def _expect(self) -> None:
        """Start to fetch the next state from a slow tier, if it is there already."""
        expected = None if self._ahead is None else next(self._ahead, None)
        if expected is not None and self.table.get((expected.tier, expected.slot)) == expected.step:
            self.shelves[expected.tier].expect(expected.slot)

    def _restore(self, step: int, slot: int, tier: int) -> State:
        self.report.restores += 1
        shelf = self.shelves[tier]
        if isinstance(shelf, MemoryShelf):
            state = shelf.get(slot)
            if self.verifier is not None and self.verifier.all:
                self.verifier.see(state, step, kept=True)
            return state
        try:
            state = self._fetch(step, slot, tier)
        except CorruptSnapshot:
            state = self._recover(step, slot, tier)
        self._expect()
        return state

    def _fetch(self, step: int, slot: int, tier: int) -> State:
        """A state from its shelf, or a ``CorruptSnapshot``."""
        shelf = self.shelves[tier]
        state = shelf.get(slot)
        if self.verifier is not None and self.verifier.all:
            with shelf.together("comparing a snapshot"):
                if not self.verifier.agrees(state, step):
                    raise CorruptSnapshot(f"the snapshot of step {step} did not come back as it was stored")
        return state

    def _recover(self, step: int, slot: int, tier: int) -> State:
        """Compute a damaged snapshot again from the latest good one before it, and put it back."""
        state, at = self._latest(step)
        alarm("the snapshot of step %d in tier %d is damaged: computed again from step %d", step, tier, at)
        self.report.advances += step - at
        self.report.recovered += 1
        for self.at in range(at, step):
            state = self.steps.advance(state, self.at)
        self.look(state, step)
        self.shelves[tier].put(slot, step, state)
        return state

    def _latest(self, step: int) -> tuple[State, int]:
        """The latest good snapshot before ``step``."""
        earlier = sorted(((held, place) for place, held in self.table.items() if held < step), reverse=True)
        for held, (tier, slot) in earlier:
            with suppress(CorruptSnapshot):
                return self._fetch(held, slot, tier), held
        return self.first(), 0

    def finish(self) -> None:
        """Complete the report."""
        self.holdings.check(self._first)
        if not self.has_final or self.report.reversals != self.number:
            raise ResumeError(
                f"the run went back over {self.report.reversals} of {self.number} steps: what it was resumed from is "
                "not what was written"
            )
        self.phase = OVER
        report = self.report
        report.steps = self.number
        report.forwards = report.advances + report.reversals
        report.compared = 0 if self.verifier is None else self.verifier.compared
        for shelf in self.shelves:
            report.written[shelf.name], report.read[shelf.name] = shelf.written, shelf.read
            report.peak[shelf.name] = shelf.peak
        if self.holdings.peak:
            report.peak["memory"] = self.holdings.peak

    def where(self) -> str:
        """What was being done, for messages."""
        return self._doing or f"step {self.at}"


_HANDLERS: dict[type, Callable[..., None]] = {
    Advance: Run.advance,
    Snapshot: Run._store,
    Record: Run._record,
    Turn: Run._turn,
    Reverse: Run._reverse,
    EndForward: Run._end_forward,
}
_KINDS_OF_TIME: dict[type, str] = {
    **dict.fromkeys((Advance, Record, EndForward), "advance"),
    **dict.fromkeys((Turn, Reverse), "reverse"),
    **dict.fromkeys((Snapshot, Restore, Free), "store"),
}
