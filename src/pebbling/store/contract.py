"""What a store is: six methods, three that follow from them, and who owns what.

- ``put`` keeps its own copy: the caller may change the tree afterwards. An existing key is
  replaced, and keeps its old snapshot if that fails.
- ``get`` gives a private copy: the caller may change it, and the snapshot stays as it was.
- ``take`` is the last ``get`` of a key: the snapshot leaves the store, which saves the copy where
  a store can hand out the very object it holds.
- What comes out is what went in, to the last bit, unless ``lossy`` is true.
- A key is a short text or an int; 1 and "1" are two keys. An unknown key, a closed store and
  whatever else prevents the work is a ``StoreError`` that leaves the store usable.
- ``close`` removes what the store created, and nothing else. Closing twice is closing once.

A store is used by one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self, TypeAlias

Key: TypeAlias = str | int


class Store(ABC):
    """Where snapshots are kept."""

    lossy: bool = False
    """Whether what comes out may differ from what went in."""

    in_memory: bool = False
    """Whether snapshots are in the memory of this process, where they count in a budget."""

    in_background: bool = False
    """Whether a put returns before the snapshot is written, from a copy, and reads can be asked for ahead."""

    pickle: bool = False
    """Whether objects that are not data may be written, and read, as pickles; reading a pickle runs code."""

    @abstractmethod
    def put(self, key: Key, tree: Any) -> None:
        """Keep a snapshot of ``tree`` under ``key``."""

    @abstractmethod
    def get(self, key: Key) -> Any:
        """A private copy of the snapshot under ``key``."""

    @abstractmethod
    def drop(self, key: Key) -> None:
        """Forget the snapshot under ``key``; its room is free for the next one."""

    @abstractmethod
    def keys(self) -> list[Key]:
        """The keys held."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes that the snapshots take where they are kept."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""

    def take(self, key: Key) -> Any:
        """The snapshot under ``key``, which the store no longer holds."""
        tree = self.get(key)
        self.drop(key)
        return tree

    def reserve(self, count: int, nbytes: int) -> None:
        """Make sure of room for ``count`` snapshots of ``nbytes``, those held included, or raise ``StoreFull``.

        Does nothing in a store that has no limit of its own. A put that replaces a snapshot needs
        room for both while it lasts.
        """
        return

    def prefetch(self, key: Key) -> bool:
        """Start to read a snapshot that will be asked for soon; whether that is done, which not every store can."""
        return False

    def flush(self) -> None:
        """Return when all that was asked for is done; a store that works in the background waits."""
        return

    def __contains__(self, key: Key) -> bool:
        return key in self.keys()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
