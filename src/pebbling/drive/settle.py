"""Which schedule a call asked for: given, by slots, by bytes, or by default."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeAlias

from ..budget import Budget, choose, refuse_other
from ..chain import Online, Revolve, Schedule, StoreAll
from ..errors import BudgetError
from ..store import Store
from ..units import parse_budget
from .agree import agree, largest, smallest, together
from .budget import Allotment, FirstSteps, allot, measure, refuse_untraced
from .inverse import Inverse
from .slow_tier import divide, quickest, time_transfer
from .steps import OwnAdjoint, State
from .tracing import TracedMemory

_DIGEST = 220  # bytes that remembering the digest of a leaf takes
_ENDED = 500  # what a snapshot takes in the plan of a loop of unknown length
_JOURNAL = 96 * 1024  # the objects of a journal, and what a commit takes besides the states

Index: TypeAlias = range | Callable[[State, int], bool]


@dataclass(frozen=True)
class Chosen:
    """The schedule and the steps; where the budget was in bytes, how it is divided."""

    schedule: Schedule | Online
    index: Index
    allotment: Allotment | None = None


@dataclass(frozen=True)
class Problem:
    """What there is to be settled for."""

    steps: OwnAdjoint
    first: Callable[[], State]
    index: Index
    seed: Any
    store: Store | None
    verify: str | bool
    comm: Any
    resumable: bool = False
    inverse: Inverse | None = None


def settle(budget: Budget, problem: Problem) -> Chosen:
    """The schedule for a chain."""
    comm = problem.comm
    agree(comm, "the call", _asked(budget, problem))
    with together(comm, "the arguments"):
        settled = _unknown(budget, problem) if callable(problem.index) else _known(budget, len(problem.index), problem)
    if budget.memory is not None:
        try:
            settled = _by_bytes(budget.memory, problem, settled)
        except BudgetError:
            # What Python's free lists happen to hold saves memory once: the smallest budget must do without.
            gc.collect()
            settled = _by_bytes(budget.memory, problem, settled)
    agree(comm, "the plan", settled.schedule)
    return settled


def _asked(budget: Budget, problem: Problem) -> str:
    """What the way to a plan depends on, and so the points at which ranks meet."""
    given = [name for name in ("slots", "memory", "schedule") if getattr(budget, name) is not None]
    length = "a predicate" if callable(problem.index) else "no steps" if not len(problem.index) else "steps"
    store = "no store" if problem.store is None else "a store"
    return f"{given[0] + '=' if given else 'no budget'}, {length}, {store}, verify={problem.verify!r}"


def _known(budget: Budget, number: int, problem: Problem) -> Chosen:
    """The schedule, but for a budget in bytes."""
    schedule = budget.schedule
    if isinstance(schedule, Online):
        raise ValueError("an Online schedule is for loops of unknown length: give steps as a predicate")
    found = choose(budget, number, "the chain")
    return Chosen(StoreAll(number) if found is None else found, problem.index)


def _unknown(budget: Budget, problem: Problem) -> Chosen:
    """The same for a loop of unknown length."""
    refuse_other(budget.schedule, None, "a loop whose steps are a predicate")
    if budget.memory is not None and problem.verify == "all":
        raise ValueError(
            "verify='all' remembers a digest of every state, which no budget in bytes bounds in a loop of unknown "
            "length: give slots= instead of memory=, or verify='last'"
        )
    if budget.memory is not None and problem.store is not None:
        raise ValueError(
            "a loop of unknown length keeps its snapshots in memory or in a store, not in both: give slots= with "
            "store=, or memory= without"
        )
    found = choose(budget, None, "the chain")
    return Chosen(Online(1) if found is None else found, problem.index)


def _by_bytes(memory: float | str, problem: Problem, settled: Chosen) -> Chosen:
    """The schedule for a budget in bytes; as it is settled for a chain without steps."""
    journal = _JOURNAL if problem.resumable else 0
    if callable(problem.index):
        going = bool(problem.index(problem.first(), 0))
        agree(problem.comm, "whether the loop goes on at step 0", going)
        settled = replace(settled, index=_Answered(problem.index, going))
        if not going:
            return settled
        limit, measured = _measure(memory, problem, None, timed=False)
        # the state before the one at hand is held until it is known whether the loop goes on
        each = _ENDED + _DIGEST * measured.leaves
        allotment = allot(limit, measured, None, states=1, nbytes=journal, each=each)
        return replace(settled, schedule=Online(allotment.slots), allotment=allotment)
    number, store = len(problem.index), problem.store
    if not number:
        return settled
    limit, measured = _measure(memory, problem, number, timed=store is not None)
    digests = number * _DIGEST * measured.leaves if problem.verify == "all" else 0
    allotment = allot(limit, measured, number, nbytes=digests + journal)
    if allotment.fits(number):
        return replace(settled, schedule=StoreAll(number), allotment=allotment)
    if store is None:
        return replace(settled, schedule=Revolve(number, allotment.slots), allotment=allotment)
    transfer = time_transfer(store, measured.taken[0], problem.comm)
    division = divide(allotment, transfer, bool(largest(problem.comm, store.in_memory)), number)
    return replace(settled, schedule=quickest(number, division, transfer), allotment=division.allotment)


class _Answered:
    """A predicate that was asked about step 0 already and is not asked again."""

    def __init__(self, more: Callable[[State, int], bool], going: bool) -> None:
        self._more, self._going = more, going

    def __call__(self, state: State, step: int) -> bool:
        return self._more(state, step) if step else self._going


def _measure_inverse(inverse: Inverse, measured: FirstSteps) -> None:
    """Run the inverse of step 0, and give it room where it takes more than the step; note what it costs."""
    after = measured.taken[0]
    begun = perf_counter()
    with TracedMemory() as traced:
        result = inverse(after, 0)
    seconds = perf_counter() - begun
    del result
    measured.advance = max(measured.advance, traced.peak)
    inverse.cost = seconds / measured.seconds if measured.seconds > 0 else 1.0


def _measure(memory: float | str, problem: Problem, number: int | None, timed: bool) -> tuple[int, FirstSteps]:
    comm = problem.comm
    limit = smallest(comm, parse_budget(memory))
    with together(comm, "looking at the state"):
        refuse_untraced(problem.first())
    measured = measure(problem.steps, problem.first(), problem.seed, number, timed)
    for name in (
        "state",
        "held",
        "leaves",
        "advance",
        "turn",
        "adjoint",
        "seed",
        "digest",
        "first",
        "lasting",
        "grown",
        "copied",
    ):
        setattr(measured, name, int(largest(comm, getattr(measured, name))))
    if problem.inverse is not None:
        _measure_inverse(problem.inverse, measured)
    measured.tried = bool(smallest(comm, measured.tried))
    measured.seconds = largest(comm, measured.seconds)
    return limit, measured
