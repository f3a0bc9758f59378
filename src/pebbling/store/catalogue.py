"""What a store holds, by key: refuses keys that make no sense, unknown keys, and use after close."""

from __future__ import annotations

from typing import Generic, TypeVar

from ..errors import StoreError
from .contract import Key

T = TypeVar("T")


class Catalogue(Generic[T]):
    """The entries of one store."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.entries: dict[Key, T] = {}
        self.closed = False

    def check(self, key: Key) -> None:
        """Raise unless ``key`` may be used now."""
        if self.closed:
            raise StoreError(f"{self.owner} is closed")
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise ValueError(f"a key is a text or an int, not {key!r}")

    def find(self, key: Key) -> T:
        """The entry under ``key``."""
        self.check(key)
        try:
            return self.entries[key]
        except KeyError:
            raise StoreError(f"{self.owner} holds no snapshot {key!r}, only {self._some()}") from None

    def keys(self) -> list[Key]:
        """The keys, oldest first."""
        if self.closed:
            raise StoreError(f"{self.owner} is closed")
        return list(self.entries)

    def close(self) -> bool:
        """Forget everything; whether it was open."""
        was_open, self.closed = not self.closed, True
        self.entries.clear()
        return was_open

    def _some(self) -> str:
        keys = [repr(key) for key in list(self.entries)[:8]]
        if len(self.entries) > len(keys):
            keys.append(f"{len(self.entries) - len(keys)} more")
        return ", ".join(keys) or "nothing"
