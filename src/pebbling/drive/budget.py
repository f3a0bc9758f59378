"""From a budget in bytes to a plan for own adjoint code, by measuring the first step.

A run holds, besides its snapshots: the state before a step and the one after it, what the step
allocates on the way, the final state, and around a reversal the adjoint before and after it and
what the reversal allocates. The first step is run with Python's memory tracing, and its result is
used. A reversal can't be tried before its turn (it may accumulate into the user's arrays), so it is
given the larger of three states and twice what the forward step allocates; if it takes more, the
run stops with a ``BudgetError``.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

from ..chain import Revolve, Schedule, StoreAll, Tier
from ..errors import BudgetError
from ..store import Store
from ..tree import nbytes
from ..units import format_bytes
from .steps import State, Steps
from .tracing import Traced

BOOKKEEPING = 48 * 1024  # the run's own objects: stream, tables, report


@dataclass
class Measured:
    """What the first step showed."""

    state: int
    workspace: int
    seconds: float
    after: State

    @property
    def working(self) -> int:
        """Bytes that a run needs besides its snapshots."""
        forward = 2 * self.state + self.workspace
        backward = 3 * self.state + max(3 * self.state, 2 * self.workspace)
        return BOOKKEEPING + self.state + max(forward, backward)


def measure(steps: Steps, state: State) -> Measured:
    """Run step 0 and see what it takes."""
    begun = perf_counter()
    with Traced() as traced:
        after = steps.advance(state, 0)
    size = max(nbytes(state), nbytes(after))
    return Measured(size, max(0, traced.peak - nbytes(after)), perf_counter() - begun, after)


def plan_in_bytes(number: int, budget: int, measured: Measured, store: Store | None) -> Schedule:
    """The schedule with the fewest evaluations, or the least time where a store takes part, within ``budget`` bytes."""
    free = budget - measured.working
    slots = free // measured.state if measured.state else number
    if slots >= number:
        return StoreAll(number)
    if store is None:
        if slots < 1:
            refuse(budget, measured.working + measured.state, measured)
        return Revolve(number, slots)
    in_flight = 2  # one snapshot on its way out, one on its way in
    slots -= in_flight
    if slots < 0:
        refuse(budget, measured.working + in_flight * measured.state, measured)
    write, read = time_transfer(store, measured.after)
    from ..chain.hierarchical import Hierarchical

    tiers = [Tier(min(slots, number)), Tier(None, write, read)]
    return Hierarchical(number, tiers, measured.seconds, 3 * measured.seconds)


def time_transfer(store: Store, state: State) -> tuple[float, float]:
    """Seconds that one snapshot takes to the store and back."""
    begun = perf_counter()
    store.put("probe", state)
    store.flush()
    written = perf_counter()
    store.get("probe")
    read = perf_counter()
    store.drop("probe")
    return written - begun, read - written


def refuse(budget: int, minimum: int, measured: Measured) -> NoReturn:
    """Say that the budget is too small, and which one is not."""
    raise BudgetError(
        f"{budget} bytes ({format_bytes(budget)}) are too few for states of {format_bytes(measured.state)} and a step "
        f"that allocates {format_bytes(measured.workspace)} besides: the smallest budget is {minimum} bytes "
        f"({format_bytes(minimum)})",
        minimum=minimum,
    )


def check_reversal(budget: int, measured: Measured, taken: int) -> None:
    """Hold what a reversal allocated against what was set aside for it."""
    allowed = measured.state + max(3 * measured.state, 2 * measured.workspace)
    if taken > allowed:
        minimum = budget + taken - allowed
        raise BudgetError(
            f"a reversal allocates {format_bytes(taken)}, more than the {format_bytes(allowed)} set aside for it in a "
            f"budget of {format_bytes(budget)}: the smallest budget is {minimum} bytes",
            minimum=minimum,
        )
