"""States held by reference: nothing is copied that can't change, and what could change is locked.

A step gives its result in new arrays, so a snapshot in memory need not copy: it holds the arrays
and makes them read-only until they are let go, so that a step that writes into its input fails at
the very line that does it. Where arrays can't be locked (torch), their version is compared instead.
Anything else that can change, random generators for one, is copied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import ReplayError
from ..tree import Structure, flatten, kind_of, paths, unflatten
from ..tree.leaves import OTHER, PLAIN


class Held(NamedTuple):
    """One state, taken apart."""

    leaves: list[Any]
    structure: Structure
    versions: list[int | None] | None


class _Array:
    __slots__ = ("array", "nbytes", "times", "writeable")

    def __init__(self, array: Any, nbytes: int, writeable: bool) -> None:
        self.array, self.nbytes, self.writeable = array, nbytes, writeable
        self.times = 1


class Holdings:
    """All arrays that a run holds, each counted and locked once however many states share it."""

    def __init__(self) -> None:
        self._count: dict[int, _Array] = {}
        self.nbytes = 0
        self.peak = 0

    def hold(self, state: Any) -> Held:
        """Lock a state and keep it."""
        if type(state) is np.ndarray:
            self._lock(state)
            return Held([state], None, None)
        leaves, structure = flatten(state)
        versions: list[int | None] | None = None
        for i, leaf in enumerate(leaves):
            kind = kind_of(leaf)
            if kind is OTHER:
                leaves[i] = kind.copy(leaf)
            elif kind is not PLAIN:
                self._lock(leaf)
                if hasattr(leaf, "_version"):
                    versions = versions or [None] * len(leaves)
                    versions[i] = leaf._version
        return Held(leaves, structure, versions)

    def state(self, held: Held) -> Any:
        """The state, to be used while it stays held."""
        leaves, structure, versions = held
        if structure is None and type(leaves[0]) is np.ndarray:
            return leaves[0]
        if versions is not None:
            self._compare(held)
        return unflatten(structure, [_private(leaf) for leaf in leaves])

    def release(self, held: Held) -> None:
        """Let a state go; arrays held nowhere else are unlocked."""
        for leaf in held.leaves:
            entry = self._count.get(id(leaf))
            if entry is None:
                continue
            entry.times -= 1
            if entry.times == 0:
                del self._count[id(leaf)]
                self.nbytes -= entry.nbytes
                if entry.writeable:
                    leaf.setflags(write=True)

    def _lock(self, leaf: Any) -> None:
        entry = self._count.get(id(leaf))
        if entry is not None:
            entry.times += 1
            return
        writeable = isinstance(leaf, np.ndarray) and leaf.flags.writeable
        size = leaf.nbytes if type(leaf) is np.ndarray else kind_of(leaf).nbytes(leaf)
        self._count[id(leaf)] = _Array(leaf, size, writeable)
        self.nbytes += size
        if self.nbytes > self.peak:
            self.peak = self.nbytes
        if writeable:
            leaf.setflags(write=False)

    def _compare(self, held: Held) -> None:
        for i, version in enumerate(held.versions or ()):
            if version is not None and held.leaves[i]._version != version:
                raise ReplayError(
                    f"{paths(held.structure)[i]} was changed in place after it was stored: "
                    "a step must return its result in new arrays"
                )


def _private(leaf: Any) -> Any:
    kind = kind_of(leaf)
    return kind.copy(leaf) if kind is OTHER else leaf
