"""Snapshots wherever fsspec reaches: object stores, file servers, another machine's disk.

    Remote("s3://bucket/scratch")        Remote("memory://scratch")        Remote("sftp://node/scratch")

Each snapshot is one object of a name of its own, never written twice. A put writes a new object, and only when that is
whole does the key stand for it; then the old object goes. So an object store that shows new objects late, or a
connection that breaks half-way, leaves the old snapshot. What each key stands for, with the length and the checksum of
its object, is known to this process alone: nothing that lies there is believed, and a run can't be resumed from it.

Closing removes every object that was written, and no other. A process that is killed leaves its objects, all of which
have a name that begins with ``pebbling-``.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..errors import CorruptSnapshot, StoreError
from ..tree import Layout, pack
from ..tree.data import Unreadable
from .catalogue import Catalogue
from .checksum import checksum
from .contract import Key, Store
from .extra import require


class _RemoteObject(NamedTuple):
    """One object, and what must be in it."""

    path: str
    nbytes: int
    check: int
    layout: Layout


class Remote(Store):
    """Keeps snapshots below ``url``, which any file system of fsspec understands, and removes them on ``close``.

    ``options`` are those of the file system, such as ``key`` and ``secret`` or ``endpoint_url``. Objects that are not
    data need ``pickle=True``, as for ``Disk``. Needs fsspec: ``pip install 'pebbling[fsspec]'``, and what it needs for
    the kind of URL (s3fs, gcsfs, paramiko …).

    >>> with Remote("memory://scratch") as store:
    ...     store.put("a", {"u": [1.0, 2.0]})
    ...     store.get("a")
    {'u': [1.0, 2.0]}
    """

    def __init__(self, url: str | os.PathLike[str], *, pickle: bool = False, **options: Any) -> None:
        fsspec = require("fsspec", "fsspec", "Remote")
        self.url = os.fspath(url)
        self._may_pickle = pickle
        self._held: Catalogue[_RemoteObject] = Catalogue(f"the store at {self.url}")
        with self._translated("opening"):
            self._system, root = fsspec.core.url_to_fs(self.url, **options)
            self._made = not self._system.exists(root)
            self._system.makedirs(root, exist_ok=True)
        self._root = root.rstrip("/")
        self._name = f"{self._root}/pebbling-{uuid4().hex}"
        self._number = 0
        self._left: set[str] = set()
        self._finalize = weakref.finalize(self, _remove, self._system, self._left, self._root if self._made else None)

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self._may_pickle

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        meta, buffers = pack(tree, self._may_pickle)
        self._number += 1
        path = f"{self._name}-{self._number}"
        self._left.add(path)
        check = 0
        with self._translated(f"writing snapshot {key!r}"), self._system.open(path, "wb") as file:
            for buffer in buffers:
                if buffer.size:
                    file.write(buffer.data)
                    check = checksum(buffer, check)
        size = sum(buffer.size for buffer in buffers)
        before = self._held.entries.get(key)
        self._held.entries[key] = _RemoteObject(path, size, check, Layout(meta, self._may_pickle))
        if before is not None:
            self._remove(key, before)

    def get(self, key: Key) -> Any:
        found = self._held.find(key)
        buffers, finish = found.layout.allocate()
        try:
            with self._translated(f"reading snapshot {key!r}"), self._system.open(found.path, "rb") as file:
                check = 0
                for buffer in buffers:
                    _fill(file, buffer)
                    if buffer.size:
                        check = checksum(buffer, check)
                if file.read(1):
                    raise EOFError("it is longer than what was written")
            if check != found.check:
                raise CorruptSnapshot(f"snapshot {key!r} at {found.path}: its {found.nbytes} bytes fail the check")
            return finish()
        except (EOFError, Unreadable) as error:
            raise CorruptSnapshot(f"snapshot {key!r} at {found.path}: {error}") from error

    def drop(self, key: Key) -> None:
        found = self._held.find(key)
        del self._held.entries[key]
        self._remove(key, found)

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self._held.entries.values())

    def close(self) -> None:
        if self._held.close():
            self._held.entries.clear()
            with self._translated("closing"):
                self._finalize()

    def _remove(self, key: Key, entry: _RemoteObject) -> None:
        with self._translated(f"dropping snapshot {key!r}"):
            self._system.rm_file(entry.path)
            self._left.discard(entry.path)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        """What the file system of others raises, as an error of ours; it may be anything."""
        try:
            yield
        except (StoreError, EOFError, MemoryError, Unreadable):
            raise
        except FileNotFoundError as error:
            if doing.startswith("reading"):
                raise CorruptSnapshot(f"{doing} failed: it is gone from {self.url}") from error
            raise StoreError(f"{doing} failed: {self.url}: {error}") from error
        except Exception as error:
            raise StoreError(f"{doing} failed: {self.url}: {type(error).__name__}: {error}") from error


def _fill(file: Any, buffer: np.ndarray) -> None:
    """Read as many bytes as there is room for."""
    view = buffer.data
    at = 0
    while at < len(view):
        piece = file.read(len(view) - at)
        if not piece:
            raise EOFError(f"it ends after {at} of {len(view)} bytes")
        view[at : at + len(piece)] = piece
        at += len(piece)


def _remove(system: Any, paths: set[str], root: str | None) -> None:
    """Remove what was written, and the folder if it was made here and nothing else is in it."""
    for path in list(paths):
        if system.exists(path):
            system.rm_file(path)
        paths.discard(path)
    if root is not None and system.isdir(root) and not system.ls(root):
        system.rmdir(root)
