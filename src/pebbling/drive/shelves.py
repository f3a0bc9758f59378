"""Where a run keeps the snapshots of its plan: one shelf a tier, in memory or in a store."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ..budget import Budget, in_store, most_stored
from ..chain import Online, Schedule
from ..errors import PebblingError
from ..store import Store
from ..tree import nbytes
from .agree import smallest, together
from .holdings import Held, Holdings
from .leftovers import key_prefix, sweep_out
from .settle import Problem
from .store_slots import StoreSlots, in_use


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

    def clear(self, drop: bool) -> None:
        """Let go of all slots; what outlives this process is left where it is unless it is to be dropped."""

    def together(self, doing: str) -> AbstractContextManager[None]:
        """What is done with a snapshot on every rank of a run, and fails on all of them if it fails on one."""


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
        self._slots[slot] = self._holdings.hold(state, keep=True)
        self.written += self._holdings.nbytes - before

    def get(self, slot: int) -> Any:
        return self._holdings.state(self._slots[slot])

    def free(self, slot: int) -> None:
        self._holdings.release(self._slots.pop(slot), keep=True)

    def expect(self, slot: int) -> None:
        """Nothing to do: it is here."""

    def clear(self, drop: bool) -> None:
        for slot in list(self._slots):
            self.free(slot)

    def together(self, doing: str) -> AbstractContextManager[None]:
        return nullcontext()


class StoreShelf:
    """Slots in a store, written and read in the background; each snapshot goes by the step it belongs to.

    Keys carry the name of the run, so that a store may hold other things, and snapshots that an
    earlier run left there are never taken for this run's. A state on its way is not copied but held,
    and so locked, until it is written and another has been put or fetched.
    """

    def __init__(self, store: Store, prefix: str, holdings: Holdings, comm: Any = None) -> None:
        self._slots = StoreSlots(store, prefix, alone=True)
        self.name, self.store = self._slots.name, store
        self._holdings = holdings
        self._comm = comm
        self._sizes: dict[int, int] = {}
        self.written = self.read = self.peak = self._held = 0

    def put(self, slot: int, step: int, state: Any) -> None:
        with self.together("storing a snapshot"):
            self._hand_over(slot, step, state)
        size = nbytes(state)
        self.adopt(slot, step, size)
        self.written += size

    def get(self, slot: int) -> Any:
        self.read += self._sizes[slot]
        with self.together("fetching a snapshot"):
            return self._slots.get(slot)

    def free(self, slot: int) -> None:
        with self.together("dropping a snapshot"):
            self._slots.free(slot)
        self._held -= self._sizes.pop(slot)

    def expect(self, slot: int) -> None:
        if slot in self._sizes:
            with self.together("fetching a snapshot ahead"):
                self._slots.expect(slot)

    def has(self, step: int) -> bool:
        """Whether the store of every rank holds the snapshot of a step, perhaps from before this process."""
        return bool(smallest(self._comm, self._slots.has(step)))

    def adopt(self, slot: int, step: int, size: int) -> None:
        """Count a snapshot that is in the store as the one in a slot."""
        self._held += size - self._sizes.get(slot, 0)
        self._slots.steps[slot], self._sizes[slot] = step, size
        self.peak = max(self.peak, self._held)

    def clear(self, drop: bool) -> None:
        """Leave the store as it was found, which is the user's."""
        self._slots.clear(drop)

    def together(self, doing: str) -> AbstractContextManager[None]:
        return together(self._comm, doing)

    def _hand_over(self, slot: int, step: int, state: Any) -> None:
        """Start to write a state: as it is where it can be locked, else a copy of it."""
        held = self._holdings.hold(state)
        try:
            if held.versions is None:
                self._slots.put(slot, step, self._holdings.state(held), lambda: self._holdings.release(held))
                return
            self._slots.put(slot, step, state)
        except BaseException:
            self._holdings.release(held)
            raise
        self._holdings.release(held)


def make_shelves(
    schedule: Schedule | Online, budget: Budget, problem: Problem, holdings: Holdings, name: str | None, size: int
) -> list[Shelf]:
    """Memory for the fast tier; the store for the slow one, or for the only one unless a budget in bytes chose it.

    ``name`` is that of a run that may be resumed; ``size`` the bytes of a state.
    """
    with together(problem.comm, "preparing the store"):
        return _make(schedule, budget, problem, holdings, name, size)


def _make(
    schedule: Schedule | Online, budget: Budget, problem: Problem, holdings: Holdings, name: str | None, size: int
) -> list[Shelf]:
    store = problem.store
    stored = in_store(schedule, store, budget.memory is not None, "a run")
    if store is None or not any(stored):
        return [MemoryShelf(holdings)]
    if not in_use(store):
        sweep_out(store)
    store.reserve(len(store.keys()) + most_stored(schedule), size)
    slow = StoreShelf(store, key_prefix(name), holdings, problem.comm)
    return [MemoryShelf(holdings), slow] if len(stored) == 2 else [slow]


def leave(shelves: list[Shelf], error: BaseException | None, resumable: bool, left: list[str]) -> None:
    """Let go of all that a run holds; what a resumed run will want stays where it outlives this one.

    A run that came to its end has its result: what can't be cleaned up then is told in ``left``.
    """
    for shelf in shelves:
        try:
            shelf.clear(drop=error is None or not resumable)
        except (PebblingError, OSError) as trouble:
            if error is None:
                left.append(f"snapshots in the {shelf.name} store ({trouble})")
