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

_MARK, _FORMAT, _DRAFT = "pebbling", 2, ".draft"
_SPARE = 1 << 16
"""What the format may need on top of the bytes of a snapshot."""


class HDF5(Store):
    """Keeps snapshots in the file ``path``, which must not exist yet, and removes it on ``close``.

    With ``keep=True`` the file stays, and ``HDF5(path, keep=True)`` finds the snapshots again. Objects that are not
    data need ``pickle=True``, as for ``Disk``. Needs h5py: ``pip install 'pebbling[hdf5]'``.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep: bool = False, pickle: bool = False) -> None:
        self._h5py = require("h5py", "hdf5", "HDF5")
        self.path = os.path.abspath(os.fsdecode(path))
        self.keep = keep
        self._may_pickle = pickle
        self._held: Catalogue[int] = Catalogue(f"the HDF5 store in {self.path}")
        self._nbytes = 0
        found = os.path.lexists(self.path)
        if found and not keep:
            raise StoreError(f"{self.path} exists: remove it, or open it with keep=True if a store wrote it")
        self._number = _number(self.path, found)
        try:
            self._file = self._h5py.File(self.path, "r+" if found else "w")
        except Exception as error:
            # What a file that is damaged makes of the library is anything.
            raise StoreError(f"can't open {self.path}: {error}") from error
        self._finalize = weakref.finalize(self, _leave, self._file, None if keep else self.path, self._number)
        try:
            self._look(found)
        except BaseException as error:
            self._finalize.detach()
            with suppress(Exception):
                self._file.close()
            if isinstance(error, StoreError) or not isinstance(error, Exception):
                raise
            raise CorruptSnapshot(f"{self.path} can't be read: {error}") from error

    def _look(self, found: bool) -> None:
        """Find what is in the file, or mark a new one."""
        if not found:
            self._file.attrs[_MARK] = _FORMAT
            return
        if _MARK not in self._file.attrs:
            raise StoreError(f"{self.path} was not written by a store")
        format = self._file.attrs[_MARK]
        if format != _FORMAT:
            raise StoreError(f"{self.path} was written in format {format} by another version of pebbling: remove it")
        for name in list(self._file):
            if name == _DRAFT:
                del self._file[name]
                continue
            key = _key(name)
            self._held.check(key)
            self._count(key, self._group(name))

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self._may_pickle

    def _group(self, name: str) -> Any:
        """A group of the file itself, and not of another one that it leads to."""
        if not isinstance(self._file.get(name, getlink=True), self._h5py.HardLink):
            raise ValueError(f"{name} is a link to elsewhere")
        group = self._file[name]
        if not isinstance(group, self._h5py.Group):
            raise ValueError(f"{name} is no snapshot")
        return group

    def _dataset(self, group: Any, name: str) -> Any:
        """A dataset whose bytes lie in this file, as many as it says."""
        if name not in group:
            raise ValueError(f"{name} is missing")
        if not isinstance(group.get(name, getlink=True), self._h5py.HardLink):
            raise ValueError(f"{name} is a link to elsewhere")
        dataset = group[name]
        if not isinstance(dataset, self._h5py.Dataset) or dataset.is_virtual or dataset.external or dataset.chunks:
            raise ValueError(f"{name} is not an array of this file")
        if dataset.nbytes and dataset.id.get_storage_size() != dataset.nbytes:
            raise ValueError(f"{name} says that it has {dataset.nbytes} bytes, and does not")
        if dataset.nbytes > os.path.getsize(self.path):
            raise ValueError(f"{name} says that it has {dataset.nbytes} bytes, more than the file")
        return dataset

    def put(self, key: Key, tree: Any) -> None:
        self._held.check(key)
        meta, buffers = pack(tree, self._may_pickle)
        needed = len(meta) + sum(buffer.size for buffer in buffers)
        self._check_room(needed)
        name = _name(key)
        try:
            self._write(self._file.create_group(_DRAFT), meta, buffers)
            if name in self._file:
                del self._file[name]
            self._file.move(_DRAFT, name)
        except Exception as error:
            with suppress(Exception):
                del self._file[_DRAFT]
            raise StoreError(f"writing snapshot {key!r} of {format_bytes(needed)} to {self.path}: {error}") from error
        self._nbytes -= self._held.entries.pop(key, 0)
        self._count(key, self._file[name])

    def get(self, key: Key) -> Any:
        self._held.find(key)
        try:
            group = self._group(_name(key))
            meta = self._dataset(group, "structure")[()].tobytes()
            if zlib.crc32(meta) != group.attrs["structure check"]:
                raise CorruptSnapshot(f"snapshot {key!r} in {self.path}: its description fails the check")
            layout = Layout(meta, self._may_pickle)
            datasets = [self._dataset(group, str(number)) for number in range(len(layout.forms))]
            if layout.nbytes != sum(dataset.nbytes for dataset in datasets):
                raise CorruptSnapshot(f"snapshot {key!r} in {self.path} has not the bytes that it describes")
            buffers, finish = layout.allocate()
            check = 0
            for dataset, buffer in zip(datasets, buffers):
                if buffer.size:
                    dataset.read_direct(buffer.view(dataset.dtype).reshape(dataset.shape))
                check = checksum(buffer, check)
            if check != int(group.attrs["check"]):
                raise CorruptSnapshot(
                    f"snapshot {key!r} in {self.path} is not what was written: its bytes fail the check"
                )
            return finish()
        except StoreError:
            raise
        except Exception as error:
            raise CorruptSnapshot(f"snapshot {key!r} in {self.path} can't be read: {error}") from error

    def drop(self, key: Key) -> None:
        size = self._held.find(key)
        try:
            del self._file[_name(key)]
        except Exception as error:
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
            _leave(self._file, None if self.keep else self.path, self._number)

    def _write(self, group: Any, meta: bytes, buffers: list[np.ndarray]) -> None:
        check = 0
        for number, (buffer, form) in enumerate(zip(buffers, Layout(meta, self._may_pickle).forms)):
            typed = buffer if form.dtype is None else buffer.view(form.dtype).reshape(form.shape)
            group.create_dataset(str(number), data=typed)
            check = checksum(buffer, check)
        group.create_dataset("structure", data=np.frombuffer(meta, np.uint8))
        group.attrs["check"] = np.uint64(check)
        group.attrs["structure check"] = zlib.crc32(meta)

    def _count(self, key: Key, group: Any) -> None:
        size = sum(int(self._dataset(group, name).nbytes) for name in group)
        self._held.entries[key] = size
        self._nbytes += size

    def _check_room(self, needed: int) -> None:
        with files.translated("looking for space for snapshots", self.path):
            free = files.free_space(os.path.dirname(self.path))
        if needed + _SPARE > free:
            raise StoreFull(f"{self.path}: {format_bytes(needed)} needed, {format_bytes(free)} free")


def _name(key: Key) -> str:
    return quote(json.dumps(key), safe="")


def _key(name: str) -> Key:
    """The key of a group; ``_name`` would give this name for it and no other."""
    key: Key = json.loads(unquote(name))
    if type(key) not in (str, int) or _name(key) != name:
        raise ValueError(f"{name!r} is the name of no snapshot")
    return key


def _number(path: str, found: bool) -> tuple[int, int]:
    """Device and number of the file, which is made if it is not there; nobody else can read it."""
    with files.translated("opening an HDF5 store", path):
        if found:
            descriptor = files.open_file(path, os.O_RDWR)
        else:
            try:
                descriptor = files.create(path, b"")
            except FileNotFoundError:
                raise StoreError(f"can't open {path}: there is no such directory") from None
        try:
            status = os.fstat(descriptor)
        finally:
            files.system.close(descriptor)
    return status.st_dev, status.st_ino


def _leave(file: Any, path: str | None, number: tuple[int, int]) -> None:
    """Close the file, and remove it if it is still the one that was made."""
    try:
        file.close()
    except Exception as error:
        raise StoreError(f"closing an HDF5 store failed: {error}") from error
    finally:
        if path is not None:
            with files.translated("removing an HDF5 store", path):
                if os.path.lexists(path):
                    found = os.stat(path, follow_symlinks=False)
                    if (found.st_dev, found.st_ino) == number:
                        files.remove(path)
