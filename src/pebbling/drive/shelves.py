"""Where a run keeps the snapshots of its plan: one shelf a tier, in memory or in a store."""

from __future__ import annotations

from typing import Any, Protocol

from ..store import Background, Store
from ..tree import nbytes
from .holdings import Held, Holdings


class Shelf(Protocol):
    """The slots of one tier."""

    name: str
    written: int
    read: int

    @property
    def peak(self) -> int:
        """The most bytes held at once."""

    def put(self, slot: int, step: int, state: Any) -> None:
        """Keep the state before ``step``."""

    def get(self, slot: int) -> Any:
        """The state in a slot, which stays there."""

    def free(self, slot: int) -> None:
        """Empty a slot."""

    def expect(self, slot: int) -> None:
        """Say that the state in this slot will be asked for next."""

    def clear(self) -> None:
        """Empty all slots."""


class MemoryShelf:
    """Slots that hold states of this process by reference."""

    name = "memory"

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._slots: dict[int, Held] = {}
        self.written = self.read = 0

    @property
    def peak(self) -> int:
        return self._holdings.peak

    def put(self, slot: int, step: int, state: Any) -> None:
        before = self._holdings.nbytes
        self._slots[slot] = self._holdings.hold(state)
        self.written += self._holdings.nbytes - before

    def get(self, slot: int) -> Any:
        return self._holdings.state(self._slots[slot])

    def free(self, slot: int) -> None:
        self._holdings.release(self._slots.pop(slot))

    def expect(self, slot: int) -> None:
        """Nothing to do: it is here."""

    def clear(self) -> None:
        for slot in list(self._slots):
            self.free(slot)


class StoreShelf:
    """Slots in a store, written and read in the background; each snapshot goes by the step it belongs to."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.store = store
        self._background = Background(store)
        self._steps: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self.written = self.read = self.peak = self._held = 0

    def put(self, slot: int, step: int, state: Any) -> None:
        self._background.put(key_of(step), state)
        self._steps[slot], self._sizes[slot] = step, nbytes(state)
        self._held += self._sizes[slot]
        self.written += self._sizes[slot]
        self.peak = max(self.peak, self._held)

    def get(self, slot: int) -> Any:
        self.read += self._sizes[slot]
        return self._background.get(key_of(self._steps[slot]))

    def free(self, slot: int) -> None:
        self._background.drop(key_of(self._steps.pop(slot)))
        self._held -= self._sizes.pop(slot)

    def expect(self, slot: int) -> None:
        if slot in self._steps:
            self._background.prefetch(key_of(self._steps[slot]))

    def adopt(self, slot: int, step: int, size: int) -> None:
        """Take over a snapshot that an earlier run left in the store."""
        self._steps[slot], self._sizes[slot] = step, size
        self._held += size

    def clear(self) -> None:
        """Drop what this run put; the store itself is the user's."""
        for slot in list(self._steps):
            self.free(slot)
        self._background.flush()


def key_of(step: int) -> str:
    """The key of the snapshot of a step."""
    return f"step{step}"
