"""The way back of a loop of unknown length, from the states that are held when it ends.

The actions are those of ``Online.ended``, which see for what is optimal; here they come one by one
in memory that does not grow with the loop, since a budget in bytes holds for the plan as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from ..chain import Action, Advance, EndForward, Free, Online, Restore, Revolve, Turn
from ..chain.binomial import advances


@dataclass(frozen=True)
class WayBack:
    """From the end of a loop of ``steps`` steps to its beginning."""

    steps: int
    online: Online

    @property
    def slots(self) -> int:
        """Slots of the sweep and of the way back."""
        return self.online.slots

    @cached_property
    def held(self) -> list[tuple[int, int]]:
        """The states held at the end of the sweep, each with its slot, in the order of their steps."""
        slots: dict[int, int] = {}
        for kept in self.online.placement():
            if kept.step >= self.steps:
                break
            slots[kept.slot] = kept.step
        return sorted((step, slot) for slot, step in slots.items())

    @property
    def evaluations(self) -> int:
        """How often the whole run calls for a step forward, those inside reversals not counted."""
        return self.steps + sum(advances(steps, self.slots - index) for index, steps in self._gaps())

    def since(self, index: int) -> Iterator[Action]:
        """The actions from the ``index``-th on, the end of the sweep being the first."""
        return islice(self, index, None)

    def __iter__(self) -> Iterator[Action]:
        yield EndForward()
        for index, steps in self._gaps():
            start, slot = self.held[index]
            yield Restore(start, slot, 0)
            if steps == 1:
                yield Free(start, slot, 0)
                yield Turn(start)
            else:
                yield from self._gap(index, start, steps)

    def _gaps(self) -> Iterator[tuple[int, int]]:
        """Which state each gap begins with, and how many steps it has, from the last gap to the first."""
        end = self.steps
        for index in reversed(range(len(self.held))):
            yield index, end - self.held[index][0]
            end = self.held[index][0]

    def _gap(self, index: int, start: int, steps: int) -> Iterator[Action]:
        """One gap, with the slots that hold none of the states before it; its first state is in its slot already."""
        names = [slot for _, slot in self.held[index:]]
        names += range(len(self.held), self.slots)
        actions: Iterator[Any] = iter(Revolve(steps, self.slots - index))
        next(actions)
        new: Any = tuple.__new__
        for action in actions:
            kind = type(action)
            if kind is Advance:
                yield new(Advance, (action[0] + start, action[1] + start))
            elif kind is Turn:
                yield new(Turn, (action[0] + start,))
            elif kind is not EndForward:
                yield new(kind, (action[0] + start, names[action[1]], 0))
