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

from ..engine.numpy.hold import ArrayLock, hold, release
from ..tree import kind_of
from ..tree.leaves import OTHER
from .frameworks import Framework


class Shelf:
    """Numbered slots for states, and arrays that stay locked as long as the shelf lives."""

    __slots__ = ("_framework", "_locks", "_slots", "written")

    def __init__(self, framework: Framework, written: Collection[int] = ()) -> None:
        """``written`` are the positions of the leaves that the step writes into."""
        self._framework, self.written = framework, frozenset(written)
        self._slots: dict[int, list[Any]] = {}
        self._locks: dict[int, _LockedLeaf] = {}

    def put(self, slot: int, state: Sequence[Any]) -> None:
        """Keep a state; who gave it may go on with it."""
        kept = self._slots[slot] = list(state)
        for position, leaf in enumerate(kept):
            if type(leaf) is ndarray and position not in self.written:
                self.lock(leaf)
            elif type(leaf) not in _UNCHANGING:
                kept[position] = self._private(leaf, position)

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
        for position, leaf in enumerate(state):
            if type(leaf) is ndarray and position not in self.written:
                self._unlock(leaf)
        return state

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
        for entry in self._locks.values():
            release(entry.locks)
        self._locks.clear()

    def __del__(self) -> None:
        if self._locks:
            self.clear()

    def _private(self, leaf: Any, position: int) -> Any:
        if self._framework.level(leaf):
            return self._framework.share(leaf)
        kind = kind_of(leaf)
        return kind.copy(leaf) if kind is OTHER or position in self.written else leaf


_UNCHANGING = frozenset({float, int, bool, np.float64, np.float32, type(None), str})


class _LockedLeaf:
    """An array, and how many slots have it. Loops inside of the step, and tapes, may hold it as well."""

    __slots__ = ("count", "leaf", "locks")

    def __init__(self, leaf: ndarray) -> None:
        self.leaf, self.count = leaf, 0
        self.locks: dict[int, ArrayLock] = {}
        hold(self.locks, leaf)
