"""Every change to the file system that a store makes goes through here.

``system`` is the ``os`` module; tests put another in its place, one that fails at a given call.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from ..errors import StoreError, StoreFull
from ..units import format_bytes

system: Any = os

_NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def open_file(path: str, flags: int) -> int:
    """A descriptor; never follows a link that someone put in the place of a file."""
    descriptor: int = system.open(path, flags | _NO_LINKS, 0o600)
    return descriptor


def write_at(descriptor: int, buffers: Sequence[Any], offset: int) -> int:
    """Write all of the buffers one after the other; the offset behind them."""
    waiting = [memoryview(buffer) for buffer in buffers]
    while waiting:
        written = system.pwritev(descriptor, waiting, offset)
        offset += written
        waiting = _without(waiting, written)
    return offset


def read_at(descriptor: int, buffers: Sequence[Any], size: int, offset: int) -> int:
    """Fill buffers of ``size`` bytes in all, one after the other; the offset where it ended, short if the file did."""
    end = offset + size
    got = system.preadv(descriptor, buffers, offset)
    offset += got
    while offset < end and got:
        waiting = _without([memoryview(buffer) for buffer in buffers], size - (end - offset))
        got = system.preadv(descriptor, waiting, offset)
        offset += got
    return offset


def sync(descriptor: int) -> None:
    """Return when the contents of a file would survive a power failure."""
    getattr(system, "fdatasync", system.fsync)(descriptor)


def sync_directory(path: str) -> None:
    """Return when the names in a directory would survive a power failure."""
    descriptor = system.open(path, os.O_RDONLY)
    try:
        system.fsync(descriptor)
    finally:
        system.close(descriptor)


def remove(path: str) -> None:
    """Remove a file, if it is still there."""
    try:
        system.unlink(path)
    except FileNotFoundError:
        return


def free_space(path: str) -> int:
    """The bytes that may still be written to the file system of ``path``."""
    status = system.statvfs(path)
    return int(status.f_bavail * status.f_frsize)


def failure(error: OSError, doing: str, path: str, needed: int | None = None) -> StoreError:
    """What the system refused, as an error of ours that names the file and the bytes."""
    if error.errno not in _FULL:
        return StoreError(f"{doing} failed: {path}: {error.strerror or error}")
    try:
        free = f"{format_bytes(free_space(os.path.dirname(path)))} free"
    except OSError:
        free = "free space unknown"
    wanted = "" if needed is None else f"{format_bytes(needed)} needed, "
    return StoreFull(f"{doing} failed: {path}: {error.strerror} ({wanted}{free})")


def _without(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the buffers after their first ``count`` bytes."""
    for index, buffer in enumerate(buffers):
        if count < buffer.nbytes:
            return [buffer[count:], *buffers[index + 1 :]]
        count -= buffer.nbytes
    return []
