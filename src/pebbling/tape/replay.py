"""Replays what was recorded, forward and back, with the snapshots that a schedule asks for.

A run belongs to one pullback or hvp and to nothing else. It interprets templates: an op is called on
values, not on handles, and every value is dropped as soon as nothing ahead needs it. Loops inside steps
are passages of their own; nesting of loops is the only recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from ..chain import Action, Advance, EndForward, Free, Record, Restore, Schedule, Snapshot, Turn
from ..drive.tracing import TracedMemory
from ..errors import CorruptSnapshot, ReplayError
from .derivative_order import DualValue, FirstOrder, SecondOrder
from .handle import ABSENT, Box
from .held import HeldStates
from .liveness import CallPlan, ChainPlan, StepPlan
from .marks import UNKNOWN, mark
from .record import CUT, EXTRA, NEW, OUTER, OpCall, RecordedChain
from .snapshots import TapeSnapshots


class ReplayRun:
    """What all passages of one pullback or hvp share."""

    def __init__(
        self,
        order: FirstOrder | SecondOrder,
        shelf: TapeSnapshots,
        plan: Callable[[ChainReplay], Schedule],
        verify: bool,
    ) -> None:
        """``plan`` gives the schedule of a chain that is swept again."""
        self.order, self.shelf, self.plan = order, shelf, plan
        self.verify = verify and not shelf.lossy
        self.cotangents: dict[Box, Any] = {}
        """Of boxes; those of leaves are the result."""


class ChainReplay:
    """One chain of a run, on the values of the loop's surroundings."""

    def __init__(self, run: ReplayRun, chain: RecordedChain, chain_plan: ChainPlan, outer: Sequence[Any]) -> None:
        self.run, self.order, self.chain, self.chain_plan = run, run.order, chain, chain_plan
        self.outer = outer
        self.outer_cotangents: list[Any] = []
        self.cotangents: list[Any] = []
        self.held = HeldStates(len(chain), 1)

    def through(self) -> list[Any]:
        """Go through the chain without keeping anything; the values that outlive it."""
        state: list[Any] = []
        for step in range(len(self.chain)):
            state = self.advance(step, state)
        return state

    def sweep(self, schedule: Iterable[Action]) -> list[Any]:
        """Go through the chain and keep what the schedule asks for; the values that outlive it."""
        state: list[Any] = []
        at, held = 0, self.held
        actions = iter(schedule)
        action: Any
        for action in actions:
            kind = type(action)
            if kind is Advance:
                for at in range(action.start, action.stop):
                    state = self.advance(at, state)
                at = action.stop
            elif kind is Record:
                state = self._record(action.step, state)
                at = action.step + 1
            elif kind is Snapshot:
                self._store(action, state)
            elif kind is Free:
                held.slots.pop((action.tier, action.slot)).drop()
            elif kind is EndForward:
                break
        held.rest = actions
        if at < len(self.chain):
            held.working = at, state
            for step in range(at, len(self.chain)):
                state = self.advance(step, state)
        return state

    def back(self, held: HeldStates, cotangents: list[Any], outer: Sequence[Any] = ()) -> list[Any]:
        """Take the cotangents of the values that outlive the chain back to those of its surroundings.

        Those that the surroundings have already are given, so that sums are formed in the order of the program,
        however it is cut into loops. ``cotangents`` comes back empty.
        """
        self.held, self.cotangents, self.outer_cotangents = held, list(cotangents), list(outer)
        cotangents.clear()
        state = held.working[1] if held.working is not None else []
        actions = held.actions()
        held.working = None
        action: Any
        for action in actions:
            kind = type(action)
            if kind is Turn:
                self._turn(action.step, state)
                state = []
            elif kind is Restore:
                state = self._restore(action)
            elif kind is Advance:
                for step in range(action.start, action.stop):
                    state = self.advance(step, state)
            elif kind is Snapshot:
                self._store(action, state)
            elif kind is Free:
                held.slots.pop(_place(action)).drop()
            elif kind is Record:
                state = self._record(action.step, state)
            elif kind is not EndForward:
                kept, env, inner = held.tapes.pop(action.step)
                self._reverse(action.step, kept, env, inner)
                kept = env = inner = None
        return self.outer_cotangents

    def try_turn(self) -> int:
        """The most bytes that reversing the first step allocates."""
        run = ReplayRun(self.order, self.run.shelf, self.run.plan, verify=False)
        trial = ChainReplay(run, self.chain, self.chain_plan, self.outer)
        with TracedMemory() as traced, np.errstate(all="ignore"):
            after = trial.advance(0, [])
            trial.cotangents = [self.order.doubled(value) for value in after]
            after.clear()
            trial.outer_cotangents = [None] * len(self.outer)
            trial._turn(0, [])
        return traced.peak

    def advance(self, step: int, state: list[Any]) -> list[Any]:
        """The cut after a step, as far as it is needed."""
        step_plan = self.chain_plan.at(step)
        env, _ = self._forward(step, step_plan.advance, state, lay=False)
        return self._carried(step, step_plan, state, env)

    def _record(self, step: int, state: list[Any]) -> list[Any]:
        step_plan = self.chain_plan.at(step)
        env, inner = self._forward(step, step_plan.turn, state, lay=True, keep=True)
        self.held.tapes[step] = (state, env, inner)
        if any(kind == NEW and env[index] is ABSENT for _, (kind, index) in step_plan.carry):
            return self.advance(step, state)
        return self._carried(step, step_plan, state, env)

    def _turn(self, step: int, state: list[Any]) -> None:
        env, inner = self._forward(step, self.chain_plan.at(step).turn, state, lay=True)
        self._reverse(step, state, env, inner)

    def _carried(self, step: int, step_plan: StepPlan, state: list[Any], env: list[Any]) -> list[Any]:
        after: list[Any] = [ABSENT] * len(self.chain.templates[step].ends)
        for place, (kind, index) in step_plan.carry:
            after[place] = env[index] if kind == NEW else state[index]
        return after

    def _store(self, action: Snapshot, state: list[Any]) -> None:
        run = self.run
        self.held.slots[_place(action)] = run.shelf.put(action.step, list(state), action.tier == self.chain.slow)

    def _restore(self, action: Restore) -> list[Any]:
        try:
            state = self.held.slots[_place(action)].get()
        except CorruptSnapshot:
            state = self._computed_again(action)
        if self.run.verify and action.step:
            self._compare(action.step - 1, state, "was changed while it was kept")
        needed = self.chain_plan.at(action.step).needed if action.step < len(self.chain) else ()
        return [value if place in needed else ABSENT for place, value in enumerate(state)]

    def _computed_again(self, action: Restore) -> list[Any]:
        """A snapshot that a store has damaged, from the latest good one before it; it is put back."""
        held, slot = self.held, _place(action)
        earlier = [(one.step, one) for one in held.slots.values() if one.step < action.step]
        at, state = 0, []
        for step, snapshot in sorted(earlier, key=lambda one: one[0], reverse=True):
            with suppress(CorruptSnapshot):
                at, state = step, snapshot.get()
                break
        for step in range(at, action.step):
            state = self.advance(step, state)
        held.slots[slot].drop()
        held.slots[slot] = self.run.shelf.put(action.step, list(state), action.tier == self.chain.slow)
        return state

    def _forward(
        self, step: int, items: Iterable[CallPlan], state: list[Any], lay: bool, keep: bool = False
    ) -> tuple[list[Any], dict[int, tuple[ChainReplay, HeldStates]]]:
        """Run calls of a step again; the values made in it, and the loops in it that are ready to go back."""
        chain, order = self.chain, self.order
        template, extras, taps = chain.templates[step], chain.extras[step], chain.taps.get(step)
        env: list[Any] = [ABSENT] * template.made
        if taps is not None and not order.tangents:
            for index, box in taps.items():
                env[index] = box.value
        inner: dict[int, tuple[ChainReplay, HeldStates]] = {}
        for call_plan in items:
            call = call_plan.call
            if call.op is not None:
                if call_plan.run:
                    x = [self._fetch(source, env, state, extras) for source in call.sources]
                    statics = {name: extras[place] for name, place in call.statics}
                    boxes = [taps.get(index) if taps is not None else None for index in call.outputs]
                    env[call.start : call.start + call.number] = order.forward(call.op, call.single, x, statics, boxes)
                    x = []
            elif lay or call_plan.run or order.tangents:
                found = self._forward_loop(call_plan, env, state, extras, taps, lay)
                if found is not None:
                    inner[call.start] = found
            if not keep:
                for index in call_plan.done:
                    env[index] = ABSENT
        if self.run.verify:
            self._compare(step, [env[index] if kind == NEW else ABSENT for kind, index in template.ends])
        return env, inner

    def _forward_loop(
        self,
        call_plan: CallPlan,
        env: list[Any],
        state: list[Any],
        extras: tuple[Any, ...],
        taps: dict[int, Box] | None,
        lay: bool,
    ) -> tuple[ChainReplay, HeldStates] | None:
        call, chain = call_plan.call, extras[call_plan.call.place]
        assert call_plan.chain_plan is not None
        needed = call_plan.chain_plan.outer_needed
        outer = [
            self._fetch(source, env, state, extras) if place in needed else ABSENT
            for place, source in enumerate(call.sources)
        ]
        replay = ChainReplay(self.run, chain, call_plan.chain_plan, outer)
        held = None
        if lay and call_plan.reverse:
            held, chain.held = chain.held, None
            if held is None or call_plan.run or self.order.tangents:
                if held is not None:
                    held.drop()
                outputs = replay.sweep(self.run.plan(replay))
                held = replay.held
            else:
                outputs = []
        else:
            outputs = replay.through()
        for index, value in zip(call.outputs, outputs):
            env[index] = value
            if (
                isinstance(value, DualValue)
                and isinstance(self.order, SecondOrder)
                and taps is not None
                and index in taps
            ):
                self.order.along[taps[index]] = value.tangent
        return None if held is None else (replay, held)

    def _reverse(
        self, step: int, state: list[Any], env: list[Any], inner: dict[int, tuple[ChainReplay, HeldStates]]
    ) -> None:
        """Take the cotangents of the cut after a step to the cut before it."""
        chain, order, run = self.chain, self.order, self.run
        template, extras = chain.templates[step], chain.extras[step]
        turn = self.chain_plan.at(step).turn
        if run.verify and any(call_plan.reverse for call_plan in turn):
            self._compare_given(step)
        into: list[list[Any]] = [[None] * template.made, [None] * chain.width(step), self.outer_cotangents]
        cotangents, self.cotangents = self.cotangents, []
        for (kind, index), cotangent in zip(template.ends, cotangents):
            into[kind][index] = order.add(into[kind][index], cotangent)
        del cotangents
        made = into[NEW]
        for index, box in chain.taps.get(step, {}).items():
            made[index] = order.add(made[index], run.cotangents.pop(box, None))
        for call_plan in reversed(turn):
            call, outputs = call_plan.call, slice(call_plan.call.start, call_plan.call.start + call_plan.call.number)
            if call_plan.reverse:
                g, made[outputs] = made[outputs], [None] * call.number
                if call.op is None:
                    ready = inner.pop(call.start, None) or self._forward_loop(
                        call_plan, env, state, extras, None, lay=True
                    )
                    assert ready is not None
                    replay, held = ready
                    env[outputs] = [ABSENT] * call.number
                    del ready
                    found = replay.back(held, g, _taken(call, into))
                elif all(part is None for part in g):
                    found = []
                else:
                    x = [self._fetch(source, env, state, extras) for source in call.sources]
                    statics = {name: extras[place] for name, place in call.statics}
                    found = order.back(call.op, call.single, x, env[outputs], g, statics)
                    x = []
                g = []
                self._deposit(call, found, into, extras)
                found = []
            env[outputs] = [ABSENT] * call.number
        self.cotangents = into[CUT]

    def _deposit(self, call: OpCall, found: Sequence[Any], into: list[list[Any]], extras: tuple[Any, ...]) -> None:
        order, cotangents = self.order, self.run.cotangents
        for (kind, index), cotangent in zip(call.sources, found):
            if cotangent is None:
                continue
            if kind != EXTRA:
                into[kind][index] = order.add(into[kind][index], cotangent)
            elif isinstance(box := extras[index], Box):
                cotangents[box] = order.add(cotangents.get(box), cotangent)

    def _fetch(self, source: tuple[int, int], env: list[Any], state: list[Any], extras: tuple[Any, ...]) -> Any:
        kind, index = source
        if kind == NEW:
            return env[index]
        if kind == CUT:
            return state[index]
        if kind == OUTER:
            return self.outer[index]
        extra = extras[index]
        return self.order.boxed(extra) if isinstance(extra, Box) else self.order.constant(extra)

    def _compare(self, step: int, after: Sequence[Any], how: str = "came out differently when it was replayed") -> None:
        """Compare values of the cut after a step with what they were."""
        chain, template = self.chain, self.chain.templates[step]
        offset = chain.offsets[step] + len(template.given)
        for i, (place, _) in enumerate(template.crossing):
            if after[place] is not ABSENT:
                known = chain.marks[offset + i]
                if known != UNKNOWN and mark(self.order.primal(after[place])) != known:
                    self._compare_given(step)
                    self._refuse(step, f"a value made in step {step} of {chain.name} ({template.describe()}) {how}")

    def _compare_given(self, step: int) -> None:
        chain, template = self.chain, self.chain.templates[step]
        for i, place in enumerate(template.given):
            if mark(chain.extras[step][place]) != chain.marks[chain.offsets[step] + i]:
                self._refuse(
                    step,
                    f"an array that step {step} of {chain.name} ({template.describe()}) was given from outside the "
                    "tape was changed since",
                )

    def _refuse(self, step: int, what: str) -> NoReturn:
        raise ReplayError(
            f"{what}. Usual causes: an op that writes into its inputs or returns the same buffer every time, random "
            "numbers or hidden state inside an op, an array that the program changed after it was used"
        )


def _taken(call: OpCall, into: list[list[Any]]) -> list[Any]:
    """The cotangents that the sources of a loop have so far, to be put back when the loop has added its own."""
    taken = []
    for kind, index in call.sources:
        taken.append(into[kind][index])
        into[kind][index] = None
    return taken


def _place(action: Any) -> Any:
    """The key of a slot; gaps name their own."""
    return action.slot if not isinstance(action.slot, int) else (action.tier, action.slot)
