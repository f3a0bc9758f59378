"""Every change to the file system that a store makes goes through here.

``system`` is the ``os`` module; tests put another in its place, one that fails at a given call.

Whoever can write to the directory can put a link, a pipe or a file of their own in the place of ours. So a file is
opened without following links and without waiting, and before anything is written to it or it is removed, it must be
a plain file of one name and of our own owner. A new file gets its name only when its start, which says whose it is,
is in it: a file of ours is never empty, and an empty file is never ours.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..errors import StoreError, StoreFull
from ..units import format_bytes

system: Any = os

_SAFE: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NAMELESS: int = getattr(os, "O_TMPFILE", 0)
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS, errno.EPERM, errno.EXDEV)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MODE, _MODE_OF_DIRECTORY = 0o600, 0o700
_ZEROS = bytes(1 << 16)


class NotOurs(StoreError):
    """What lies under a name of ours is something that we must not touch."""


def open_file(path: str, flags: int) -> int:
    """A descriptor of a plain file; of one that is ours alone, if it is to be written to."""
    try:
        descriptor: int = system.open(path, flags | _SAFE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EMLINK):
            raise NotOurs(f"{path} is no plain file ({error.strerror}): it was put there, remove it") from None
        raise
    try:
        check(descriptor, path, writing=bool(flags & (os.O_WRONLY | os.O_RDWR)))
    except BaseException:
        system.close(descriptor)
        raise
    return descriptor


def check(descriptor: int, path: str, writing: bool) -> os.stat_result:
    """Raise ``NotOurs`` unless a file is a plain one; for writing, one without other names, and our own."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(f"{path} is no plain file: it was put there, remove it")
    if writing and found.st_nlink > 1:
        raise NotOurs(f"{path} is the same file as another ({found.st_nlink} links), and that is not ours to write to")
    if writing and found.st_uid != os.geteuid() and found.st_uid not in _owners(path):
        raise NotOurs(f"{path} belongs to user {found.st_uid}, and is not ours to write to")
    return found


def create(path: str, start: bytes, durable: bool = False, before: Callable[[int], None] | None = None) -> int:
    """A new file that begins with ``start`` from the moment it has its name; a ``FileExistsError`` if there is one.

    ``before`` is what else is to be done to it before that. Where the system has no files without a name, a process
    that is killed in between leaves an empty file, which nobody will touch.
    """
    descriptor = _nameless(os.path.dirname(path))
    named = descriptor is None
    if descriptor is None:
        descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, _MODE)
    try:
        if before is not None:
            before(descriptor)
        write_at(descriptor, [start], 0)
        if durable:
            sync(descriptor)
        if not named:
            try:
                system.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise
                system.close(descriptor)
                descriptor = system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, _MODE)
                named = True
                if before is not None:
                    before(descriptor)
                write_at(descriptor, [start], 0)
            named = True
        os.fchmod(descriptor, _MODE)
        if durable:
            sync_directory(os.path.dirname(path))
    except BaseException:
        with suppress(OSError):
            system.close(descriptor)
        if named:
            with suppress(OSError):
                remove(path)
        raise
    return descriptor


def make_directory(path: str) -> bool:
    """Make a directory that only its owner can enter; whether it was not there."""
    try:
        system.mkdir(path, _MODE_OF_DIRECTORY)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    return True


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


def remove_own(path: str, signed: Callable[[int], bool]) -> None:
    """Remove a file if it is ours by its content, too; one that is not is left, with a ``NotOurs``."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        check(descriptor, path, writing=True)
        if not signed(descriptor):
            raise NotOurs(f"{path} was not written by a store, and is left where it is")
    finally:
        system.close(descriptor)
    remove(path)


def allocate(descriptor: int, offset: int, size: int) -> None:
    """Take room on the disk, which reads as zeros."""
    if size <= 0:
        return
    try:
        system.posix_fallocate(descriptor, offset, size)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NOT_SUPPORTED:
            raise
        end = max(os.fstat(descriptor).st_size, offset)
        while end < offset + size:
            end = write_at(descriptor, [_ZEROS[: offset + size - end]], end)


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


@contextmanager
def translated(doing: str, path: str) -> Iterator[None]:
    """What the system refuses, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise failure(error, doing, path) from error


def _nameless(directory: str) -> int | None:
    """A file that has no name yet, if the system has such files."""
    if not _NAMELESS:
        return None
    try:
        descriptor: int = system.open(directory, _NAMELESS | os.O_RDWR | os.O_CLOEXEC, _MODE)
    except OSError as error:
        if error.errno in _NOT_SUPPORTED and os.path.isdir(directory):
            return None
        raise
    return descriptor


def is_owned(path: str) -> bool:
    """Whether a file belongs to us."""
    return os.lstat(path).st_uid in _owners(path)


def _owners(path: str) -> tuple[int, ...]:
    """Whose files count as ours: this user's, and those of the directory's owner (where root is made nobody)."""
    return (os.geteuid(), os.stat(os.path.dirname(path)).st_uid)


def _without(buffers: list[memoryview], count: int) -> list[memoryview]:
    """What is left of the buffers after their first ``count`` bytes."""
    for index, buffer in enumerate(buffers):
        if count < buffer.nbytes:
            return [buffer[count:], *buffers[index + 1 :]]
        count -= buffer.nbytes
    return []
