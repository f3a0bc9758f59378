"""Slot files: written whole, read back and checked, used again for the next snapshot.

A slot is a page that says what the file is, then the bytes of the arrays, then the small pickle
that describes them. Nothing in the file says whether it counts: the journal does. A slot is free
while no committed line of the journal names it, and only a free slot is written to.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import CorruptSnapshot, StoreError, StoreFull
from ..tree import Layout
from ..units import format_bytes
from . import files
from .checksum import PIECE, batches, checksum
from .contract import Key
from .directory import MAGIC, Directory

_START = 4096
_DESCRIPTION = 4096
"""Room that is set aside for the description when slots are made before the snapshots are known."""


class Description:
    """What snapshots look like: the snapshots of one run look alike, and share one of these."""

    def __init__(self, meta: bytes) -> None:
        self.meta = meta

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.meta)


@dataclass
class Entry:
    """Where a snapshot is, and what it must look like; its description is read when it is needed."""

    slot: int
    data: int
    check: int
    meta: int
    meta_check: int
    description: Description | None = None

    @property
    def nbytes(self) -> int:
        return self.data + self.meta


class Slots:
    """The slot files of one run, in use and free."""

    def __init__(self, directory: Directory, durable: bool) -> None:
        self._directory = directory
        self._durable = durable
        self._sizes: dict[int, int] = {}
        self._free: list[int] = []
        self._headed: set[int] = set()
        self._next = 0
        self._last: Description | None = None

    def adopt(self, used: set[int]) -> None:
        """Take over the slots that an earlier process left, of which ``used`` hold snapshots."""
        for file in self._directory.own():
            if file.number is not None:
                self._sizes[file.number] = os.path.getsize(file.path)
        self._free = [number for number in self._sizes if number not in used]
        self._sizes.update((number, 0) for number in used if number not in self._sizes)

    def write(self, meta: bytes, buffers: list[np.ndarray]) -> Entry:
        """Write a snapshot into a free slot, which the caller owns then."""
        size = sum(buffer.size for buffer in buffers)
        needed = _START + size + len(meta)
        number = self._choose(needed)
        path = self._directory.slot(number)
        before = self._sizes.get(number, 0)
        try:
            check = self._fill(path, number, meta, buffers)
        except BaseException as error:
            self._give_back(number, path, before)
            if isinstance(error, OSError):
                raise files.failure(error, "writing a snapshot", path, needed) from error
            raise
        self._sizes[number] = max(before, needed)
        return Entry(number, size, check, len(meta), zlib.crc32(meta), self._described(meta))

    def read(self, key: Key, entry: Entry) -> Any:
        """The tree in a slot, if every byte of it is what was written."""
        path = self._directory.slot(entry.slot)
        try:
            descriptor = files.open_file(path, os.O_RDONLY)
        except FileNotFoundError:
            raise CorruptSnapshot(f"snapshot {key!r} is gone: {path} was removed") from None
        except OSError as error:
            raise files.failure(error, f"reading snapshot {key!r}", path) from error
        try:
            buffers, finish = self._layout(descriptor, key, entry, path).allocate()
            self._load(descriptor, key, entry, path, buffers)
        except OSError as error:
            raise files.failure(error, f"reading snapshot {key!r}", path) from error
        finally:
            files.system.close(descriptor)
        return finish()

    def free(self, number: int) -> None:
        """The snapshot in a slot no longer counts."""
        self._free.append(number)

    def reserve(self, count: int, nbytes: int) -> None:
        """Set the space of ``count`` slots aside, those in use included."""
        size = _START + nbytes + _DESCRIPTION
        missing = count - len(self._sizes)
        growing = [number for number in self._free if self._sizes[number] < size]
        needed = max(0, missing) * size + sum(size - self._sizes[number] for number in growing)
        free = files.free_space(self._directory.path)
        if needed > free:
            raise StoreFull(
                f"{count} snapshots of {format_bytes(nbytes)} need {format_bytes(needed)} more in "
                f"{self._directory.path}, where {format_bytes(free)} are free"
            )
        for number in [*growing, *(self._unused() for _ in range(missing))]:
            path = self._directory.slot(number)
            try:
                self._allocate(path, number, size)
            except OSError as error:
                self._give_back(number, path, self._sizes.get(number, 0))
                raise files.failure(error, "setting space aside for snapshots", path, needed) from error
            if number not in self._sizes:
                self._free.append(number)
            self._sizes[number] = size

    def _choose(self, needed: int) -> int:
        # The last one freed is the likeliest to be in the system's cache still.
        for index in range(len(self._free) - 1, -1, -1):
            if self._sizes[self._free[index]] >= needed:
                return self._free.pop(index)
        return self._free.pop() if self._free else self._unused()

    def _unused(self) -> int:
        while self._next in self._sizes or os.path.lexists(self._directory.slot(self._next)):
            self._next += 1
        self._next += 1
        return self._next - 1

    def _fill(self, path: str, number: int, meta: bytes, buffers: list[np.ndarray]) -> int:
        descriptor = self._open(path, number)
        try:
            check, offset = 0, _START
            for batch, size in batches([*buffers, np.frombuffer(meta, np.uint8)]):
                if size > PIECE:
                    check = checksum(batch[0], check, _Writer(descriptor, offset))
                else:
                    files.write_at(descriptor, batch, offset)
                    for buffer in batch:
                        check = checksum(buffer, check)
                offset += size
            if self._durable:
                files.sync(descriptor)
        finally:
            files.system.close(descriptor)
        return check

    def _open(self, path: str, number: int) -> int:
        if number in self._sizes:
            try:
                return self._head(files.open_file(path, os.O_WRONLY), number)
            except FileNotFoundError:
                # A free slot that someone removed is no loss.
                self._headed.discard(number)
        return self._head(files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), number)

    def _head(self, descriptor: int, number: int) -> int:
        if number in self._headed:
            return descriptor
        try:
            files.write_at(descriptor, [MAGIC.ljust(_START, b"\0")], 0)
            if self._durable:
                files.sync_directory(self._directory.path)
        except BaseException:
            files.system.close(descriptor)
            raise
        self._headed.add(number)
        return descriptor

    def _allocate(self, path: str, number: int, size: int) -> None:
        descriptor = self._open(path, number)
        try:
            files.system.posix_fallocate(descriptor, 0, size)
            if self._durable:
                files.sync(descriptor)
        finally:
            files.system.close(descriptor)

    def _give_back(self, number: int, path: str, size: int) -> None:
        """Leave a slot as large as it was before a write that failed, and free."""
        try:
            if size:
                files.system.truncate(path, size)
                self._free.append(number)
            else:
                self._headed.discard(number)
                files.remove(path)
        except OSError:
            # Its space stays taken until the store is closed, which a full disk does not prevent.
            if number in self._sizes:
                self._free.append(number)

    def _described(self, meta: bytes) -> Description:
        if self._last is None or self._last.meta != meta:
            self._last = Description(meta)
        return self._last

    def _layout(self, descriptor: int, key: Key, entry: Entry, path: str) -> Layout:
        if entry.description is None:
            entry.description = self._described(self._read_meta(descriptor, key, entry, path))
        try:
            return entry.description.layout
        except Exception as error:
            raise StoreError(f"snapshot {key!r} in {path} needs what this program does not have: {error}") from error

    def _read_meta(self, descriptor: int, key: Key, entry: Entry, path: str) -> bytes:
        meta = bytearray(entry.meta)
        offset = _START + entry.data
        end = files.read_at(descriptor, [meta], entry.meta, offset)
        if end != offset + entry.meta:
            raise _corrupt(key, path, f"the file ends at byte {end}")
        if zlib.crc32(meta) != entry.meta_check:
            raise _corrupt(key, path, "its description fails the check")
        return bytes(meta)

    def _load(self, descriptor: int, key: Key, entry: Entry, path: str, buffers: list[np.ndarray]) -> None:
        check, offset = 0, _START
        try:
            for batch, size in batches([*buffers, np.empty(entry.meta, np.uint8)]):
                if size > PIECE:
                    check = checksum(batch[0], check, _Reader(descriptor, offset))
                else:
                    _read(descriptor, batch, size, offset)
                    for buffer in batch:
                        check = checksum(buffer, check)
                offset += size
        except EOFError as error:
            raise _corrupt(key, path, str(error)) from None
        if check != entry.check:
            raise _corrupt(key, path, f"its {format_bytes(entry.nbytes)} fail the check")


class _Writer:
    """Writes piece after piece."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor, self._offset = descriptor, offset

    def __call__(self, piece: np.ndarray) -> None:
        self._offset = files.write_at(self._descriptor, [piece], self._offset)


class _Reader:
    """Reads piece after piece."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor, self._offset = descriptor, offset

    def __call__(self, piece: np.ndarray) -> None:
        self._offset = _read(self._descriptor, [piece], piece.size, self._offset)


def _read(descriptor: int, buffers: list[np.ndarray], size: int, offset: int) -> int:
    """Fill the buffers; the offset behind them, or an ``EOFError`` that says where the file ends."""
    end = files.read_at(descriptor, buffers, size, offset)
    if end != offset + size:
        raise EOFError(f"the file ends at byte {end}")
    return end


def _corrupt(key: Key, path: str, found: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"snapshot {key!r} in {path} is not what was written: {found}")
