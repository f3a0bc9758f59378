"""Which schedule a loop follows, and how many steps a leaf of it tapes at once.

Reversing a step on its own costs a call of autograd's engine, which is more than a small step takes. So a
schedule counts in blocks of consecutive steps: with ``slots``, as many as fit in ``LEAF_ROOM`` bytes of
tape, and no more than an eighth of the loop. States larger than that are reversed one by one, and a
schedule that was given is followed to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...chain import Online, Revolve, Schedule, StoreAll
from ...chain.binomial import default_slots

LEAF_ROOM = 256 * 1024
"""Bytes of tape that a leaf may take where the budget is in slots."""
_SHARE = 8


@dataclass(frozen=True)
class Blocked:
    """A schedule over blocks of steps; block ``b`` is the steps ``bounds[b] … bounds[b+1]-1``."""

    schedule: Schedule | Online
    steps: int | None
    block: int = 1
    offload: bool = False
    """Whether the tapes that the sweep makes are kept in host memory, each step's on its own."""

    def bound(self, position: int) -> int:
        """The step that a position of the schedule stands for."""
        if self.block == 1 or self.steps is None:
            return position
        assert isinstance(self.schedule, Schedule)
        return self.steps * position // max(self.schedule.steps, 1)


def by_slots(steps: int, slots: int | None, tape: int) -> Blocked:
    """The course with so many snapshots; ``tape`` is a guess at the bytes that one step tapes."""
    most = min(LEAF_ROOM // max(tape, 1), -(-steps // _SHARE))
    slots = default_slots(steps) if slots is None else slots
    if most < 2:
        return Blocked(Revolve(steps, slots), steps)
    return in_blocks(steps, slots, most)


def in_blocks(steps: int, slots: int, block: int) -> Blocked:
    """Blocks of at most ``block`` steps, as equal as can be."""
    blocks = -(-steps // block)
    return Blocked(Revolve(blocks, slots) if blocks > 1 else StoreAll(blocks), steps, -(-steps // blocks))


def forwards(course: Blocked) -> int | None:
    """How many steps a run takes in all, the taped ones included; ``None`` while the length is unknown."""
    schedule: Any = course.schedule
    if course.steps is None:
        return None
    if course.block == 1:
        return schedule.cost.forwards
    from ...chain import Advance

    return course.steps + sum(course.bound(a.stop) - course.bound(a.start) for a in schedule if type(a) is Advance)
