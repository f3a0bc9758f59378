"""A store that is as slow, small or broken as a test wants it to be, and tells what was asked of it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from ..errors import StoreError, StoreFull
from ..tree import Layout, flatten, kind_of, pack, unflatten
from ..tree import nbytes as size_of
from ..tree.leaves import Carried
from ..units import format_bytes, parse_bytes, parse_seconds
from .contract import Key, Store
from .memory import Memory


class MockCall(NamedTuple):
    """One call, and when it was under way."""

    name: str
    key: Key
    start: float
    stop: float


class Mock(Store):
    """Wraps ``store``, or a ``Memory`` of its own.

    ``write_delay`` and ``read_delay`` are spent in every put and get. ``fail_at`` numbers the calls
    of put, get, take and drop that raise ``error`` instead, the first being 1. ``limit`` is how many
    bytes it holds before it raises ``StoreFull``. ``corrupt`` names keys of which one bit comes out
    flipped, without a word: who must notice can be seen to notice.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        write_delay: float | str = 0.0,
        read_delay: float | str = 0.0,
        fail_at: int | Collection[int] = (),
        error: type[Exception] = StoreError,
        limit: int | str | None = None,
        corrupt: Collection[Key] = (),
    ) -> None:
        self.store = Memory() if store is None else store
        self.write_delay = parse_seconds(write_delay)
        self.read_delay = parse_seconds(read_delay)
        self.fail_at = {fail_at} if isinstance(fail_at, int) else set(fail_at)
        self.error = error
        self.limit = None if limit is None else parse_bytes(limit)
        self.corrupt = set(corrupt)
        self.log: list[MockCall] = []
        self.closed = False

    @property
    def lossy(self) -> bool:  # type: ignore[override]
        return self.store.lossy

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self.store.pickle

    def count(self, name: str) -> int:
        """How often a method was called."""
        return sum(call.name == name for call in self.log)

    def put(self, key: Key, tree: Any) -> None:
        start = self._begin("put", key)
        self._check_room(len(self.keys()) + (key not in self), self.nbytes + size_of(tree))
        time.sleep(self.write_delay)
        self.store.put(key, tree)
        self._end("put", key, start)

    def get(self, key: Key) -> Any:
        start = self._begin("get", key)
        time.sleep(self.read_delay)
        tree = self.store.get(key)
        self._end("get", key, start)
        return _flipped(tree) if key in self.corrupt else tree

    def take(self, key: Key) -> Any:
        start = self._begin("take", key)
        time.sleep(self.read_delay)
        tree = self.store.take(key)
        self._end("take", key, start)
        return _flipped(tree) if key in self.corrupt else tree

    def drop(self, key: Key) -> None:
        start = self._begin("drop", key)
        self.store.drop(key)
        self._end("drop", key, start)

    def keys(self) -> list[Key]:
        return self.store.keys()

    @property
    def nbytes(self) -> int:
        return self.store.nbytes

    def reserve(self, count: int, nbytes: int) -> None:
        self._check_room(count, count * nbytes)
        self.store.reserve(count, nbytes)

    def flush(self) -> None:
        self.store.flush()

    def close(self) -> None:
        self.closed = True
        self.store.close()

    def _begin(self, name: str, key: Key) -> float:
        start = time.perf_counter()
        if len(self.log) + 1 in self.fail_at:
            self._end(name, key, start)
            raise self.error(f"call {len(self.log)}, {name} of snapshot {key!r}, fails as it was told to")
        return start

    def _end(self, name: str, key: Key, start: float) -> None:
        self.log.append(MockCall(name, key, start, time.perf_counter()))

    def _check_room(self, count: int, needed: int) -> None:
        if self.limit is not None and needed > self.limit:
            raise StoreFull(
                f"{count} snapshots need {format_bytes(needed)}, and this store holds {format_bytes(self.limit)}"
            )


def _flipped(tree: Any) -> Any:
    leaves, structure = flatten(tree)
    for index, leaf in enumerate(leaves):
        kind = kind_of(leaf)
        if not isinstance(kind, Carried) and kind.nbytes(leaf):
            leaves[index] = _with_flipped_bit(leaf)
            return unflatten(structure, leaves)
    raise ValueError("there is no array in this snapshot to corrupt")


def _with_flipped_bit(leaf: Any) -> Any:
    meta, (data,) = pack(leaf)
    (buffer,), finish = Layout(meta).allocate()
    np.copyto(buffer, data)
    buffer[buffer.size // 2] ^= 1
    return finish()
