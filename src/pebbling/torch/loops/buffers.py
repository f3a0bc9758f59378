"""Buffers that steps update, such as the statistics of a batch normalisation.

They are updated once, by the sweep. A replay starts with the values that they had at its snapshot, and
when the way back is over they hold again what they held before it. Which buffers steps update is
seen on the first step. For one that is updated later for the first time, a loop of a function's source begins anew,
and any other is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from ...errors import ReplayError

Slot: TypeAlias = tuple[torch.nn.Module, str]
Values: TypeAlias = tuple[torch.Tensor, ...]


class Buffers:
    """The buffers of the modules that a loop calls."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._all = list(slots)
        self.only(slots)
        self.changed = [True] * len(self._all)
        self._still: list[tuple[Slot, torch.Tensor]] = []

    def read(self) -> Values:
        """Copies of those that change; those of a kind share one storage, filled by one kernel."""
        buffers = [_of(slot).detach() for slot in self.changing]
        values = list(buffers)
        for places in self._alike(buffers):
            some = [buffers[place] for place in places]
            flat: Any = torch.cat([one.reshape(-1) for one in some])
            for place, one, part in zip(places, some, flat.split([one.numel() for one in some])):
                values[place] = part.view(one.shape)
        return tuple(values)

    def changed_since(self, marks: Sequence[Any] = ()) -> tuple[list[Any], list[torch.nn.Module]]:
        """Marks of all buffers as they are now, and the modules of those whose marks were others."""
        now = [(id(_of(slot)), _of(slot)._version) for slot in self._all]
        return now, [slot[0] for slot, old, new in zip(self._all, marks, now) if old != new]

    def write(self, values: Values) -> None:
        """Put values back, without counting as a write: no tape takes notice."""
        buffers = [_of(slot).data for slot in self.changing]
        for places in self._alike(buffers):
            torch._foreach_copy_([buffers[place] for place in places], [values[place] for place in places])

    def settle(self, before: Values) -> None:
        """After a step, tell those that it changed from those it did not; ``before`` was read before it."""
        self.changed = [
            slot[1] in _late.get(slot[0], ()) or not torch.equal(_of(slot), value)
            for slot, value in zip(self._all, before)
        ]
        self._still = [(slot, value) for slot, value, one in zip(self._all, before, self.changed) if not one]
        self.only([slot for slot, one in zip(self._all, self.changed) if one])

    def only(self, slots: Sequence[Slot]) -> None:
        """Take it as known which of them steps change."""
        self.changing = list(slots)
        self._groups: list[list[int]] | None = None

    def _alike(self, buffers: Sequence[torch.Tensor]) -> list[list[int]]:
        """Places of the buffers, those on one device and of one type together."""
        if self._groups is None:
            found: dict[tuple[torch.device, torch.dtype], list[int]] = {}
            for place, one in enumerate(buffers):
                found.setdefault((one.device, one.dtype), []).append(place)
            self._groups = list(found.values())
        return self._groups

    def widen(self) -> int:
        """Put back those that have changed and did not at first, and count them among those that change; how many."""
        late = [(slot, value) for slot, value in self._still if not torch.equal(_of(slot), value)]
        for (module, name), value in late:
            _of((module, name)).data.copy_(value)
            _late.setdefault(module, set()).add(name)
        self._still = []
        self.only([*self.changing, *[slot for slot, _ in late]])
        return len(late)

    def check(self, where: str) -> None:
        """Refuse changes of buffers that did not change at first."""
        for slot, value in self._still:
            if not torch.equal(_of(slot), value):
                raise ReplayError(
                    f"{where} updates the buffer {slot[1]!r} of {type(slot[0]).__name__} for the first time after its "
                    "first step, so that its earlier values can't be had for the way back: carry it in the state"
                )
        self._still = []


_late: WeakKeyDictionary[torch.nn.Module, set[str]] = WeakKeyDictionary()
"""Buffers that loops were seen to update, though not in their first steps."""


def _of(slot: Slot) -> torch.Tensor:
    found = slot[0]._buffers[slot[1]]
    assert found is not None
    return found
