"""Snapshots of a loop in memory: held by reference, and locked so that nobody writes into them.

A step gives its result in new arrays, so holding one costs nothing. Arrays are read-only while they
are held, their bases included, and NumPy raises at the very line that writes. Traced values (dual
numbers of an outer derivative) are held as objects of their own over the same memory, into which
nobody else writes. Whatever else can change (random generators) and the leaves that the step is known
to write into are copied, on the way in and on the way out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ..drive.store_slots import StoreSlots
from ..engine.numpy.hold import ArrayLock, hold, release
from ..errors import PebblingError
from ..store import Store
from ..tree import kind_of
from ..tree.leaves import OTHER
from .frameworks import Framework


class ArraySlots:
    """Numbered slots for states, and arrays that stay locked as long as the shelf lives."""

    __slots__ = ("_framework", "_locks", "_slots", "steps", "written")

    def __init__(self, framework: Framework, written: Collection[int] = ()) -> None:
        """``written`` are the positions of the leaves that the step writes into."""
        self._framework, self.written = framework, frozenset(written)
        self._slots: dict[int, list[Any]] = {}
        self.steps: dict[int, int] = {}
        """The steps whose states are in the slots."""
        self._locks: dict[int, _LockedLeaf] = {}

    def put(self, slot: int, state: Sequence[Any], step: int = 0) -> None:
        """Keep the state before a step; who gave it may go on with it."""
        self._slots[slot] = self.held(state)
        self.steps[slot] = step

    def held(self, state: Sequence[Any]) -> list[Any]:
        """A state whose leaves nobody else can change until it is ``let_go``."""
        kept = list(state)
        for position, leaf in enumerate(kept):
            if type(leaf) is ndarray and position not in self.written:
                self.lock(leaf)
            elif type(leaf) not in _UNCHANGING:
                kept[position] = self._private(leaf, position)
        return kept

    def get(self, slot: int) -> list[Any]:
        """A state, to go on from; the slot keeps it."""
        state = list(self._slots[slot])
        for position, leaf in enumerate(state):
            if (type(leaf) is not ndarray and type(leaf) not in _UNCHANGING) or position in self.written:
                state[position] = self._private(leaf, position)
        return state

    def free(self, slot: int) -> None:
        """Empty a slot."""
        self.take(slot)

    def take(self, slot: int) -> list[Any]:
        """A state, out of its slot."""
        state = self._slots.pop(slot)
        del self.steps[slot]
        self.let_go(state)
        return state

    def let_go(self, state: Sequence[Any]) -> None:
        """Unlock a state that was held."""
        for position, leaf in enumerate(state):
            if type(leaf) is ndarray and position not in self.written:
                self._unlock(leaf)

    def lock(self, leaf: ndarray) -> None:
        """Make an array read-only until the shelf is done with it, and whoever else needs it as it is."""
        entry = self._locks.get(id(leaf))
        if entry is None:
            entry = self._locks[id(leaf)] = _LockedLeaf(leaf)
        entry.count += 1

    def _unlock(self, leaf: ndarray) -> None:
        entry = self._locks[id(leaf)]
        entry.count -= 1
        if entry.count == 0:
            del self._locks[id(leaf)]
            release(entry.locks)

    def clear(self) -> None:
        """Let go of everything."""
        self._slots.clear()
        self.steps.clear()
        for entry in self._locks.values():
            release(entry.locks)
        self._locks.clear()

    def __del__(self) -> None:
        if self._locks:
            self.clear()

    def refuse_traced(self, state: Sequence[Any]) -> None:
        """Refuse values that another derivative follows: a store keeps plain ones."""
        if any(map(self._framework.level, state)):
            raise PebblingError(
                "store= keeps plain values, and this loop runs under two derivatives (a Hessian-vector product, say), "
                "whose states have tangents: leave out store="
            )

    def _private(self, leaf: Any, position: int) -> Any:
        if self._framework.level(leaf):
            return self._framework.share(leaf)
        kind = kind_of(leaf)
        return kind.copy(leaf) if kind is OTHER or position in self.written else leaf


_UNCHANGING = frozenset({float, int, bool, np.float64, np.float32, type(None), str})


class StoredArrays:
    """Numbered slots in a store; a state is lent to it, and so locked until it is written."""

    def __init__(self, store: Store, most: int, memory: ArraySlots) -> None:
        """``most`` is how many snapshots the schedule keeps at once; ``memory`` has the locks."""
        self._store, self._most, self._memory = store, most, memory
        self._slots: StoreSlots | None = None

    @property
    def steps(self) -> dict[int, int]:
        return {} if self._slots is None else self._slots.steps

    def put(self, slot: int, state: Sequence[Any], step: int = 0) -> None:
        memory = self._memory
        memory.refuse_traced(state)
        if self._slots is None:
            self._slots = StoreSlots(self._store)
            self._slots.reserve(self._most, sum([kind_of(leaf).nbytes(leaf) for leaf in state]))
        kept = memory.held(state)
        self._slots.put(slot, step, kept, lambda: memory.let_go(kept))

    def get(self, slot: int) -> list[Any]:
        assert self._slots is not None
        state: list[Any] = self._slots.get(slot)
        self._slots.expect_before(self._slots.steps[slot])
        return state

    def take(self, slot: int) -> list[Any]:
        state = self.get(slot)
        self.free(slot)
        return state

    def free(self, slot: int) -> None:
        assert self._slots is not None
        self._slots.free(slot)

    def clear(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.clear()


class _LockedLeaf:
    """An array, and how many slots have it. Loops inside of the step, and tapes, may hold it as well."""

    __slots__ = ("count", "leaf", "locks")

    def __init__(self, leaf: ndarray) -> None:
        self.leaf, self.count = leaf, 0
        self.locks: dict[int, ArrayLock] = {}
        hold(self.locks, leaf)
