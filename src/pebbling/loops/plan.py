"""Which schedule a loop follows: given, by slots, by bytes, or by default.

A budget in bytes is met by measuring the first step with Python's memory tracing: a state, what a
step allocates, what its tape holds, and what its reversal allocates. Besides what the schedule keeps, a
run holds the working state, the final one, the cotangents before and after a step and those of the
constants. Steps that need more than the first one can exceed the budget by as much.

Slots are snapshots, and a gradient replays exactly as often as binomial checkpointing has to. Under two
derivatives, where a replay costs several times a plain step, slots are memory: tapes take the place of
snapshots where they are no larger, and neighbouring steps are taped at once. The same is done within
budgets in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from ..budget import JITTER, Budget, choose, in_store, quickest, refuse_other, slots_of, store_at, too_few
from ..chain import Mixed, Online, Revolve, Runs, Schedule, StoreAll
from ..drive.slow_tier import time_transfer
from ..drive.tracing import TracedMemory
from ..engine.protocol import Engine
from ..store import Store
from ..tree import kind_of
from ..units import parse_budget
from .checkpointed import TapedSteps
from .frameworks import Framework
from .program import Leaves, Program
from .slots import ArraySlots

BOOKKEEPING = 24 * 1024
"""The run's own objects: the stream of actions, the tables of slots, lists of leaves."""
SPARE = 16 * 1024
"""What a loop under two derivatives may keep besides twice its slots: the run's own objects don't become more."""
PER_LEAF = 320
"""What one leaf of a snapshot takes besides its values: the array's header, its place and its lock."""
TAPES_FROM = 16 * 1024 * 1024
"""Budgets from which a plan that keeps tapes beside states is worth its own tables, which take ``TABLES``."""
TABLES = 1024 * 1024
IN_FLIGHT = 3
"""Snapshots in memory on their way to or from a store: two out, one in."""
OBJECTS = 0.1
"""By how much a tape may be larger than a state and still take its place: it has more objects, if no more values."""
WORTH_MEASURING = 16
"""Steps up to which it is not worth measuring one, where only time depends on it."""
MOST_ROOM = 256
"""States of room beyond which such a plan takes longer to find than it saves."""


@dataclass(frozen=True)
class LoopBytes:
    """Bytes of the first step; its tape is counted with the state after it, which tapes usually need too."""

    state: int
    forward: int
    tape: int
    turn: int
    constants: int
    seconds: float = 0.0
    """What the step takes."""

    @property
    def working(self) -> int:
        """What a run needs besides what its schedule keeps."""
        return BOOKKEEPING + 2 * self.state + max(self.forward, self.state + self.constants + self.turn)


@dataclass(frozen=True)
class Settle:
    """Finds the schedule of a loop once its first state is known."""

    budget: Budget

    @property
    def whole(self) -> Budget:
        """The budget that the loop shares with those inside of its steps; here it is the loop's alone."""
        return self.budget

    def __call__(self, node: Any, state: Leaves, consts: Leaves, live: list[bool], wanted: list[bool]) -> Any:
        """The schedule of a node whose program starts from ``state``."""
        program: Program = node.program
        number = program.length
        if self.budget.memory is None:
            named = "" if self.budget.schedule is None else f"the loop over {program.where()}"
            found = choose(self.budget, number, named)
            twice = any(map(node.framework.level, [*state, *consts]))
            asked_for = self.budget.schedule is not None or self.budget.store is not None
            if isinstance(self.budget.schedule, Schedule):
                in_store(self.budget.schedule, store_at(self.budget.store), False)
            if asked_for or number is None or number <= WORTH_MEASURING or not twice:
                return found
            slots = slots_of(self.budget, number)
            measured = self._measure(node, state, consts, [*live, *wanted])
            slots += SPARE // max(measured.state, measured.tape)
            return Runs(number, slots, max(1, ceil(measured.tape / measured.state - OBJECTS)))
        if number == 0 or (number is None and not program.goes_on(state, 0)):
            return StoreAll(0) if number == 0 else Online(1)
        measured = self._measure(node, state, consts, [*live, *wanted])
        limit, store = parse_budget(self.budget.memory), store_at(self.budget.store)
        if store is None or number is None:
            return within(limit, number, measured, program)
        return beside(limit, number, measured, program, store, state)

    def check(self) -> None:
        """Called before a derivative is taken back: a budget that turned out too small may be refused as late."""

    def _measure(self, node: Any, state: Leaves, consts: Leaves, wrt: list[bool]) -> LoopBytes:
        return measure(node.framework, node.program, state, consts, wrt, node.written, node.level)


def check_length(budget: Budget, program: Program) -> None:
    """Refuse a schedule that is not for this loop."""
    if budget.schedule is not None:
        refuse_other(budget.schedule, program.length, f"the loop over {program.where()}")


def measure(
    framework: Framework,
    program: Program,
    state: Leaves,
    consts: Leaves,
    wrt: list[bool],
    written: Sequence[int] = (),
    level: int = 0,
) -> LoopBytes:
    """Run the first step without and with a tape, and back, and see what it takes."""
    engine, width = framework.engine, len(state)
    assert engine is not None
    taped = TapedSteps(program, width, framework, level)
    shelf = ArraySlots(framework, written)
    shelf.put(0, state)
    taped.start, taped.stop = 0, 1
    begun = perf_counter()
    with TracedMemory() as forward:
        after = program.advance(shelf.get(0), consts, 0, 1)
    seconds = perf_counter() - begun
    values = max(forward.held, _nbytes(framework, after), _nbytes(framework, state))
    del after
    wrt = _reached(engine, taped, [*shelf.get(0), *consts], wrt)
    with TracedMemory() as turn:
        with TracedMemory() as recorded:
            outputs, pullback = engine.step_vjp(taped, [*shelf.get(0), *consts], wrt)
        differentiable = engine.differentiable
        # Python numbers can be values, but a cotangent has a dtype.
        seeds = [np.asarray(leaf)[()] if type(leaf) in (float, complex) else leaf for leaf in outputs]
        seeds = [leaf if differentiable(leaf) else None for leaf in seeds]
        into: list[Any] = [None] * len(wrt)
        outputs.clear()
        with np.errstate(all="ignore"):
            pullback(seeds, into)
        constants = _nbytes(framework, [leaf for leaf in into[width:] if leaf is not None])
    size = values + PER_LEAF * (1 + width)
    return LoopBytes(size, forward.peak, recorded.held, turn.peak, constants, seconds)


def _reached(engine: Engine, taped: TapedSteps, inputs: Leaves, wrt: list[bool]) -> list[bool]:
    """What later steps differentiate, whose tapes are then larger: ``wrt``, and what step after step reaches."""
    before: list[bool] = []
    while not all(wrt[: taped.width]) and wrt != before:
        engine.step_vjp(taped, list(inputs), wrt)
        before, wrt = wrt, [one or other for one, other in zip(wrt, taped.live)] + wrt[taped.width :]
    return wrt


def within(limit: int, number: int | None, measured: LoopBytes, program: Program) -> Schedule | Online:
    """The schedule of the fewest forwards whose run stays within ``limit`` bytes."""
    free = limit - measured.working
    size = max(measured.state, 1)
    if number is None:
        if free < size:
            _refuse(limit, measured.working + size, measured, program)
        return Online(free // size)
    if number <= 1 or number * max(measured.tape, 1) <= free:
        return StoreAll(number) if number > 1 else Revolve(number, 1)
    if free < size:
        _refuse(limit, measured.working + size, measured, program)
    room = free // size
    with_tapes = (free - TABLES) // size
    tape = max(1, -(-measured.tape // size))
    if limit < TAPES_FROM or with_tapes < tape or room > MOST_ROOM:
        return Runs(number, min(room, number), max(1, -(-100 * measured.tape // size)) / 100)
    return Mixed(number, with_tapes, tape)


def beside(
    limit: int, number: int, measured: LoopBytes, program: Program, store: Store, state: Leaves
) -> Schedule | Online:
    """The schedule that is expected to take the least time, with a store beside the memory."""
    if number <= 1 or number * max(measured.tape, 1) <= limit - measured.working:
        return within(limit, number, measured, program)
    transfer = time_transfer(store, state)
    size = max(measured.state, 1)
    working = measured.working + IN_FLIGHT * size + transfer.peak + TABLES
    if limit < working + size:
        # The memory alone may do with less.
        return within(limit, number, measured, program)
    return quickest(number, size, limit - working, number, transfer, forward=measured.seconds).schedule


def _refuse(limit: int, minimum: int, measured: LoopBytes, program: Program) -> NoReturn:
    parts = {"a state": measured.state, "the tape and reversal of a step": measured.turn}
    raise too_few(limit, f"the loop over {program.where()}", minimum + JITTER, **parts)


def _nbytes(framework: Framework, leaves: Leaves) -> int:
    return sum([kind_of(plain).nbytes(plain) for plain in map(framework.plain, leaves)])
