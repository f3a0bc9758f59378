"""Snapshots in the memory of this process."""

from __future__ import annotations

from typing import Any

from ..tree import copy as copy_of
from ..tree import nbytes as size_of
from .catalogue import Catalogue
from .contract import Key, Store


class Memory(Store):
    """Keeps copies of the arrays themselves, on the device they are on.

    >>> with Memory() as store:
    ...     store.put("first", {"u": [1.0, 2.0]})
    ...     store.get("first")
    {'u': [1.0, 2.0]}
    """

    in_memory = True
    pickle = True  # nobody else can write here

    def __init__(self) -> None:
        self._held: Catalogue[tuple[Any, int]] = Catalogue("this Memory store")
        self._nbytes = 0

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        private = copy_of(tree)
        size = size_of(private)
        entries = self._held.entries
        if key in entries:
            self._nbytes -= entries[key][1]
        entries[key] = (private, size)
        self._nbytes += size

    def get(self, key: Key) -> Any:
        return copy_of(self._held.find(key)[0])

    def take(self, key: Key) -> Any:
        tree, size = self._held.find(key)
        del self._held.entries[key]
        self._nbytes -= size
        return tree

    def drop(self, key: Key) -> None:
        self.take(key)

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def close(self) -> None:
        self._held.close()
        self._nbytes = 0
