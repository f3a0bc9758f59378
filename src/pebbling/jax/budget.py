"""From a budget to a plan: how many snapshots a loop may keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..chain import StoreAll, binomial
from ..chain.schedule import Schedule
from ..chain.validate import whole
from .body import Body
from .primitives import LoopPlan
from .sites import UNKNOWN_LENGTH_SLOTS, current, site_of


@dataclass(frozen=True)
class Asked:
    """What the caller asked for: at most one of the three."""

    slots: int | None = None
    memory: float | str | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        if " and " in self.given:
            raise ValueError(f"give at most one of slots, memory and schedule, not {self.given}")
        if self.slots is not None:
            object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        if self.schedule is not None and not isinstance(self.schedule, Schedule):
            raise ValueError(f"schedule must be a pebbling plan such as pb.Revolve(100, 10), not {self.schedule!r}")

    @property
    def given(self) -> str:
        """The names of what was asked for."""
        return " and ".join(n for n in ("slots", "memory", "schedule") if getattr(self, n) is not None)


def plan(
    asked: Asked, body: Body, steps: int | None, xs: Sequence[Any] = (), count: Sequence[Any] = (), where: str = ""
) -> LoopPlan | None:
    """The plan for a loop; ``None`` where everything fits, and plain ``scan`` does best.

    ``count`` is the number of steps, in a list, where it is known at run time only, ``where`` the loop's line.
    """
    if asked.schedule is not None:
        if steps is None:
            raise ValueError(
                "a schedule is for a known number of steps: give slots or memory to a loop with traced bounds"
            )
        if asked.schedule.steps != steps:
            raise ValueError(f"the schedule is for {asked.schedule.steps} steps and the loop has {steps}")
        return None if isinstance(asked.schedule, StoreAll) else LoopPlan(0, asked.schedule)
    if asked.memory is not None:
        from .memory import plan_memory

        return plan_memory(asked.memory, body, xs, steps, count, site_of(steps, body.carry, where))
    if asked.slots is not None:
        return LoopPlan(asked.slots)
    division = current.value
    if division is not None:
        return division.plan(site_of(steps, body.carry, where))
    return LoopPlan(UNKNOWN_LENGTH_SLOTS if steps is None else binomial.default_slots(steps))
