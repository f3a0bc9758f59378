"""Slot files: written whole, read back and checked, used again for the next snapshot.

A slot is a page that says what the file is, then the bytes of the arrays, then the small text
that describes them. Nothing in the file says whether it counts: the journal does. A slot is free
while no committed line of the journal names it, and only a free slot is written to.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import CorruptSnapshot, StoreError, StoreFull
from ..tree import Layout
from ..tree.data import Unreadable
from ..units import format_bytes
from . import files
from .checksum import PIECE, batches, checksum
from .contract import Key
from .directory import PAGE, Directory, is_slot, slot_start

_DESCRIPTION = 4096
"""Room that is set aside for the description when slots are made before the snapshots are known."""


class Description:
    """What snapshots look like: the snapshots of one run look alike, and share one of these."""

    def __init__(self, meta: bytes, pickle: bool) -> None:
        self.meta = meta
        self._pickle = pickle

    @cached_property
    def layout(self) -> Layout:
        return Layout(self.meta, self._pickle)


@dataclass
class SlotEntry:
    """Where a snapshot is, and what it must look like; its description is read when it is needed."""

    slot: int
    data: int
    check: int
    meta: int
    meta_check: int
    description: Description | None = None
    owed: int = 0
    """The room in the journal that it takes to drop it."""

    @property
    def nbytes(self) -> int:
        return self.data + self.meta


class Slots:
    """The slot files of one run, in use and free."""

    def __init__(self, directory: Directory, durable: bool, pickle: bool = False) -> None:
        self._directory = directory
        self._durable = durable
        self._pickle = pickle
        self._sizes: dict[int, int] = {}
        self._free: list[int] = []
        self._next = 0
        self._last: Description | None = None

    def adopt(self, used: set[int]) -> None:
        """Take over the slots that an earlier process left, of which ``used`` hold snapshots."""
        for file in self._directory.own():
            if file.number is not None:
                self._sizes[file.number] = os.path.getsize(file.path)
        self._free = [number for number in self._sizes if number not in used]
        self._sizes.update((number, 0) for number in used if number not in self._sizes)

    def write(self, meta: bytes, buffers: list[np.ndarray]) -> SlotEntry:
        """Write a snapshot into a free slot, which the caller owns then."""
        size = sum(buffer.size for buffer in buffers)
        needed = PAGE + size + len(meta)
        with _translated("writing a snapshot", self._directory.path, needed):
            number, descriptor = self._open(needed)
            try:
                check = self._fill(descriptor, meta, buffers)
            except BaseException:
                self._give_back(number, descriptor)
                raise
            finally:
                files.system.close(descriptor)
        before = self._sizes.get(number, 0)
        self._sizes[number] = max(before, needed)
        return SlotEntry(number, size, check, len(meta), zlib.crc32(meta), self._described(meta))

    def read(self, key: Key, entry: SlotEntry) -> Any:
        """The tree in a slot, if every byte of it is what was written."""
        path = self._directory.slot(entry.slot)
        try:
            descriptor = files.open_file(path, os.O_RDONLY)
            try:
                buffers, finish = self._layout(descriptor, key, entry, path).allocate()
                self._load(descriptor, key, entry, path, buffers)
            finally:
                files.system.close(descriptor)
            return finish()
        except FileNotFoundError:
            raise CorruptSnapshot(f"snapshot {key!r} is gone: {path} was removed") from None
        except OSError as error:
            raise files.failure(error, f"reading snapshot {key!r}", path) from error
        except Unreadable as error:
            raise _corrupt(key, path, str(error)) from error
        except CorruptSnapshot:
            raise
        except StoreError as error:
            raise StoreError(f"snapshot {key!r} in {path} can't be had: {error}") from error

    def free(self, number: int) -> None:
        """The snapshot in a slot no longer counts."""
        self._free.append(number)

    def reserve(self, count: int, nbytes: int) -> None:
        """Set the space of ``count`` slots aside, those in use included."""
        size = PAGE + nbytes + _DESCRIPTION
        missing = count - len(self._sizes)
        growing = [number for number in self._free if self._sizes[number] < size]
        needed = max(0, missing) * size + sum(size - self._sizes[number] for number in growing)
        with files.translated("looking for space for snapshots", self._directory.path):
            free = files.free_space(self._directory.path)
        if needed > free:
            raise StoreFull(
                f"{count} snapshots of {format_bytes(nbytes)} need {format_bytes(needed)} more in "
                f"{self._directory.path}, where {format_bytes(free)} are free"
            )
        for number in growing:
            self._set_aside(number, size, needed)
        for _ in range(missing):
            self._set_aside(None, size, needed)

    def _set_aside(self, number: int | None, size: int, needed: int) -> None:
        """Make one free slot that large, or a new one."""
        with _translated("setting space aside for snapshots", self._directory.path, needed):
            if number is None:
                number, descriptor = self._new()
            else:
                self._free.remove(number)
                found = self._reopened(number)
                if found is None:
                    return
                descriptor = found
            try:
                files.allocate(descriptor, 0, size)
                if self._durable:
                    files.sync(descriptor)
            except BaseException:
                self._give_back(number, descriptor)
                raise
            finally:
                files.system.close(descriptor)
        self._free.append(number)
        self._sizes[number] = size

    def _open(self, needed: int) -> tuple[int, int]:
        """A slot that nothing counts on, open to be written to; with room for so many bytes if there is one."""
        while self._free:
            number = self._choose(needed)
            found = self._reopened(number)
            if found is not None:
                return number, found
        return self._new()

    def _choose(self, needed: int) -> int:
        # The last one freed is the likeliest to be in the system's cache still.
        for index in range(len(self._free) - 1, -1, -1):
            if self._sizes[self._free[index]] >= needed:
                return self._free.pop(index)
        return self._free.pop()

    def _reopened(self, number: int) -> int | None:
        """A slot of ours; ``None`` if it was removed or something else lies in its place, which is no loss."""
        path = self._directory.slot(number)
        try:
            descriptor = files.open_file(path, os.O_RDWR)
        except (FileNotFoundError, files.NotOurs):
            del self._sizes[number]
            return None
        except BaseException:
            self._free.append(number)
            raise
        if is_slot(descriptor, self._directory.run):
            return descriptor
        files.system.close(descriptor)
        del self._sizes[number]
        return None

    def _new(self) -> tuple[int, int]:
        while True:
            while self._next in self._sizes or os.path.lexists(self._directory.slot(self._next)):
                self._next += 1
            number, start = self._next, slot_start(self._directory.run)
            try:
                descriptor = files.create(self._directory.slot(number), start, self._durable)
            except FileExistsError:
                continue
            self._next += 1
            return number, descriptor

    def _fill(self, descriptor: int, meta: bytes, buffers: list[np.ndarray]) -> int:
        check, offset = 0, PAGE
        for batch, size in batches([*buffers, np.frombuffer(meta, np.uint8)]):
            if size > PIECE:
                check = checksum(batch[0], check, _PieceWriter(descriptor, offset))
            else:
                files.write_at(descriptor, batch, offset)
                for buffer in batch:
                    check = checksum(buffer, check)
            offset += size
        if self._durable:
            files.sync(descriptor)
        return check

    def _give_back(self, number: int, descriptor: int) -> None:
        """Leave a slot as large as it was before a write that failed, and free."""
        size = self._sizes.get(number)
        try:
            if size is not None:
                self._free.append(number)
                files.system.ftruncate(descriptor, max(size, PAGE))
            else:
                files.remove(self._directory.slot(number))
        except OSError:
            # Its space stays taken until the store is closed, which a full disk does not prevent.
            return

    def _described(self, meta: bytes) -> Description:
        if self._last is None or self._last.meta != meta:
            self._last = Description(meta, self._pickle)
        return self._last

    def _layout(self, descriptor: int, key: Key, entry: SlotEntry, path: str) -> Layout:
        # Nothing is allocated for what the file can't hold.
        size = os.fstat(descriptor).st_size
        if size < PAGE + entry.nbytes:
            raise _corrupt(key, path, f"the file ends at byte {size}")
        if entry.description is None:
            entry.description = self._described(self._read_meta(descriptor, key, entry, path))
        layout = entry.description.layout
        if layout.nbytes != entry.data:
            raise _corrupt(key, path, f"it describes {format_bytes(layout.nbytes)}, not {format_bytes(entry.data)}")
        return layout

    def _read_meta(self, descriptor: int, key: Key, entry: SlotEntry, path: str) -> bytes:
        meta = bytearray(entry.meta)
        offset = PAGE + entry.data
        end = files.read_at(descriptor, [meta], entry.meta, offset) if entry.meta else offset
        if end != offset + entry.meta:
            raise _corrupt(key, path, f"the file ends at byte {end}")
        if zlib.crc32(meta) != entry.meta_check:
            raise _corrupt(key, path, "its description fails the check")
        return bytes(meta)

    def _load(self, descriptor: int, key: Key, entry: SlotEntry, path: str, buffers: list[np.ndarray]) -> None:
        check, offset = 0, PAGE
        try:
            for batch, size in batches([*buffers, np.empty(entry.meta, np.uint8)]):
                if size > PIECE:
                    check = checksum(batch[0], check, _PieceReader(descriptor, offset))
                else:
                    _read(descriptor, batch, size, offset)
                    for buffer in batch:
                        check = checksum(buffer, check)
                offset += size
        except EOFError as error:
            raise _corrupt(key, path, str(error)) from None
        if check != entry.check:
            raise _corrupt(key, path, f"its {format_bytes(entry.nbytes)} fail the check")


class _PieceWriter:
    """Writes piece after piece."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor, self._offset = descriptor, offset

    def __call__(self, piece: np.ndarray) -> None:
        self._offset = files.write_at(self._descriptor, [piece], self._offset)


class _PieceReader:
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


@contextmanager
def _translated(doing: str, path: str, needed: int) -> Iterator[None]:
    """What the system refuses, with the bytes that were asked for."""
    try:
        yield
    except OSError as error:
        raise files.failure(error, doing, error.filename or path, needed) from error


def _corrupt(key: Key, path: str, found: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"snapshot {key!r} in {path} is not what was written: {found}")
