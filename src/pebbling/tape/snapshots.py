"""Snapshots: the values of a cut, held by reference in memory or written to a store."""

from __future__ import annotations

from typing import Any

from ..drive.store_slots import StoreSlots
from ..store import Store
from ..tree import nbytes
from .handle import ABSENT


class TapeSnapshot:
    """The cut before ``step``."""

    __slots__ = ("_number", "_shelf", "_values", "step")

    def __init__(self, step: int, values: list[Any], shelf: TapeSnapshots | None = None, number: int = 0) -> None:
        self.step, self._values, self._shelf, self._number = step, values, shelf, number

    def get(self) -> list[Any]:
        """The values, which stay here as well."""
        return list(self._values) if self._shelf is None else self._shelf.get(self._number)

    def forget(self, place: int) -> None:
        """Let go of one value that nobody will ask for; what is in a store stays there."""
        if self._values:
            self._values[place] = ABSENT

    def drop(self) -> None:
        """Let go of all."""
        if self._shelf is not None:
            self._shelf.drop(self._number)
        self._shelf, self._values = None, []


class TapeSnapshots:
    """Makes snapshots; those of the slow tier go to ``store``, which writes them in the background."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._slots: StoreSlots | None = None
        self._count = 0
        self.most = 1
        """How many snapshots the schedule keeps in the store at once."""

    @property
    def lossy(self) -> bool:
        """Whether what comes back may differ from what was kept."""
        return self._store is not None and self._store.lossy

    def put(self, step: int, values: list[Any], slow: bool) -> TapeSnapshot:
        """Keep the cut before ``step``, in the store if it is to go to the slow tier."""
        if not slow or not values:
            return TapeSnapshot(step, values)
        assert self._store is not None
        if self._slots is None:
            self._slots = StoreSlots(self._store)
            self._slots.reserve(self.most, nbytes(values))
        self._count += 1
        self._slots.put(self._count, self._count, values)
        return TapeSnapshot(step, [], self, self._count)

    def get(self, number: int) -> list[Any]:
        """The values of a snapshot; the one before it is the next to be asked for."""
        assert self._slots is not None
        values: list[Any] = self._slots.get(number)
        self._slots.expect_before(number)
        return values

    def drop(self, number: int) -> None:
        """Forget a snapshot."""
        if self._slots is not None and number in self._slots.steps:
            self._slots.free(number)
            if not self._slots.steps:
                self.clear()

    def clear(self) -> None:
        """Leave the store as it was found."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.clear()
