"""Binomial checkpointing: the fewest advances when only states are kept.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000). Optimal for steps of equal
cost and states of equal size in one tier; ``Mixed`` does better where tapes may be kept as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from . import binomial
from .actions import Advance, EndForward, Free, Restore, Store, Turn
from .cost import Cost, Model, Room
from .schedule import Schedule
from .spans import Item, Span, Sub
from .tally import Tally
from .validate import whole

FRESH, KEPT, FIRST = range(3)
"""How a span meets its first state: not stored, in its slot already, or not stored and on the first sweep."""

_SPLITS = {"writes": binomial.fewest_writes, "runs": binomial.longest_runs}


@dataclass(frozen=True)
class Revolve(Schedule):
    """Reverse ``steps`` steps with ``slots`` snapshots and the fewest advances.

    Many plans have the fewest advances. ``prefer="writes"`` is the one that writes the fewest
    snapshots; ``prefer="runs"`` writes up to a quarter more, and reverses long runs of neighbouring
    steps, which suits compiled loops.

    >>> Revolve(10, 3).cost.forwards
    25
    """

    steps: int
    slots: int
    prefer: str = "writes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        if self.prefer not in _SPLITS:
            raise ValueError(f"prefer must be 'writes' or 'runs', not {self.prefer!r}")

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.slots),))

    @property
    def root(self) -> Span:
        return (self.steps, self.slots, FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        steps, slots, how = span
        slot = self.slots - slots
        if steps <= 1:
            return leaf(steps, slot, 0, how)
        split = self._split(steps, slots)
        return [
            *([Store(0, slot, 0)] if how != KEPT else []),
            Advance(0, split),
            Sub(split, (steps - split, slots - 1, FIRST if how == FIRST else FRESH)),
            Restore(0, slot, 0),
            Sub(0, (split, slots, KEPT)),
        ]

    def closed(self, span: Span) -> Tally | None:
        steps, slots, how = span
        if self.prefer != "writes" or steps <= 1:
            return None
        advances, written = binomial.advances(steps, slots), binomial.stores(steps, slots)
        kept, peak = how == KEPT, self._peak(steps, slots)
        length = 3 * steps - 2 + 2 * written - kept + (how == FIRST)
        return Tally(
            length, advances, steps, (written - kept,), (steps - 1,), (-kept,), (peak - kept,), tapes=0, most_tapes=0
        )

    @property
    def cost(self) -> Cost:
        if self.prefer != "writes" or self.steps == 0:
            return super().cost
        advances, peak = binomial.advances(self.steps, self.slots), self._peak(self.steps, self.slots)
        return Cost(
            forwards=advances + self.steps,
            advances=advances,
            stores=binomial.stores(self.steps, self.slots),
            restores=self.steps - 1,
            peak=peak,
            time=self.model.time(advances, (0,), (0,)),
            peaks=(peak,),
        )

    @cached_property
    def _split(self):  # noqa: ANN202
        return _SPLITS[self.prefer]

    @staticmethod
    def _peak(steps: int, slots: int) -> int:
        return min(slots, steps - 1)


def leaf(steps: int, slot: int, tier: int, how: int) -> list[Item]:
    """A span of one step, or of none."""
    return [
        *([EndForward()] if how == FIRST else []),
        *([Free(0, slot, tier)] if how == KEPT else []),
        *([Turn(0)] if steps else []),
    ]
