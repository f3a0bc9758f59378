"""Evenly spaced snapshots, each segment taped whole: one extra forward sweep at most.

Called periodic or two-level checkpointing. It advances no step twice and is not optimal in memory:
``slots`` bounds the snapshots, and the tapes of one segment, about steps/slots of them, come on
top. Choose it for its regular shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .actions import Advance, EndForward, Free, Record, Restore, Reverse, Snapshot
from .cost import Model, Room
from .schedule import Schedule
from .spans import Each, Item, Span, Sub
from .validate import whole


@dataclass(frozen=True)
class Periodic(Schedule):
    """Reverse ``steps`` steps in ``slots`` segments of equal length, the last ones longer by one if need be.

    >>> Periodic(10, 3).cost.forwards, Periodic(10, 3).cost.tapes
    (16, 4)
    """

    steps: int
    slots: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.slots),))

    @property
    def root(self) -> Span:
        return (self.steps, min(self.slots, max(self.steps, 1)))

    def expand(self, span: Span) -> Sequence[Item]:
        """The span (n, k) is n steps in k segments, taken from the first segment on."""
        steps, segments = span
        slot = self.root[1] - segments
        if segments == 1:
            tapes = [Each(Record, 0, steps), Each(Reverse, 0, steps)] if steps else []
            return [*tapes[:1], EndForward(), *tapes[1:]]
        first = steps // segments
        return [
            Snapshot(0, slot, 0),
            Advance(0, first),
            Sub(first, (steps - first, segments - 1)),
            Restore(0, slot, 0),
            Free(0, slot, 0),
            Each(Record, 0, first),
            Each(Reverse, 0, first),
        ]
