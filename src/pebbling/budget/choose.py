"""From what a caller allows to a schedule, as far as nothing has to be measured for it, and where its tiers lie.

Budget(slots=8), 1000 steps       Revolve(1000, 8)
Budget(), 1000 steps              Revolve with the fewest slots for which no step is advanced more than twice
Budget(), unknown length          Online(32)
Budget(schedule=s)                s, if it is for this loop
Budget(memory="1GB")              None: each runtime measures its first steps, and knows best what they mean
"""

from __future__ import annotations

from ..chain import Online, Revolve, Schedule
from ..chain.binomial import default_slots
from ..store import Store
from .asked import UNKNOWN_LENGTH_SLOTS, Budget


def choose(budget: Budget, steps: int | None, where: str) -> Schedule | Online | None:
    """The schedule of a loop of so many steps, or ``None`` where the budget is in bytes; ``where`` names the loop."""
    schedule = budget.schedule
    if schedule is not None:
        refuse_other(schedule, steps, where)
        return schedule.ended(steps) if isinstance(schedule, Online) and steps is not None else schedule
    if budget.memory is not None:
        return None
    slots = slots_of(budget, steps)
    return Online(slots) if steps is None else Revolve(steps, slots)


def slots_of(budget: Budget, steps: int | None) -> int:
    """The slots that were asked for, or those of a loop of which nothing was said."""
    if budget.slots is not None:
        return budget.slots
    return UNKNOWN_LENGTH_SLOTS if steps is None else default_slots(steps)


def refuse_other(schedule: Schedule | Online | None, steps: int | None, where: str) -> None:
    """Refuse a schedule that is for another loop."""
    if not isinstance(schedule, Schedule):
        return
    if steps is None:
        raise ValueError(f"{where} has no known length, so it takes an Online schedule, not {schedule!r}")
    if schedule.steps != steps:
        raise ValueError(f"the schedule is for {schedule.steps} steps, {where} has {steps}")


def in_store(schedule: Schedule | Online, store: Store | None, in_bytes: bool, what: str = "a loop") -> list[bool]:
    """For each tier of a schedule, whether its snapshots go to the store.

    Those of the slower tier do, or all where there is one tier, unless a budget in bytes has chosen the schedule:
    then one tier means that no store was worth its time.
    """
    tiers = 1 if isinstance(schedule, Online) else len(schedule.model.rooms)
    if tiers > 2:
        raise ValueError(f"the schedule has {tiers} tiers, and {what} keeps its snapshots in memory and in one store")
    if tiers == 2 and store is None:
        raise ValueError("the schedule has 2 tiers: give store= for the slow one, such as pebbling.store.Disk(path)")
    if tiers == 2:
        return [False, True]
    return [store is not None and not in_bytes]


def most_stored(schedule: Schedule | Online) -> int:
    """The most snapshots that the slowest tier holds at once."""
    if isinstance(schedule, Online):
        return schedule.slots
    return min(int(schedule.cost.peaks[-1]), schedule.cost.stores)
