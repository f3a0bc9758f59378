"""Which schedule a call asked for: given, by slots, by bytes, or by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeAlias
from uuid import uuid4

from ..chain import Online, Revolve, Schedule, StoreAll
from ..chain.binomial import default_slots
from ..store import Store
from ..units import parse_bytes
from .agree import agree, largest, smallest
from .budget import Allotment, Measured, allot, measure
from .steps import State, Steps

UNKNOWN_LENGTH_SLOTS = 32
"""Slots of a loop of unknown length when nothing is said."""
_IN_FLIGHT = 3  # snapshots in memory on their way to or from a store: two out, one in
_DIGEST = 220  # bytes that remembering the digest of a leaf takes
_TURN = 3  # what a reversal is expected to take, in forward steps

Index: TypeAlias = range | Callable[[State, int], bool]


@dataclass(frozen=True)
class Budget:
    """What the caller said: at most one of the three."""

    slots: int | None = None
    memory: float | str | None = None
    schedule: Schedule | Online | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("slots", "memory", "schedule") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"give at most one of slots, memory and schedule, not {' and '.join(given)}")
        if self.memory is not None:
            parse_bytes(self.memory)


@dataclass(frozen=True)
class Settled:
    """The schedule and the steps; where the budget was in bytes, how it is divided."""

    schedule: Schedule | Online
    index: Index
    allotment: Allotment | None = None


@dataclass(frozen=True)
class Problem:
    """What there is to be settled for."""

    steps: Steps
    first: Callable[[], State]
    index: Index
    seed: Any
    store: Store | None
    verify: str | bool
    comm: Any


def settle(budget: Budget, problem: Problem) -> Settled:
    """The schedule for a chain."""
    settled = _unknown(budget, problem) if callable(problem.index) else _known(budget, problem, len(problem.index))
    agree(problem.comm, "the plan", settled.schedule)
    return settled


def _known(budget: Budget, problem: Problem, number: int) -> Settled:
    settled = Settled(Revolve(number, default_slots(number)), problem.index)
    if isinstance(budget.schedule, Online):
        raise ValueError("an Online schedule is for loops of unknown length: give steps as a predicate")
    if budget.schedule is not None:
        if budget.schedule.steps != number:
            raise ValueError(f"the schedule is for {budget.schedule.steps} steps, the chain has {number}")
        return replace(settled, schedule=budget.schedule)
    if budget.slots is not None:
        return replace(settled, schedule=Revolve(number, budget.slots))
    if budget.memory is None or not number:
        return settled
    store = problem.store
    limit, measured = _measure(budget.memory, problem, timed=store is not None and number > 1)
    digests = number * _DIGEST * measured.leaves if problem.verify == "all" else 0
    if store is None:
        allotment = allot(limit, measured, nbytes=digests)
    else:
        allotment = allot(limit, measured, least=0, states=_IN_FLIGHT, nbytes=digests)
    slots = allotment.slots
    if slots >= number:
        schedule: Schedule = StoreAll(number)
    elif store is None:
        schedule = Revolve(number, slots)
    else:
        write, read = (largest(problem.comm, seconds) for seconds in time_transfer(store, measured.taken[0]))
        schedule = _with_store(number, slots, measured, write, read)
    return Settled(schedule, problem.index, allotment)


def _unknown(budget: Budget, problem: Problem) -> Settled:
    more: Any = problem.index
    if isinstance(budget.schedule, Schedule):
        raise ValueError(f"a loop of unknown length takes an Online schedule, not {budget.schedule!r}")
    if budget.schedule is not None:
        return Settled(budget.schedule, more)
    default = Online(UNKNOWN_LENGTH_SLOTS if budget.slots is None else budget.slots)
    if budget.memory is None:
        return Settled(default, more)
    going = bool(more(problem.first(), 0))
    answered = _Answered(more, going)
    if not going:
        return Settled(default, answered)
    limit, measured = _measure(budget.memory, problem, timed=False)
    # the state before the one at hand is held until it is known whether the loop goes on
    allotment = allot(limit, measured, states=1)
    return Settled(Online(allotment.slots), answered, allotment)


class _Answered:
    """A predicate that was asked about step 0 already and is not asked again."""

    def __init__(self, more: Callable[[State, int], bool], going: bool) -> None:
        self._more, self._going = more, going

    def __call__(self, state: State, step: int) -> bool:
        return self._more(state, step) if step else self._going


def _measure(memory: float | str, problem: Problem, timed: bool) -> tuple[int, Measured]:
    comm = problem.comm
    limit = smallest(comm, parse_bytes(memory))
    measured = measure(problem.steps, problem.first(), problem.seed, timed)
    for name in ("state", "leaves", "workspace", "adjoint"):
        setattr(measured, name, int(largest(comm, getattr(measured, name))))
    measured.seconds = largest(comm, measured.seconds)
    return limit, measured


def _with_store(number: int, slots: int, measured: Measured, write: float, read: float) -> Schedule:
    """The schedule that is expected to take the least time with ``slots`` in memory and the rest in the store."""
    from ..chain.plan import plan

    state, forward = measured.snapshot, measured.seconds
    # The tape of own adjoint code is a state that was stored anyway: too large a tape keeps it out of the plan.
    tape = state * (number + 1)
    return plan(
        number,
        state,
        tape=tape,
        forward=forward,
        backward=(_TURN - 1) * forward,
        memory=(slots + 2) * state + tape,
        disk=number * state,
        disk_write=state / write,
        disk_read=state / read,
    ).schedule


def time_transfer(store: Store, state: State) -> tuple[float, float]:
    """Seconds that one snapshot takes to the store and back."""
    key = f"probe {uuid4().hex}"
    begun = perf_counter()
    store.put(key, state)
    store.flush()
    written = perf_counter()
    store.get(key)
    read = perf_counter()
    store.drop(key)
    return written - begun, read - written
