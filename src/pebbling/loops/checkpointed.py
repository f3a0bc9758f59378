"""One loop under a derivative: the sweep that lays snapshots, and the way back over them.

The sweep runs the loop on plain values. The way back follows the rest of the schedule: replays run
on plain values too, and one step at a time (or the few that the schedule keeps tapes of) runs with a
tape. What is differentiated is exactly what a tape of the whole loop would follow: leaves of the
state that nothing differentiated has reached are never traced. Where there are such leaves, the sweep
runs with tapes as well, each dropped after its step, to see when one is reached.

Snapshots are used up on the way; a second way back begins with a new sweep. For four steps and two slots:

    sweep    Snapshot(0) Advance(0, 1) Snapshot(1) Advance(1, 3); the last step runs too, for the outputs
    back     Turn(3): with a tape, and back; Restore(1) Advance(1, 2) Turn(2); Restore(1) Turn(1); Restore(0) Turn(0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from numpy import ndarray

from ..budget import in_store, most_stored
from ..chain import Advance, EndForward, Free, Online, Record, Runs, Schedule, Snapshot
from ..engine.numpy.hold import is_held
from ..engine.protocol import Pullback
from ..errors import CorruptSnapshot
from ..refusal import Region
from ..store import Store
from ..tree.reach import arrays_near
from .emitted_aliases import EmittedAliases
from .frameworks import Framework
from .play import sweep_unknown
from .program import Leaves, Program
from .slots import ArraySlots, StoredArrays
from .undeclared import refuse_traced
from .verify import ReplayDigests
from .way_back import WORKING, LoopWayBack


class RecordedBlock(NamedTuple):
    """Steps ``start … stop-1`` on one tape; ``outs`` of its outputs are those of its last step alone."""

    start: int
    stop: int
    outs: int
    pullback: Pullback


def _nothing() -> None:
    pass


class SweptLoop:
    """What a loop leaves behind for its derivative."""

    def __init__(
        self,
        framework: Framework,
        program: Program,
        schedule: Schedule | Online,
        level: int,
        state: Leaves,
        consts: Leaves,
        live: list[bool],
        wanted: list[bool],
        verify: str | bool = "last",
        written: Sequence[int] = (),
        ties: dict[int, int] | None = None,
        store: Store | None = None,
        in_bytes: bool = False,
    ) -> None:
        """``live`` and ``wanted`` mark the leaves of the state and the constants that are differentiated.

        ``ties`` are the places that begin as the same value as another one. ``in_bytes`` says that a budget in bytes
        chose the schedule.
        """
        self.framework, self.program, self.schedule, self.level = framework, program, schedule, level
        self.width, self.consts = len(state), consts
        assert framework.engine is not None
        self.step_vjp = framework.engine.step_vjp
        self.live, self.reached, self.wanted = live, list(live), wanted
        self.shelf = ArraySlots(framework, written)
        self.tiers: list[ArraySlots | StoredArrays] = [self.shelf]
        self.stores: list[StoredArrays] = []
        if store is not None:
            self.stores = [StoredArrays(store, most_stored(schedule), self.shelf)]
            self.tiers = [self.stores[0] if one else self.shelf for one in in_store(schedule, store, in_bytes)]
        self.taped = TapedSteps(program, self.width, framework, level, ties or {})
        self.replays = ReplayDigests(verify, framework.plain)
        self.watching = not all(live)
        self._watch = program.may_catch()
        self.check: Callable[[], None] = _nothing
        """Called before a derivative is taken back."""
        self.first: Leaves = []
        self._begin(state)

    def _begin(self, state: Leaves) -> None:
        """Keep the initial state; the sweep starts from it, and so does a second one."""
        shelf = self.shelf
        for leaf in self.consts:
            if type(leaf) is ndarray:
                shelf.lock(leaf)
        shelf.put(WORKING, state)
        self.first = shelf.get(WORKING)
        self.state = state if not shelf.written else shelf.get(WORKING)
        self.tapes: list[RecordedBlock] = []
        self.actions: Iterator[Any] = iter(())
        """What is left of the schedule after the sweep."""
        self.at, self.steps, self.at_last = 0, 0, False
        self.flag: Any = None
        self.outs: Sequence[Any] = ()
        self.emitted: list[Sequence[Any]] = []
        self.counts: tuple[int, list[int]] = (0, [])
        self.lasting = self.taped.lasting = EmittedAliases()
        self.spent = False

    def sweep(self) -> None:
        """Run the loop to its end and lay the snapshots of its schedule; ``state`` is then the final one."""
        try:
            with Region(self._written, self._watch):
                if isinstance(self.schedule, Online) and self.program.length is None:
                    self.actions = sweep_unknown(self, self.schedule)
                    self.shelf.free(WORKING)
                    self.steps = self.at
                else:
                    self._sweep_planned()
        except BaseException:
            self.clear()
            raise
        if self.replays.on:
            self.see(self.steps, self.state)
        refuse_traced(self.framework, self.program, [*self.state, *self.outs], self._name, self.level)

    def let_go(self) -> None:
        """Give up the outputs: the way back only needs to know how many there are."""
        self.counts = len(self.outs), [len(part) for part in self.emitted]
        self.state, self.outs, self.emitted = [], (), []
        self.lasting.end()

    @property
    def outputs(self) -> int:
        """How many outputs the loop has: its state, those of the last step, and those of every step."""
        return self.width + self.counts[0] + sum(self.counts[1])

    def _name(self, place: int) -> str:
        names = self.program.names(self.width)
        return names[place] if place < self.width else f"output {place - self.width}"

    def _sweep_planned(self) -> None:
        schedule = self.schedule
        assert isinstance(schedule, Schedule)
        self.steps = schedule.steps
        self.actions = schedule.coarse() if isinstance(schedule, Runs) else iter(schedule)
        shelf = self.shelf
        pending: int | None = None
        for action in self.actions:
            kind = type(action)
            if pending is not None and kind is not Record:
                self.record(pending, self.at, [*self.live, *self.wanted])
                pending = None
            if kind is Advance:
                self.forward(action[1])
            elif kind is Snapshot:
                self.lay(action[1], action[2])
            elif kind is Record:
                pending = self.at if pending is None else pending
                self.at = action[0] + 1
            elif kind is Free:
                self.drop(action[1], action[2])
            elif kind is EndForward:
                break
        shelf.free(WORKING)
        self.at_last = self.at < self.steps
        if self.at_last:
            shelf.put(WORKING, self.state)
            self.forward(self.steps)

    def lay(self, slot: int, tier: int) -> None:
        """Keep the state that the sweep is at."""
        self.tiers[tier].put(slot, self.state, self.at)

    def drop(self, slot: int, tier: int) -> None:
        """Let go of a snapshot."""
        self.tiers[tier].free(slot)

    def forward(self, stop: int) -> None:
        """Take steps of the sweep, one by one where there is more to see than their state."""
        program, at = self.program, self.at
        while at < stop and (self.watching or program.rich or self.replays.all):
            state, self.state = self.state, []
            self._forward_one(state, at)
            at += 1
            if self.replays.all and at < stop:
                self.see(at, self.state)
        if at < stop:
            state, self.state = self.state, []
            self.state = program.advance(state, self.consts, at, stop)
        self.at = stop

    def _forward_one(self, state: Leaves, step: int) -> None:
        emitted: Sequence[Any]
        if self.watching:
            outputs, _ = self.tape(state, step, step + 1, [*self.live, *self.wanted])
            taped = self.taped
            self._arrived(taped.live)
            self.flag, self.outs = taped.flag, outputs[self.width : self.width + taped.outs]
            emitted = outputs[self.width + taped.outs :]
            self.state = outputs[: self.width]
        else:
            self.flag, self.state, self.outs, emitted = self.program.full(state, self.consts, step)
        if self.program.rich:
            self.emitted.append(emitted)
            self.lasting.see(step, step + 1, self.state, [emitted])

    def _arrived(self, live: list[bool]) -> None:
        self.live = live
        self.reached = [one or other for one, other in zip(self.reached, live)]
        self.watching = not all(live)

    def tape(self, state: Leaves, start: int, stop: int, wrt: list[bool]) -> tuple[list[Any], Pullback]:
        """Run steps with a tape; ``state`` comes back empty. ``wrt`` marks the leaves to differentiate."""
        taped = self.taped
        taped.start, taped.stop, taped.inputs = start, stop, state
        state += self.consts
        return self.step_vjp(taped, state, wrt)

    def record(self, start: int, stop: int, wrt: list[bool]) -> None:
        """Take steps from the working state with one tape that is kept until they are reversed."""
        outputs, pullback = self.tape(self.state, start, stop, wrt)
        taped, width = self.taped, self.width
        if taped.looking:
            self._arrived(taped.live)
        self.flag, self.outs = taped.flag, outputs[width : width + taped.outs]
        at = width + taped.outs
        self.state = outputs[:width]
        emitted = []
        for count in taped.emitted:
            emitted.append(outputs[at : at + count])
            at += count
        if not self.spent:
            self.emitted += emitted
            self.lasting.see(start, stop, self.state, emitted)
        self.tapes.append(RecordedBlock(start, stop, taped.outs, pullback))

    def back(self, seeds: list[Any], into: list[Any]) -> None:
        """Take cotangents of all outputs back and add them to ``into``: those of the state, then of the constants.

        ``seeds`` holds one entry an output: the state, the last outputs, and the emitted ones; it is used up.
        """
        self.check()
        if self.spent:
            self.live, self.watching = self.reached, False
            self._begin(self.first)
            self.sweep()
            self.let_go()
        self.spent, self.taped.looking = True, False
        try:
            with Region(self._written, self._watch):
                LoopWayBack(self, seeds, into, *self.counts).go(self.actions)
        finally:
            self.clear()

    def clear(self) -> None:
        """Let go of all snapshots."""
        for store in self.stores:
            store.clear()
        self.shelf.clear()

    def restore(self, slot: int, tier: int) -> Leaves:
        """A state to go on from; one that a store has damaged is computed again, and put back."""
        try:
            return self.tiers[tier].get(slot)
        except CorruptSnapshot:
            step = self.tiers[tier].steps[slot]
        at, state = self._latest(step)
        state = self.program.advance(state, self.consts, at, step)
        self.tiers[tier].put(slot, state, step)
        return state

    def _latest(self, step: int) -> tuple[int, Leaves]:
        """The latest good snapshot before a step, or the state that the loop began with."""
        held = [(at, slot, tier) for tier in self.tiers for slot, at in tier.steps.items() if slot != WORKING]
        for at, slot, tier in sorted([one for one in held if one[0] < step], key=lambda one: one[:2], reverse=True):
            with suppress(CorruptSnapshot):
                return at, tier.get(slot)
        return 0, list(self.first)

    def see(self, step: int, state: Sequence[Any]) -> None:
        """Look at the state before ``step``, to compare it with the same one at another time."""
        self.replays.see(step, state, self.program.where(), self.program.names)

    def _written(self, error: ValueError, frame: FrameType) -> Exception | None:
        """What to say of a write into an array that is locked: ``None`` if the user has locked it."""
        if not any(is_held(key) for near in arrays_near(frame) for key in near):
            return None
        return self.program.written_into(error, frame)


class TapedSteps:
    """Steps ``start … stop-1`` as one function of flat leaves, and what was seen while it ran on traced ones."""

    __slots__ = (
        "differentiable",
        "emitted",
        "flag",
        "framework",
        "inputs",
        "lasting",
        "level",
        "live",
        "looking",
        "outs",
        "program",
        "start",
        "stop",
        "ties",
        "width",
    )

    def __init__(
        self, program: Program, width: int, framework: Framework, level: int, ties: dict[int, int] | None = None
    ) -> None:
        assert framework.engine is not None
        self.program, self.width, self.framework, self.level = program, width, framework, level
        self.differentiable = framework.engine.differentiable
        self.ties = ties or {}
        self.start = self.stop = 0
        self.looking = True
        self.lasting = EmittedAliases()
        self.live: list[bool] = []
        self.flag: Any = None
        self.outs = 0
        self.emitted: list[int] = []
        self.inputs: list[Any] = []

    def __call__(self, given: list[Any]) -> list[Any]:
        program, width = self.program, self.width
        for place, keeper in self.ties.items():
            # One value under two names: cotangents of both are added up in the order in which they come.
            if place >= width or self.start == 0:
                given[place] = self.framework.share(given[keeper])
        state, consts = given[:width], given[width:]
        # A run of steps is long: the state before it must not live until its end.
        given.clear()
        self.inputs.clear()
        if not program.rich:
            state = program.advance(state, consts, self.start, self.stop)
            if self.looking:
                self._look(state)
            return state
        outs: Sequence[Any] = ()
        emitted: list[Any] = []
        self.emitted = []
        for step in range(self.start, self.stop):
            self.flag, state, outs, part = program.full(state, consts, step)
            self.lasting.check(step, state, part, self._above, program.where())
            emitted += part
            self.emitted.append(len(part))
        if self.looking:
            self._look(state)
        self.outs = len(outs)
        return [*state, *outs, *emitted]

    def _above(self, leaf: Any) -> int:
        return int(self.framework.level(leaf) > self.level)

    def _look(self, state: Leaves) -> None:
        level, differentiable = self.framework.level, self.differentiable
        self.live = [level(leaf) > self.level or not differentiable(leaf) for leaf in state]
