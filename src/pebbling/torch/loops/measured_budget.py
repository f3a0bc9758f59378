"""From a budget in bytes to a course, by measuring a step on trial.

A run holds, besides the states and tapes that its schedule keeps: the final state, the working one, the
cotangents before a block and the sums of the constants' cotangents, and whatever the turn of one step takes
on top. The initial state is the caller's, and its slot costs nothing. Two turns on trial, of one step and of
two, show what a turn takes and what each further taped step adds; they start from the state after the first
step, as most do. What was measured is remembered by the body's code and by the shapes of all tensors.
Steps that need more than those on trial can exceed the budget by as much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Any, NoReturn

import torch

from ...budget import too_few
from ...chain import Mixed, Online, StoreAll
from ...loops.program import Leaves, Program
from ...units import parse_bytes
from ..tensors import nbytes, tensors_among
from ..tracked import Tracked
from .ambient import without_fast_paths
from .blocked import Blocked, in_blocks
from .problem import LoopProblem
from .snapshots import TensorSlots
from .tapes import Sums

BOOKKEEPING = 48 * 1024
"""The states of random generators and other small tensors of the run itself."""
UNUSED = 4 * 2**20
"""Bytes that the allocator of a GPU may count without their being used: it hands out blocks, and up to 1 MiB of one
that is used again for a smaller tensor stays free."""
_LEVELS, _MOST_ROOM = 128, 200
_REMEMBERED = 256


@dataclass(frozen=True)
class StepBytes:
    """Bytes of one step."""

    state: int
    """A snapshot: the state, and what goes with it."""
    cotangents: int
    sums: int
    forward: int
    """What a step without a tape takes on top of the state it is given."""
    turn: int
    """What the turn of one step takes on top of its state, its cotangents and the sums."""
    tape: int
    """What every further step of a block adds."""
    unused: int = 0
    """What an allocator may waste."""

    @property
    def working(self) -> int:
        """What a run needs besides what its schedule keeps."""
        turn = 2 * self.state + self.cotangents + self.sums + self.turn
        return BOOKKEEPING + self.unused + max(turn, 2 * self.state + self.forward)


def within(memory: float | str, problem: LoopProblem) -> Blocked:
    """The course of the fewest forwards within a budget."""
    limit, program, steps = parse_bytes(memory), problem.program, problem.program.length
    if steps == 0 or (steps is None and not program.goes_on(list(problem.state), 0)):
        return Blocked(StoreAll(0), 0) if steps == 0 else Blocked(Online(1), None)
    measured = measured_for(problem, limit)
    free = limit - measured.working
    if free < 0:
        refuse(limit, measured, program, measured.working)
    room = Fraction(free, max(measured.state, 1)) + 1
    if steps is None:
        return Blocked(Online(max(1, floor(room))), None)
    if (steps - 1) * measured.tape <= free:
        return Blocked(StoreAll(steps), steps)
    return fewest(steps, room, Fraction(max(measured.tape, 1), max(measured.state, 1)))


@lru_cache(_REMEMBERED)
def fewest(steps: int, room: Fraction, tape: Fraction) -> Blocked:
    """Room for states, that of the first one included, and tapes of so many states."""
    if room <= _MOST_ROOM:
        grid = next((grid for grid in (8, 4, 2) if room * grid <= _LEVELS), 1)
        units, size = Fraction(floor(room * grid), grid), Fraction(ceil(tape * grid), grid)
        return Blocked(Mixed(steps, float(units), float(size)), steps)
    candidates = [
        (_forwards(course), block, course)
        for block in _blocks(steps, floor((room - 1) / tape))
        if (course := in_blocks(steps, floor(room - (block - 1) * tape), block))
    ]
    return min(candidates, key=lambda found: found[:2])[2]


def _blocks(steps: int, most: int) -> list[int]:
    """Lengths of blocks worth a try: those that divide the loop into different numbers of them."""
    return sorted({-(-steps // count) for count in range(1, min(steps, 400) + 1)} & set(range(1, most + 2))) or [1]


def _forwards(course: Blocked) -> int:
    schedule: Any = course.schedule
    return schedule.cost.advances * course.block


def refuse(limit: int, measured: StepBytes, program: Program, minimum: int) -> NoReturn:
    """Say that a budget is too small, and which one is not."""
    parts = {"a state": measured.state, "the turn of a step": measured.turn, "the sums of gradients": measured.sums}
    raise too_few(limit, f"the loop over {program.where()}", minimum, **parts)


def measured_for(problem: LoopProblem, limit: int) -> StepBytes:
    """What a step of this loop takes, measured once."""
    key = signature(problem)
    found = _known.get(key)
    if found is None:
        found = _measure_varied(problem, limit) if problem.varies else _measure(problem)
        found = _known[key] = replace(found, unused=UNUSED if problem.ambient.devices else 0)
        while len(_known) > _REMEMBERED:
            _known.popitem(last=False)
    return found


_known: OrderedDict[Any, StepBytes] = OrderedDict()


def signature(problem: LoopProblem) -> Any:
    """What two loops have in common that take the same memory."""
    tensors = tensors_among((*problem.state, *problem.consts, *problem.constants))
    forms = tuple([(t.shape, t.stride(), t.dtype, t.device, t.requires_grad) for t in tensors])
    codes = tuple([getattr(function, "__code__", function) for function in problem.program.functions()])
    others = tuple([leaf for leaf in (*problem.state, *problem.consts) if isinstance(leaf, int | float | str)])
    training = tuple([part.training for module in problem.captured.modules.values() for part in module.modules()])
    steps = None if problem.program.length is None else min(problem.program.length, 3)
    return codes, forms, others, training, tuple(problem.live), steps, tuple(problem.ambient.autocast), problem.asked


def _measure(problem: LoopProblem) -> StepBytes:
    """Take the second step on trial, or the first if there is no other; generators and buffers are put back."""
    program, taper, width = problem.program, problem.taper, len(problem.state)
    draws, buffers = problem.ambient.draws(), problem.buffers.read()
    state = TensorSlots("", problem.written).private(problem.state)
    looks, taper.looks = taper.looks, False
    steps = program.length
    try:
        with torch.no_grad(), without_fast_paths(), Tracked() as memory:
            start = 0
            if steps is None or steps > 1:
                state = taper.cut(_outputs(program, state, taper.given, 0))[:width]
                start = 1
            memory.restart()
            held = memory.held
            after = _outputs(program, list(state), taper.given, start)[:width]
            forward, size = memory.peak - held, nbytes(after)
            del after
            several = 2 if steps is None or steps > start + 1 else 1
            sums = Sums([None] * len(taper.constants))
            cotangents = _turn(problem, state, start, 1, sums, memory)[1]
            turn, _ = _turn(problem, state, start, 1, sums, memory)
            two = _turn(problem, state, start, 2, sums, memory)[0] if several == 2 and steps != 2 else turn + turn
            kept = sum([one.numel() * one.element_size() for one in sums.constants if one is not None])
            kept += sum([one.numel() * one.element_size() for one in sums.copies.values()])
        drawn = sum([one.nbytes for one, two in zip(problem.ambient.draws(), draws) if not torch.equal(one, two)])
        size = max(size, nbytes(problem.state)) + drawn + sum([one.nbytes for one in buffers])
    finally:
        taper.looks = looks
        problem.ambient.set(draws)
        problem.buffers.write(buffers)
    return StepBytes(size, cotangents, kept, forward, turn, max(two - turn, 1))


def _measure_varied(problem: LoopProblem, limit: int) -> StepBytes:
    """Take the first step and, where there is one, the second on trial; the larger of each figure."""
    program, taper, width = problem.program, problem.taper, len(problem.state)
    draws, buffers = problem.ambient.draws(), problem.buffers.read()
    state, live = TensorSlots("", problem.written).private(problem.state), problem.live
    found: list[StepBytes] = []
    try:
        with torch.no_grad(), without_fast_paths(), Tracked() as memory:
            for step in range(2 if program.length is None else min(2, program.length)):
                if program.length is None and not program.goes_on(state, step):
                    break
                sums = Sums([None] * len(taper.constants))
                memory.restart()
                held = memory.held
                block = taper.tape(list(state), step, step + 1, live)
                forward, flag = memory.peak - held, block.flag
                after, ends = taper.cut(block.values[:width]), [end is not None for end in block.ends[:width]]
                del block
                cotangents = _turn(problem, state, step, 1, sums, memory, live)[1]
                turn, _ = _turn(problem, state, step, 1, sums, memory, live)
                kept = nbytes([one for one in sums.constants if one is not None]) + nbytes(list(sums.copies.values()))
                size = max(nbytes(after), nbytes(state))
                measured = StepBytes(size, cotangents, kept, forward, turn, max(turn, 1))
                # The tapes of two steps, and of the loops inside of them, may be more than there is room for.
                several = not problem.is_outer and program.length is not None and step + 1 < program.length
                if several and measured.working + turn <= limit:
                    two, _ = _turn(problem, state, step, 2, sums, memory, live)
                    measured = replace(measured, tape=max(two - turn, 1))
                found.append(measured)
                state, live = after, ends
                if flag:
                    break
        extra = sum([one.nbytes for one, two in zip(problem.ambient.draws(), draws) if not torch.equal(one, two)])
        extra += sum([one.nbytes for one in buffers])
    finally:
        problem.ambient.set(draws)
        problem.buffers.write(buffers)
    size, cotangents, kept, forward, turn, tape, _ = [max(one) for one in zip(*map(astuple, found))]
    owned: Any = program
    copies = nbytes(owned.owned())
    return StepBytes(size + extra, cotangents, kept, forward + copies, turn + copies, tape)


def _turn(
    problem: LoopProblem,
    state: Leaves,
    start: int,
    steps: int,
    sums: Sums,
    memory: Tracked,
    live: Sequence[bool] | None = None,
) -> tuple[int, int]:
    """The peak of a turn, and the bytes of its cotangents."""
    taper = problem.taper
    stop = start + steps
    if problem.program.length is not None:
        stop = min(stop, problem.program.length)
    memory.restart()
    held = memory.held
    block = taper.tape(list(state), start, stop, problem.live if live is None else live)
    seeds: list[Any] = [
        torch.zeros_like(value) if end is not None else None for value, end in zip(block.values, block.ends)
    ]
    size = nbytes(seeds)
    block.values = []
    sums.constants += [None] * (len(taper.constants) - len(sums.constants))
    taper.pull(block, seeds, sums, [True] * len(taper.constants))
    return max(0, memory.peak - held - size), size


def _outputs(program: Program, state: Leaves, given: Leaves, step: int) -> Leaves:
    if program.rich:
        _, values, outs, emitted = program.full(state, given, step)
        return [*values, *outs, *emitted]
    return program.advance(state, given, step, step + 1)
