"""A budget in bytes with a store beside it: what the store takes of the budget, and which plan is the quickest.

The first state goes to the store and back once, which shows how long that takes and what it
allocates on the way. A store takes a little memory for each snapshot, to keep track of it, or all
of it if it is in memory itself: at most as many snapshots go there as fit in an eighth of the
budget, or a few if that is less.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from .. import budget
from ..chain import Schedule
from ..store import Store
from .agree import largest, together
from .budget import Allotment, refuse
from .leftovers import probe, sweep_out
from .steps import State
from .store_slots import behind
from .tracing import TracedMemory

_IN_FLIGHT = 3  # snapshots in memory on their way to or from a store: two out, one in
_TURN = 3  # what a reversal is expected to take, in forward steps
_SHARE = 8
_FEW = 64  # snapshots in the store for which there is always room
_STORED = 3000  # what the driver, the plan and a store that is not in memory take to keep track of one
_JITTER = 64 * 1024  # what two transfers of the same state may differ by
_PLAN, _PLAN_STEP, _PLAN_MOST = 160 * 1024, 1500, 12 * 1024 * 1024  # what choosing a plan allocates, and at the most


class Transfer(NamedTuple):
    """What one snapshot takes to the store and back: seconds, and bytes at the peak."""

    write: float
    read: float
    peak: int


@dataclass(frozen=True)
class Division:
    """How a budget is divided, and how many snapshots may be in the store."""

    allotment: Allotment
    stored: int


def time_transfer(store: Store, state: State, comm: Any = None) -> Transfer:
    """Put the state there, and have it back; the most that any rank found."""
    key, used = probe(), behind(store)
    with together(comm, "trying the store"):
        if used is store:
            sweep_out(store)
        try:
            with TracedMemory() as traced:
                begun = perf_counter()
                used.put(key, state)
                used.flush()
                written = perf_counter()
                used.get(key)
                read = perf_counter()
        finally:
            if key in used:
                used.drop(key)
    return Transfer(largest(comm, written - begun), largest(comm, read - written), int(largest(comm, traced.peak)))


def divide(allotment: Allotment, transfer: Transfer, in_memory: bool, number: int) -> Division:
    """Give up as much of a budget as the store takes, or raise a ``BudgetError``."""
    measured, limit = allotment.measured, allotment.budget
    each = _STORED + measured.snapshot * in_memory
    planning = _PLAN + min(_PLAN_STEP * number, _PLAN_MOST)
    fixed = allotment.besides + _IN_FLIGHT * measured.snapshot + transfer.peak + planning
    few, many = (min(count, number) for count in (_FEW, max(limit // _SHARE // each, _FEW)))
    tight, ample = (Allotment(limit, measured, fixed + count * each, least=0) for count in (few, many))
    if not tight.fits(0):
        refuse(limit, min(tight.minimum(0) + _JITTER, allotment.minimum(number)), measured)
    return Division(ample, many) if ample.fits(0) else Division(tight, few)


def quickest(number: int, division: Division, transfer: Transfer) -> Schedule:
    """The schedule that is expected to take the least time."""
    measured = division.allotment.measured
    state, forward = measured.snapshot, measured.seconds
    room, stored, backward = division.allotment.slots * state, division.stored, (_TURN - 1) * forward
    return budget.quickest(number, state, room, stored, transfer, forward=forward, backward=backward).schedule
