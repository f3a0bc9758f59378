"""A course for a loop with a store beside the memory: from bytes, and seconds that are measured.

Candidates are the plans of ``pebbling.plan`` for a slow tier, and, where the store is host memory, keeping the
tapes of all steps there: each crosses the link once in each direction while steps are computed, and no step runs
twice. The one that is expected to take the least time is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch

from ...budget import quickest
from ...chain import StoreAll
from ...drive.leftovers import probe
from ...drive.store_slots import behind
from ...errors import BudgetError
from ...store import Host, Store
from ...units import parse_bytes
from .ambient import without_fast_paths
from .blocked import Blocked
from .measured_budget import StepBytes, measured_for, refuse, within
from .problem import LoopProblem
from .snapshots import TensorSlots
from .tapes import Sums

_IN_FLIGHT = 4
"""States or tapes on the device that are on their way: two out, one coming, one expected."""
_REPEATS = 3


class Seconds(NamedTuple):
    """What a step takes, and what one snapshot takes out and back."""

    forward: float
    backward: float
    write: float
    read: float


def beside(memory: float | str, problem: LoopProblem, store: Store) -> Blocked:
    """The fastest course within a budget for the memory."""
    steps = problem.program.length
    if not steps:
        return within(memory, problem)
    limit = parse_bytes(memory)
    measured = measured_for(problem, limit)
    flying = _IN_FLIGHT * measured.state
    free = limit - measured.working - flying
    if free < 0:
        refuse(limit, measured, problem.program, measured.working + flying)
    if (steps - 1) * measured.tape <= free:
        return Blocked(StoreAll(steps), steps)
    seconds = _seconds(problem, store)
    candidates = [_planned(steps, free, measured, seconds)]
    if isinstance(store, Host):
        candidates.append(_offloaded(steps, limit, measured, seconds))
    found = [candidate for candidate in candidates if candidate is not None]
    if not found:
        refuse(limit, measured, problem.program, measured.working + flying + measured.state)
    return min(found, key=lambda candidate: candidate[0])[1]


def _planned(steps: int, free: int, measured: StepBytes, seconds: Seconds) -> tuple[float, Blocked] | None:
    state, tape = max(measured.state, 1), max(measured.tape, 1)
    both = {"forward": seconds.forward, "backward": seconds.backward}
    try:
        best = quickest(steps, state, free, steps, seconds, tape=tape, **both)
    except BudgetError:
        return None
    return best.time, Blocked(best.schedule, steps)


def _offloaded(steps: int, limit: int, measured: StepBytes, seconds: Seconds) -> tuple[float, Blocked] | None:
    if measured.working + _IN_FLIGHT * measured.tape > limit:
        return None
    share = measured.tape / max(measured.state, 1)
    out, back = max(seconds.forward, share * seconds.write), max(seconds.backward, share * seconds.read)
    return steps * (out + back), Blocked(StoreAll(steps), steps, offload=True)


def _seconds(problem: LoopProblem, store: Store) -> Seconds:
    """Take the first step a few times; generators and buffers are put back."""
    taper, program = problem.taper, problem.program
    draws, buffers = problem.ambient.draws(), problem.buffers.read()
    looks, taper.looks = taper.looks, False
    state = TensorSlots("", problem.written).private(problem.state)

    def forward() -> Any:
        with taper.untaped():
            return program.full(list(state), taper.given, 0)

    def turn() -> None:
        block = taper.tape(list(state), 0, 1, problem.live)
        seeds = [None if end is None else torch.zeros_like(value) for value, end in zip(block.values, block.ends)]
        taper.pull(block, seeds, Sums([None] * len(taper.constants)), [True] * len(taper.constants))

    try:
        with without_fast_paths():
            one, both = _best(forward), _best(turn)
    finally:
        taper.looks = looks
        problem.ambient.set(draws)
        problem.buffers.write(buffers)
    write, read = _transfer(store, taper.cut(state))
    return Seconds(one, max(both - one, one / 10), max(write, 1e-9), max(read, 1e-9))


def _transfer(store: Store, state: Any) -> tuple[float, float]:
    """Seconds that a snapshot takes to the store and back, the best of a few; the first makes buffers."""
    key, used, found = probe(), behind(store), []
    for _ in range(_REPEATS):
        _wait()
        begun = perf_counter()
        used.put(key, state)
        used.flush()
        written = perf_counter()
        used.get(key)
        _wait()
        found.append((written - begun, perf_counter() - written))
        used.drop(key)
    return min(out for out, _ in found), min(back for _, back in found)


def _best(function: Callable[[], Any]) -> float:
    found = []
    for _ in range(_REPEATS):
        _wait()
        begun = perf_counter()
        function()
        _wait()
        found.append(perf_counter() - begun)
    return min(found)


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
