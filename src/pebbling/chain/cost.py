"""What a schedule is planned for (``Model``) and what it takes (``Cost``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .validate import amount, whole


@dataclass(frozen=True)
class Tier:
    """A place for snapshots: its slots (``None``: unbounded) and the time of one write and one read."""

    slots: int | None
    write: float = 0.0
    read: float = 0.0

    def __post_init__(self) -> None:
        if self.slots is not None:
            object.__setattr__(self, "slots", whole(self.slots, "slots of a tier", 0))
        object.__setattr__(self, "write", amount(self.write, "write"))
        object.__setattr__(self, "read", amount(self.read, "read"))


@dataclass(frozen=True)
class Room:
    """How much one tier holds in all, in units of one state (``None``: unbounded), and what access takes."""

    capacity: float | None
    write: float = 0.0
    read: float = 0.0


@dataclass(frozen=True)
class Model:
    """The cost model of a schedule: what the checking machine allows and what it charges.

    ``forward`` and ``turn`` are the times of one advanced and one turned step, ``state`` and
    ``tape`` the sizes of a snapshot and of a kept tape; each is one number, or one a step. Kept
    tapes take room in the first tier.
    """

    steps: int
    rooms: tuple[Room, ...]
    forward: float | tuple[float, ...] = 1.0
    turn: float | tuple[float, ...] = 1.0
    state: float | tuple[float, ...] = 1
    tape: float | tuple[float, ...] = 0

    def time(self, advanced: int | Sequence[int], stores: Sequence[int], restores: Sequence[int]) -> float:
        """Total time, from the advances (one count a step where ``forward`` is a list) and the transfers by tier."""
        forward: Any = self.forward
        turns = self.turn * self.steps if isinstance(self.turn, int | float) else sum(self.turn)
        if isinstance(forward, tuple):
            assert not isinstance(advanced, int)
            compute = sum(cost * times for cost, times in zip(forward, advanced, strict=True))
        else:
            compute = forward * advanced
        transfers = sum(
            room.write * written + room.read * read
            for room, written, read in zip(self.rooms, stores, restores, strict=True)
        )
        return float(compute + turns + transfers)


@dataclass(frozen=True)
class Cost:
    """What a schedule takes, by closed form, by dynamic programming or by counting.

    ``forwards`` counts every evaluation of a step (``advances`` without a tape, and one with a
    tape for each step); ``stores`` and ``restores`` count snapshots written and read; ``peak`` is
    the most that the first tier holds at once, in units of one state, not counting the working
    state; ``time`` is in the units of the schedule's costs. ``tapes`` is the most tapes kept at
    once, and ``peaks`` is ``peak`` for each tier.
    """

    forwards: int
    advances: int
    stores: int
    restores: int
    peak: float
    time: float
    tapes: int = 0
    peaks: tuple[float, ...] = ()
