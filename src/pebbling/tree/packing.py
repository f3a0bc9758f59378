"""A tree as one small text of bytes and the bytes of its arrays, and back.

The small part is a pickle of the structure, of what each array is, and of the leaves that are not
arrays: read only what you trust as much as your own program. The arrays' bytes are not copied on
the way out where they lie densely in memory, and are read straight into the new arrays on the way
back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import StoreError
from .arrays import Form
from .leaves import PLAIN, Carried, kind_named, kind_of
from .structure import Structure, flatten, paths, unflatten

_CARRIED, _SAME = "carried", "same"


def pack(tree: Any) -> tuple[bytes, list[np.ndarray]]:
    """What ``Layout`` needs to make such a tree, and the bytes of its arrays in order.

    >>> meta, buffers = pack({"u": np.arange(3, dtype="u1"), "step": 3})
    >>> [buffer.tolist() for buffer in buffers]
    [[0, 1, 2]]
    """
    leaves, structure = flatten(tree)
    entries: list[tuple[str, Any]] = []
    buffers: list[np.ndarray] = []
    seen: dict[int, int] = {}
    for index, leaf in enumerate(leaves):
        kind = kind_of(leaf)
        if kind is PLAIN:
            entries.append((_CARRIED, leaf))
        elif (first := seen.setdefault(id(leaf), index)) != index:
            entries.append((_SAME, first))
        elif isinstance(kind, Carried):
            entries.append((_CARRIED, leaf))
        else:
            spec, data = kind.pack(leaf)
            entries.append((kind.name, spec))
            buffers.append(data)
    try:
        return pickle.dumps((structure, entries), 5), buffers
    except Exception as error:
        raise StoreError(_unpicklable(structure, leaves, error)) from error


class Layout:
    """What a packed tree looks like: makes room for its bytes, then the tree."""

    def __init__(self, meta: bytes) -> None:
        self._meta = meta
        self._structure, self._entries = _load(meta)
        # What is carried may change in the hands of who gets it: it is unpickled again each time.
        self._fixed = all(name != _CARRIED or kind_of(what) is PLAIN for name, what in self._entries)

    @property
    def forms(self) -> list[Form]:
        """What the bytes in each buffer are."""
        return [kind_named(name).form(what) for name, what in self._entries if name not in (_CARRIED, _SAME)]

    def allocate(self) -> tuple[list[np.ndarray], Callable[[], Any]]:
        """Buffers to fill, and what turns them into the tree once they are full."""
        structure, entries = (self._structure, self._entries) if self._fixed else _load(self._meta)
        buffers: list[np.ndarray] = []
        finishers: list[tuple[str, Any]] = []
        for name, what in entries:
            if name not in (_CARRIED, _SAME):
                buffer, what = kind_named(name).make(what)
                buffers.append(buffer)
            finishers.append((name, what))
        return buffers, lambda: _finish(structure, finishers)


def _load(meta: bytes) -> tuple[Structure, list[tuple[str, Any]]]:
    structure, entries = pickle.loads(meta)
    return structure, entries


def _finish(structure: Structure, finishers: list[tuple[str, Any]]) -> Any:
    leaves: list[Any] = []
    for name, what in finishers:
        if name == _CARRIED:
            leaves.append(what)
        elif name == _SAME:
            leaves.append(leaves[what])
        else:
            leaves.append(what())
    return unflatten(structure, leaves)


def _unpicklable(structure: Structure, leaves: list[Any], error: Exception) -> str:
    for path, leaf in zip(paths(structure), leaves):
        if isinstance(kind_of(leaf), Carried):
            try:
                pickle.dumps(leaf, 5)
            except Exception:
                return (
                    f"{path}, a {type(leaf).__qualname__}, can't be pickled ({error}): keep it out of the state, "
                    "or say how to write it with pebbling.tree.register"
                )
    return f"the structure of the state can't be pickled: {error}"
