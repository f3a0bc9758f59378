"""One live store a directory: an advisory lock that the system drops when its holder dies.

The lock file says who holds it. It is removed with the lock, so whoever takes the lock makes sure that the file it
locked is still the one in the directory. A file of that name that is not ours is never written to or removed.
A process that is forked off closes its copy at once: the lock is not its own, and ends with the one who took it.
"""

from __future__ import annotations

import json
import os
import socket
import time
import weakref
from contextlib import suppress
from importlib import import_module
from typing import Any, Self

from ..errors import StoreError
from . import files

NAME = "pebbling.lock"
MAGIC = b"pebbling lock 2\n"
_TRIES, _PAUSE = 5, 0.02
"""Whoever lists a directory holds its lock for an instant, which is no reason to refuse."""
_LONGEST = 4096


class DirectoryLock:
    """The right to use a directory, held until the last ``release`` or the end of the process."""

    def __init__(self, directory: str, run: str, durable: bool = False) -> None:
        self.path = os.path.join(directory, NAME)
        self._durable = durable
        self.runs = [run]
        self._ours = True
        self._descriptor = -1
        with files.translated("taking the lock of a snapshot directory", self.path):
            try:
                self._descriptor = self._acquire()
            except BaseException:
                with suppress(OSError):
                    self.release()
                raise
        _LIVE.add(self)

    def share(self, run: str) -> Self:
        """Let another store of this process into the directory; each releases the lock for itself."""
        self.runs.append(run)
        with files.translated("sharing the lock of a snapshot directory", self.path):
            self._sign(self._descriptor)
        return self

    def release(self) -> None:
        """Let the next one in, unless another store of this process still holds it."""
        if self._descriptor < 0:
            return
        if len(self.runs) > 1:
            self.runs.pop()
            return
        try:
            if self._ours and _is(self.path, self._descriptor):
                files.remove(self.path)
        finally:
            self.forget()

    def forget(self) -> None:
        """Close this process's copy, without a trace."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            files.system.close(descriptor)

    def _acquire(self) -> int:
        for attempt in range(_TRIES):
            try:
                descriptor = files.open_file(self.path, os.O_RDWR)
            except FileNotFoundError:
                try:
                    return files.create(self.path, self._text(), self._durable, before=_take)
                except (FileExistsError, BlockingIOError):
                    continue
            try:
                if _locked(descriptor) and _is(self.path, descriptor):
                    self._ours = _check(descriptor, self.path)
                    self._sign(descriptor)
                    return descriptor
            except BaseException:
                files.system.close(descriptor)
                raise
            files.system.close(descriptor)
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE)
        directory = os.path.dirname(self.path)
        raise StoreError(f"{directory} is in use by {describe(holder(directory))}: give this store another directory")

    def _text(self) -> bytes:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "runs": self.runs, "since": time.ctime()}
        return MAGIC + json.dumps(holder).encode()

    def _sign(self, descriptor: int) -> None:
        """Write who holds it, behind what says that it is a lock."""
        if self._ours:
            text = self._text()
            files.write_at(descriptor, [text], 0)
            files.system.ftruncate(descriptor, len(text))


def holder(directory: str) -> dict[str, Any] | None:
    """Who holds the lock of a directory; ``None`` if nobody does."""
    path = os.path.join(directory, NAME)
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except (FileNotFoundError, files.NotOurs):
        return None
    try:
        return None if _locked(descriptor) else _parsed(descriptor)
    finally:
        files.system.close(descriptor)


def is_lock(path: str) -> bool:
    """Whether a file is a lock that a store wrote."""
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except (OSError, StoreError):
        return False
    try:
        return _is_lock(descriptor) and not _is_blank(descriptor)
    finally:
        files.system.close(descriptor)


def describe(found: dict[str, Any] | None) -> str:
    """A holder in words."""
    if not found:
        return "another process"
    process, runs = found.get("pid"), found.get("runs") or [found.get("run")]
    named = f"run {runs[0]!r}" if isinstance(runs, list) and len(runs) == 1 else f"runs {runs}"
    words = f"process {process} on {found.get('host')} ({named}, since {found.get('since')})"
    if found.get("host") == socket.gethostname() and type(process) is int and not _lives(process):
        words += ", which has ended, but left its lock to a process that it started and that is still there"
    return words[:400]


def _parsed(descriptor: int) -> dict[str, Any]:
    try:
        found = json.loads(os.pread(descriptor, _LONGEST, 0).removeprefix(MAGIC))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_lock(descriptor: int) -> bool:
    """Whether a file is a lock: it says so, as those of older versions do in their way, or it says nothing."""
    start = os.pread(descriptor, len(MAGIC), 0).rstrip(b"\0")
    return MAGIC.startswith(start) or {"pid", "host", "run"} <= _parsed(descriptor).keys()


def _is_blank(descriptor: int) -> bool:
    """Whether a file says nothing, so that it may be anybody's: a crash of the machine can leave a lock like that."""
    return not os.pread(descriptor, _LONGEST, 0).strip(b"\0")


def _check(descriptor: int, path: str) -> bool:
    """Raise unless a file is a lock; whether it says that it is ours. A blank one can be locked, and is left."""
    if not _is_lock(descriptor):
        raise files.NotOurs(f"{path} is not a lock of a store: it is in the way, rename or remove it")
    return not _is_blank(descriptor)


def _take(descriptor: int) -> None:
    if not _locked(descriptor):
        raise BlockingIOError


def _locked(descriptor: int) -> bool:
    try:
        fcntl: Any = import_module("fcntl")
    except ModuleNotFoundError:
        raise StoreError("this system has no locks on files (fcntl), so no directory is safe for a store") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _forget_all() -> None:
    for lock in list(_LIVE):
        lock.forget()


_LIVE: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
