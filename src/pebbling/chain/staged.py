"""Segments on a slow tier, each reversed by a mixed plan in the fast one.

Every segment's first state goes to the slow tier once and comes back once, so transfers are long
apart and overlap with the compute. Optimal in the length of the segments (the planner searches it)
and within each segment; where the slow tier has fewer slots than segments are wanted,
``Hierarchical`` uses its slots again and again instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .actions import Advance, Free, Restore, Snapshot
from .cost import Model, Room
from .mixed import Mixed
from .revolve import FIRST, FRESH
from .schedule import Schedule
from .spans import Item, Span, Sub
from .validate import amount, whole


@dataclass(frozen=True)
class Staged(Schedule):
    """Reverse ``steps`` steps in ``segments`` of equal length, with ``memory`` units for states and tapes in each.

    ``write`` and ``read`` are the times of one transfer, ``forward`` that of a step and
    ``backward`` that of a turn; ``cost.time`` counts transfers in full, as if nothing overlapped.
    """

    steps: int
    segments: int
    memory: float
    tape: float = 1
    write: float = 0.0
    read: float = 0.0
    forward: float = 1.0
    backward: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 1))
        object.__setattr__(self, "segments", min(whole(self.segments, "segments", 1), self.steps))
        for name in ("write", "read", "forward", "backward"):
            object.__setattr__(self, name, amount(getattr(self, name), name))
        assert self._inner.steps

    @property
    def longest(self) -> int:
        """The number of steps in the longest segment."""
        return -(-self.steps // self.segments)

    @property
    def model(self) -> Model:
        rooms = (Room(self._inner.memory), Room(self.segments - 1, self.write, self.read))
        return Model(self.steps, rooms, self.forward, self.backward, tape=self._inner.tape)

    @property
    def root(self) -> Span:
        return (self.steps, self.segments)

    def expand(self, span: Span) -> Sequence[Item]:
        """(n, k) is n steps in k segments, from the first on; (n, units, how) is a span of the mixed plan."""
        if len(span) == 3:
            return self._inner.expand(span)
        steps, segments = span
        if segments == 1:
            return [Sub(0, (steps, self._units, FIRST))]
        first, slot = steps // segments, self.segments - segments
        return [
            Snapshot(0, slot, 1),
            Advance(0, first),
            Sub(first, (steps - first, segments - 1)),
            Restore(0, slot, 1),
            Free(0, slot, 1),
            Sub(0, (first, self._units, FRESH)),
        ]

    @cached_property
    def _inner(self) -> Mixed:
        return Mixed(self.longest, self.memory, self.tape)

    @property
    def _units(self) -> int:
        return self._inner.root[1]
