"""Snapshots: the values of a cut, held by reference in memory or written to a store."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

from ..errors import PebblingError
from ..store import Store
from .handle import ABSENT


class TapeSnapshot:
    """The cut before ``step``."""

    __slots__ = ("_key", "_shelf", "_values", "step")

    def __init__(self, step: int, values: list[Any], shelf: TapeSnapshots | None = None, key: str = "") -> None:
        self.step, self._values, self._shelf, self._key = step, values, shelf, key

    def get(self) -> list[Any]:
        """The values, which stay here as well."""
        return list(self._values) if self._shelf is None else self._shelf.get(self._key)

    def forget(self, place: int) -> None:
        """Let go of one value that nobody will ask for; what is in a store stays there."""
        if self._values:
            self._values[place] = ABSENT

    def drop(self) -> None:
        """Let go of all."""
        if self._shelf is not None:
            self._shelf.drop(self._key)
        self._shelf, self._values = None, []


class TapeSnapshots:
    """Makes snapshots; those of the slow tier go to ``store``, where their keys carry a name of this shelf."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._name = f"tape {uuid4().hex[:12]}"
        self._keys: set[str] = set()
        self._count = 0

    @property
    def lossy(self) -> bool:
        """Whether what comes back may differ from what was kept."""
        return self._store is not None and self._store.lossy

    def put(self, step: int, values: list[Any], slow: bool) -> TapeSnapshot:
        """Keep the cut before ``step``, in the store if it is to go to the slow tier."""
        if not slow or not values:
            return TapeSnapshot(step, values)
        assert self._store is not None
        self._count += 1
        key = f"{self._name} {self._count}"
        self._store.put(key, values)
        self._keys.add(key)
        return TapeSnapshot(step, [], self, key)

    def get(self, key: str) -> list[Any]:
        """The values under a key."""
        assert self._store is not None
        values: list[Any] = self._store.get(key)
        return values

    def drop(self, key: str) -> None:
        """Forget what is under a key."""
        if key in self._keys:
            assert self._store is not None
            self._keys.remove(key)
            self._store.drop(key)

    def clear(self) -> None:
        """Leave the store as it was found."""
        for key in list(self._keys):
            self.drop(key)

    def __del__(self) -> None:
        with suppress(PebblingError):  # the store may be closed by now
            self.clear()
