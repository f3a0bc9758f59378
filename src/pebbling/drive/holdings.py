"""States held by reference: nothing is copied that can't change, and what could change is locked.

A step gives its result in new arrays, so a snapshot in memory need not copy: it holds the arrays
and makes them read-only until they are let go, so that a step that writes into its input fails at
the very line that does it. Where arrays can't be locked (torch), their version is compared instead,
and where they can be given away (jax), it is seen that they were. Copied is what could change
behind a lock: views of memory that others refer to as well, random generators and other objects.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from ..errors import ReplayError
from ..tree import Structure, flatten, kind_of, paths, unflatten
from ..tree.leaves import OTHER, PLAIN

_SOLE = 2  # what getrefcount says of an object with one owner: that one, and the argument


class Held(NamedTuple):
    """One state, taken apart."""

    leaves: list[Any]
    structure: Structure
    objects: list[int] | None = None
    """Which leaves could change unseen in the hands of who uses the state, and so are copied for each use."""
    versions: list[tuple[int, int | None]] | None = None
    """Which leaves can't be locked, with the version of those that have one."""


_held_as_is: Any = tuple.__new__
"""The same as calling a named tuple, in a third of the time."""

# What is known of an array or object that is held, as a list: an object with names takes twice the time.
_Entry: TypeAlias = list[Any]
_LEAF, _SIZE, _WRITEABLE, _TIMES, _KEPT = range(5)


class Holdings:
    """All that a run holds, each array counted and locked once however many states share it.

    A state is held to keep it, which counts in ``nbytes`` and ``peak``, or only for as long as the
    user's code works on it.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Entry] = {}
        self.nbytes = 0
        self.peak = 0

    def hold(self, state: Any, keep: bool = False) -> Held:
        """Lock a state until it is released."""
        if type(state) is np.ndarray and state.base is None and not state.dtype.hasobject:
            self._lock(state, keep)
            held: Held = _held_as_is(Held, ([state], None, None, None))
            return held
        leaves, structure = flatten(state)
        objects: list[int] | None = None
        versions: list[tuple[int, int | None]] | None = None
        for i, leaf in enumerate(leaves):
            kind = kind_of(leaf)
            if kind is PLAIN:
                continue
            if kind.name == "numpy":
                leaves[i] = leaf if _lockable(leaf) else kind.copy(leaf)
            elif kind is OTHER or _unversioned(leaf):
                leaves[i] = kind.copy(leaf)
                objects = [*(objects or ()), i]
            else:
                leaves[i] = leaf.detach() if getattr(leaf, "requires_grad", False) else leaf
                versions = [*(versions or ()), (i, getattr(leaf, "_version", None))]
            self._lock(leaves[i], keep)
        return Held(leaves, structure, objects, versions)

    def state(self, held: Held) -> Any:
        """The state, to be used while it stays held."""
        leaves, structure, objects, versions = held
        if structure is None and objects is None and versions is None:
            return leaves[0]
        if versions is not None:
            self.check(held)
        if objects is not None:
            leaves = list(leaves)
            for i in objects:
                leaves[i] = kind_of(leaves[i]).copy(leaves[i])
        return leaves[0] if structure is None else unflatten(structure, leaves)

    def release(self, held: Held, keep: bool = False) -> None:
        """Let a state go; arrays held nowhere else are unlocked. ``keep`` is what ``hold`` was told."""
        for leaf in held[0]:
            entry = self._held.get(id(leaf))
            if entry is None:
                continue
            if keep:
                entry[_KEPT] -= 1
                if not entry[_KEPT]:
                    self.nbytes -= entry[_SIZE]
            entry[_TIMES] -= 1
            if not entry[_TIMES]:
                del self._held[id(leaf)]
                if entry[_WRITEABLE]:
                    leaf.setflags(True)

    def check(self, held: Held) -> None:
        """Raise if an array that can't be locked was changed."""
        for i, version in held.versions or ():
            leaf = held.leaves[i]
            if version is None:
                if leaf.is_deleted():
                    raise ReplayError(
                        f"{paths(held.structure)[i]} was given away after it was stored (donated to a compiled "
                        "function): a step must leave its input as it is"
                    )
            elif leaf._version != version:
                raise ReplayError(
                    f"{paths(held.structure)[i]} was changed in place after it was stored: "
                    "a step must return its result in new arrays and leave its input as it is"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of everything, and leave every array as it was found."""
        for leaf, _, writeable, _, _ in self._held.values():
            if writeable:
                leaf.setflags(write=True)
        self._held.clear()
        self.nbytes = 0

    def _lock(self, leaf: Any, keep: bool) -> None:
        entry = self._held.get(id(leaf))
        if entry is not None:
            entry[_TIMES] += 1
        else:
            is_array = type(leaf) is np.ndarray
            writeable = is_array and leaf.flags.writeable
            size = leaf.nbytes if is_array else kind_of(leaf).nbytes(leaf)
            entry = self._held[id(leaf)] = [leaf, size, writeable, 1, 0]
            if writeable:
                leaf.setflags(False)
        if keep:
            if not entry[_KEPT]:
                self.nbytes += entry[_SIZE]
                if self.nbytes > self.peak:
                    self.peak = self.nbytes
            entry[_KEPT] += 1


def _lockable(array: np.ndarray) -> bool:
    """Whether nobody else can write to the memory of an array, and it holds no memory but its own."""
    base = array.base
    if base is None:
        return True
    return type(base) is np.ndarray and sys.getrefcount(base) <= _SOLE + 1 and base.nbytes <= 2 * array.nbytes


def _unversioned(leaf: Any) -> bool:
    """Whether changes of an array can't be seen: those of torch made in inference mode."""
    return hasattr(leaf, "is_inference") and leaf.is_inference()
