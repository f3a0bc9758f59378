"""Which schedule a call asked for: given, by slots, by bytes, or by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..chain import Online, Revolve, Schedule
from ..chain.binomial import default_slots
from ..store import Store
from ..units import parse_bytes
from .agree import agree, largest, smallest
from .budget import Measured, measure, plan_in_bytes, refuse
from .steps import State, Steps

UNKNOWN_LENGTH_SLOTS = 32
"""Slots of a loop of unknown length when nothing is said."""


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


@dataclass(frozen=True)
class Settled:
    """The schedule; where the budget was in bytes, that budget and what the first step showed."""

    schedule: Schedule | Online
    budget: int | None = None
    measured: Measured | None = None


def settle(budget: Budget, steps: Steps, state: State, index: Any, store: Store | None, comm: Any) -> Settled:
    """The schedule for a chain, ``index`` being its range or its predicate."""
    settled = (
        _unknown(budget, steps, state, index, comm)
        if callable(index)
        else _known(budget, steps, state, len(index), store, comm)
    )
    agree(comm, "the plan", settled.schedule)
    return settled


def _known(budget: Budget, steps: Steps, state: State, number: int, store: Store | None, comm: Any) -> Settled:
    if isinstance(budget.schedule, Online):
        raise ValueError("an Online schedule is for loops of unknown length: give steps as a predicate")
    if budget.schedule is not None:
        if budget.schedule.steps != number:
            raise ValueError(f"the schedule is for {budget.schedule.steps} steps, the chain has {number}")
        return Settled(budget.schedule)
    if budget.memory is not None and number:
        limit, measured = _measure(budget.memory, steps, state, comm)
        return Settled(plan_in_bytes(number, limit, measured, store), limit, measured)
    return Settled(Revolve(number, default_slots(number) if budget.slots is None else budget.slots))


def _unknown(budget: Budget, steps: Steps, state: State, more: Any, comm: Any) -> Settled:
    if isinstance(budget.schedule, Schedule):
        raise ValueError(f"a loop of unknown length takes an Online schedule, not {budget.schedule!r}")
    if budget.schedule is not None:
        return Settled(budget.schedule)
    if budget.memory is not None and more(state, 0):
        limit, measured = _measure(budget.memory, steps, state, comm)
        free = limit - measured.working - measured.state  # the state before the last is held until the end is known
        if free < measured.state:
            refuse(limit, measured.working + 2 * measured.state, measured)
        return Settled(Online(free // measured.state), limit, measured)
    return Settled(Online(UNKNOWN_LENGTH_SLOTS if budget.slots is None else budget.slots))


def _measure(memory: float | str, steps: Steps, state: State, comm: Any) -> tuple[int, Measured]:
    limit, measured = smallest(comm, parse_bytes(memory)), measure(steps, state)
    measured.state = int(largest(comm, measured.state))
    measured.workspace = int(largest(comm, measured.workspace))
    measured.seconds = largest(comm, measured.seconds)
    return limit, measured
