"""Snapshots in one HDF5 file, for those who want to look at them with other tools.

Each snapshot is a group named after its key; numbers lie in it with their own type and shape (axes
as they lie in memory), everything else as bytes. Every read is checked. A crash may leave the file
unreadable, which is in the nature of the format: the store to resume from is ``Disk``.
"""

from __future__ import annotations

import json
import os
import weakref
import zlib
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from ..errors import CorruptSnapshot, StoreError, StoreFull
from ..tree import Layout, pack
from ..units import format_bytes
from . import files
from .catalogue import Catalogue
from .checksum import checksum
from .contract import Key, Store
from .extra import require

_MARK = "pebbling"
_SPARE = 1 << 16
"""What the format may need on top of the bytes of a snapshot."""


class HDF5(Store):
    """Keeps snapshots in the file ``path``, which must not exist yet, and removes it on ``close``.

    With ``keep=True`` the file stays, and ``HDF5(path, keep=True)`` finds the snapshots again. Needs
    h5py: ``pip install 'pebbling[hdf5]'``.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: bool = False) -> None:
        h5py = require("h5py", "hdf5", "HDF5")
        self.path = os.path.abspath(os.fspath(path))
        self.keep = keep
        self._held: Catalogue[int] = Catalogue(f"the HDF5 store in {self.path}")
        self._nbytes = 0
        found = os.path.exists(self.path)
        if found and not keep:
            raise StoreError(f"{self.path} exists: remove it, or open it with keep=True if a store wrote it")
        try:
            self._file = h5py.File(self.path, "r+" if found else "x")
        except OSError as error:
            raise StoreError(f"can't open {self.path}: {error}") from error
        if found and _MARK not in self._file.attrs:
            self._file.close()
            raise StoreError(f"{self.path} was not written by a store")
        self._file.attrs[_MARK] = 1
        self._finalize = weakref.finalize(self, _leave, self._file, None if keep else self.path)
        for name, group in self._file.items():
            self._count(json.loads(unquote(name)), group)

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        meta, buffers = pack(tree)
        needed = len(meta) + sum(buffer.size for buffer in buffers)
        self._check_room(needed)
        draft, name = ".draft", _name(key)
        try:
            self._write(self._file.create_group(draft), meta, buffers)
            if name in self._file:
                del self._file[name]
            self._file.move(draft, name)
        except (OSError, RuntimeError, ValueError) as error:
            with suppress(Exception):
                del self._file[draft]
            raise StoreError(f"writing snapshot {key!r} of {format_bytes(needed)} to {self.path}: {error}") from error
        self._nbytes -= self._held.entries.pop(key, 0)
        self._count(key, self._file[name])

    def get(self, key: Key) -> Any:
        self._held.find(key)
        try:
            group = self._file[_name(key)]
            meta = group["structure"][()].tobytes()
            if zlib.crc32(meta) != group.attrs["structure check"]:
                raise CorruptSnapshot(f"snapshot {key!r} in {self.path}: its description fails the check")
            buffers, finish = Layout(meta).allocate()
            check = 0
            for number, buffer in enumerate(buffers):
                dataset = group[str(number)]
                if buffer.size:
                    dataset.read_direct(buffer.view(dataset.dtype).reshape(dataset.shape))
                check = checksum(buffer, check)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise CorruptSnapshot(f"snapshot {key!r} in {self.path} can't be read: {error}") from error
        if check != group.attrs["check"]:
            raise CorruptSnapshot(f"snapshot {key!r} in {self.path} is not what was written: its bytes fail the check")
        return finish()

    def drop(self, key: Key) -> None:
        size = self._held.find(key)
        try:
            del self._file[_name(key)]
        except (OSError, KeyError) as error:
            raise StoreError(f"dropping snapshot {key!r} from {self.path}: {error}") from error
        del self._held.entries[key]
        self._nbytes -= size

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def reserve(self, count: int, nbytes: int) -> None:
        """Check that the disk has room for ``count`` snapshots, those held included."""
        self._held.check("")
        self._check_room(max(0, count * nbytes - self._nbytes))

    def close(self) -> None:
        if self._held.close():
            self._nbytes = 0
            self._finalize.detach()
            _leave(self._file, None if self.keep else self.path)

    def _write(self, group: Any, meta: bytes, buffers: list[np.ndarray]) -> None:
        check = 0
        for number, (buffer, form) in enumerate(zip(buffers, Layout(meta).forms)):
            typed = buffer if form.dtype is None else buffer.view(form.dtype).reshape(form.shape)
            group.create_dataset(str(number), data=typed)
            check = checksum(buffer, check)
        group.create_dataset("structure", data=np.frombuffer(meta, np.uint8))
        group.attrs["check"] = check
        group.attrs["structure check"] = zlib.crc32(meta)

    def _count(self, key: Key, group: Any) -> None:
        size = sum(int(dataset.nbytes) for dataset in group.values())
        self._held.entries[key] = size
        self._nbytes += size

    def _check_room(self, needed: int) -> None:
        free = files.free_space(os.path.dirname(self.path))
        if needed + _SPARE > free:
            raise StoreFull(f"{self.path}: {format_bytes(needed)} needed, {format_bytes(free)} free")


def _name(key: Key) -> str:
    return quote(json.dumps(key), safe="")


def _leave(file: Any, path: str | None) -> None:
    file.close()
    if path is not None:
        files.remove(path)
