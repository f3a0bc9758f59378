"""One live store a directory: an advisory lock that the system drops when its holder dies.

The lock file says who holds it. It is removed with the lock, so whoever takes the lock makes sure
that the file it locked is still the one in the directory.
"""

from __future__ import annotations

import json
import os
import socket
import time
from importlib import import_module
from typing import Any

from ..errors import StoreError
from . import files

NAME = "pebbling.lock"
_TRIES, _PAUSE = 5, 0.02
"""Whoever lists a directory holds its lock for an instant, which is no reason to refuse."""


class Lock:
    """The right to use a directory, held until ``release`` or the end of the process."""

    def __init__(self, directory: str, run: str) -> None:
        self.path = os.path.join(directory, NAME)
        self._descriptor = -1
        try:
            self._descriptor = self._acquire()
            holder = {"pid": os.getpid(), "host": socket.gethostname(), "run": run, "since": time.ctime()}
            files.system.ftruncate(self._descriptor, 0)
            files.write_at(self._descriptor, [json.dumps(holder).encode()], 0)
        except OSError as error:
            if self._descriptor >= 0:
                self.release()
            raise files.failure(error, "taking the lock of a snapshot directory", self.path) from error

    def release(self, remove: bool = True) -> None:
        """Let the next one in."""
        try:
            if remove:
                files.remove(self.path)
        finally:
            files.system.close(self._descriptor)

    def _acquire(self) -> int:
        for attempt in range(_TRIES):
            descriptor = files.open_file(self.path, os.O_RDWR | os.O_CREAT)
            if _locked(descriptor) and _is(self.path, descriptor):
                return descriptor
            files.system.close(descriptor)
            if attempt < _TRIES - 1:
                time.sleep(_PAUSE)
        directory = os.path.dirname(self.path)
        raise StoreError(f"{directory} is in use by {describe(holder(directory))}: give this store another directory")


def holder(directory: str) -> dict[str, Any] | None:
    """Who holds the lock of a directory; ``None`` if nobody does."""
    path = os.path.join(directory, NAME)
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if _locked(descriptor):
            return None
        try:
            found = json.loads(os.pread(descriptor, 4096, 0))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}
    finally:
        files.system.close(descriptor)


def describe(found: dict[str, Any] | None) -> str:
    """A holder in words."""
    if not found:
        return "another process"
    return f"process {found.get('pid')} on {found.get('host')} (run {found.get('run')!r}, since {found.get('since')})"


def _locked(descriptor: int) -> bool:
    fcntl: Any = import_module("fcntl")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
