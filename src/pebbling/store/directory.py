"""The directory of a disk store: which files in it are whose, who made it, and how it is left behind.

Files carry the name of the run they belong to and say at their start what they are. No other file
is ever opened for writing or removed, and the directory goes only if the store made it and it is
empty.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import NamedTuple

from ..errors import StoreError
from . import files
from .journal import head
from .lock import NAME as LOCK_NAME
from .lock import Lock

MAGIC = b"pebbling snapshot slot 1\n"
_RUN = re.compile(r"[A-Za-z0-9_.]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_OWN = re.compile(rf"pebbling-(?P<run>{_RUN.pattern})(-(?P<number>\d+)\.slot|\.journal(\.new)?)")


class Owned(NamedTuple):
    """A file of some run."""

    path: str
    run: str
    number: int | None
    """The number of the slot; ``None`` for the journal."""


class Directory:
    """A locked directory, and the files of one run in it."""

    def __init__(self, path: str | os.PathLike[str], run: str | None, keep: bool, durable: bool) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self.run = uuid.uuid4().hex[:12] if run is None else run
        self.keep = keep
        if not _RUN.fullmatch(self.run) or ".." in self.run:
            raise ValueError(f"a run is named with letters, digits, '.', '_' and '-', not {self.run!r}")
        self.process = os.getpid()
        self.made = self._make(durable)
        try:
            self._lock = Lock(self.path, self.run)
        except BaseException:
            self._unmake()
            raise

    @property
    def journal(self) -> str:
        """Where the journal of this run is."""
        return os.path.join(self.path, f"pebbling-{self.run}.journal")

    def slot(self, number: int) -> str:
        """Where a slot of this run is."""
        return f"{self.path}{os.sep}pebbling-{self.run}-{number}.slot"

    def own(self) -> list[Owned]:
        """The files of this run."""
        return [file for file in owned(self.path) if file.run == self.run]

    def release(self) -> None:
        """Leave: remove the files of this run unless they are to be kept, and let the next one in.

        A process that was forked off has a copy of this object, and leaves without a trace.
        """
        if self.process != os.getpid():
            self._lock.release(remove=False)
            return
        left = [] if self.keep or not os.path.isdir(self.path) else self._remove([file.path for file in self.own()])
        try:
            self._lock.release()
        except OSError as error:
            left.append(f"{self._lock.path} ({error.strerror})")
        self._unmake()
        if left:
            raise StoreError(f"could not remove {', '.join(left)}")

    def _remove(self, paths: list[str]) -> list[str]:
        left = []
        for path in paths:
            try:
                files.remove(path)
            except OSError as error:
                left.append(f"{path} ({error.strerror})")
        return left

    def _make(self, durable: bool) -> list[str]:
        made: list[str] = []
        missing = []
        path = self.path
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        try:
            for path in reversed(missing):
                files.system.mkdir(path)
                made.append(path)
                if durable:
                    files.sync_directory(os.path.dirname(path))
        except OSError as error:
            self.made = made
            self._unmake()
            raise files.failure(error, "making a directory for snapshots", self.path) from error
        return made

    def _unmake(self) -> None:
        for path in reversed(self.made):
            try:
                files.system.rmdir(path)
            except OSError:
                return


def owned(path: str) -> list[Owned]:
    """All files in a directory that some run of a disk store wrote, the lock aside."""
    found = []
    for name in sorted(os.listdir(path)):
        match = _OWN.fullmatch(name)
        file = os.path.join(path, name)
        if match and _signed(file, is_slot=match["number"] is not None):
            found.append(Owned(file, match["run"], None if match["number"] is None else int(match["number"])))
    return found


def lock_file(path: str) -> str:
    """Where the lock of a directory is."""
    return os.path.join(path, LOCK_NAME)


def _signed(path: str, is_slot: bool) -> bool:
    """Whether a file says that it is ours, or says nothing because a crash left it empty or its start blank."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    if os.path.getsize(path) == 0:
        return True
    if not is_slot:
        return "pebbling" in (head(path) or {})
    with open(path, "rb") as file:
        start = file.read(len(MAGIC))
    return start == MAGIC or not start.strip(b"\0")
