"""Keep the tape of every step: no step runs twice, and memory grows with the number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .actions import EndForward, Record, Reverse
from .cost import Model, Room
from .schedule import Schedule
from .spans import Each, Item, Span
from .validate import whole


@dataclass(frozen=True)
class StoreAll(Schedule):
    """Reverse ``steps`` steps from kept tapes: the plan when memory suffices.

    >>> StoreAll(10).cost.forwards
    10
    """

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(None),), tape=1)

    @property
    def root(self) -> Span:
        return (self.steps,)

    def expand(self, span: Span) -> Sequence[Item]:
        (steps,) = span
        return [Each(Record, 0, steps), EndForward(), Each(Reverse, 0, steps)]
