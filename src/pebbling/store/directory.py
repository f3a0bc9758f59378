"""The directory of a disk store: which files in it are whose, who made it, and how it is left behind.

Files carry the name of the run they belong to and say at their start what they are. No other file is ever opened for
writing or removed: not one that has such a name by chance, not a link, not one that has another name as well. The
directory goes only if the store made it (it is known again by its number in the file system, so that a store that
was moved or copied removes nobody's) and it is empty.
"""

from __future__ import annotations

import os
import re
import uuid
from typing import Any, NamedTuple

from ..errors import StoreError
from . import files
from .journal import head, is_journal
from .lock import NAME as LOCK_NAME
from .lock import DirectoryLock

PAGE = 4096
MAGIC = b"pebbling snapshot slot 2\n"
_OLD_MAGIC = b"pebbling snapshot slot 1\n"
_RUN = re.compile(r"[A-Za-z0-9_.]([A-Za-z0-9_.-]{0,118}[A-Za-z0-9_.])?")
_OWN = re.compile(
    rf"pebbling-(?P<run>{_RUN.pattern})(-(?P<number>0|[1-9][0-9]{{0,8}})\.slot|\.journal(?P<draft>(\.[0-9a-f]{{8}})?\.new)?)",
    re.ASCII,
)
_UNNAMED = re.compile(r"[0-9a-f]{12}")
_TRIES = 20
"""Other processes may remove the directory while it is made, as they leave."""
MOST_SLOTS = 10**9

Made = tuple[int, int]
"""Device and number of a directory."""


class Owned(NamedTuple):
    """A file of some run."""

    path: str
    run: str
    number: int | None
    """The number of the slot; ``None`` for the journal."""
    draft: bool = False
    """Whether it is a journal that never got its name."""


class Directory:
    """A locked directory, and the files of one run in it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        run: str | None,
        keep: bool,
        durable: bool,
        beside: DirectoryLock | None = None,
    ) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self.named = run is not None
        self.run = uuid.uuid4().hex[:12] if run is None else run
        self.keep = keep
        check_name(self.run)
        self.process = os.getpid()
        self.made: list[Made] = []
        self.lock = self._enter(durable) if beside is None else beside.share(self.run)

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

    def remove_files(self) -> list[str]:
        """Remove all files of this run; what is left of them, and why.

        The journal goes last, and stays while there are slots: they would be nobody's without it.
        """
        left: list[str] = []
        try:
            own = self.own() if os.path.isdir(self.path) else []
        except OSError as error:
            return [f"the files in {self.path} ({error.strerror})"]
        for file in sorted(own, key=lambda file: file.number is None):
            if file.number is None and not file.draft and left:
                continue
            try:
                remove(file)
            except OSError as error:
                left.append(f"{file.path} ({error.strerror})")
        return left

    def sweep_out(self) -> None:
        """Remove what runs without a name left here that kept nothing and are dead, since the lock is ours."""
        found = [file for file in owned(self.path) if _UNNAMED.fullmatch(file.run) and file.run not in self.lock.runs]
        journals = [file for file in found if file.number is None and not file.draft]
        mortal = {file.run for file in journals if (head(file.path) or {}).get("keep") is False}
        for file in sorted(found, key=lambda file: file.number is None):
            if file.draft or file.run in mortal:
                remove(file)

    def release(self) -> None:
        """Leave: remove the files of this run unless they are to be kept, and let the next one in.

        A process that was forked off has a copy of this object, and leaves without a trace.
        """
        if self.process != os.getpid():
            return
        left = [] if self.keep else self.remove_files()
        try:
            self.lock.release()
        except OSError as error:
            left.append(f"{self.lock.path} ({error.strerror})")
        self._unmake()
        if left:
            raise StoreError(f"could not remove {', '.join(left)}")

    def found_made(self, found: Any) -> None:
        """Take over what a journal says about directories that an earlier process made for this run."""
        known = {tuple(each) for each in found if isinstance(each, list)} if isinstance(found, list) else set()
        self.made = [made for made in (_number(path) for path in _upwards(self.path)) if made in known] or self.made

    def _enter(self, durable: bool) -> DirectoryLock:
        """Make the directory and take its lock, which others may undo in between."""
        with files.translated("making a directory for snapshots", self.path):
            for attempt in range(_TRIES):
                try:
                    self._make(durable)
                    return DirectoryLock(self.path, self.run, durable)
                except FileNotFoundError:
                    if attempt == _TRIES - 1:
                        raise
                except StoreError as error:
                    if not isinstance(error.__cause__, FileNotFoundError) or attempt == _TRIES - 1:
                        self._unmake()
                        raise
                except BaseException:
                    self._unmake()
                    raise
        raise AssertionError("unreachable")

    def _make(self, durable: bool) -> None:
        missing = []
        for path in _upwards(self.path):
            if os.path.isdir(path):
                break
            missing.append(path)
        for path in reversed(missing):
            if files.make_directory(path):
                self.made.insert(0, _number(path))
            if durable:
                files.sync_directory(os.path.dirname(path))

    def _unmake(self) -> None:
        """Remove the directories that were made for this run and are empty, from the innermost outwards."""
        for path in _upwards(self.path):
            try:
                if _number(path) not in self.made:
                    return
                files.system.rmdir(path)
            except OSError:
                return


def check_name(run: str) -> None:
    """Raise unless a run may have that name."""
    if not isinstance(run, str) or not _RUN.fullmatch(run) or ".." in run:
        raise ValueError(f"a run is named with at most 120 letters, digits, '.', '_' and '-', not {run!r}")


def owned(path: str) -> list[Owned]:
    """All files in a directory that some run of a disk store wrote, the lock aside."""
    found = []
    for name in sorted(os.listdir(path)):
        match = _OWN.fullmatch(name)
        if match is None:
            continue
        number = None if match["number"] is None else int(match["number"])
        file = Owned(os.path.join(path, name), match["run"], number, match["draft"] is not None)
        if _is_ours(file):
            found.append(file)
    return found


def remove(file: Owned) -> None:
    """Remove a file, after a look at whether it still is what it was."""
    try:
        files.remove_own(file.path, lambda descriptor: _signed(descriptor, file))
    except files.NotOurs:
        return


def lock_file(path: str) -> str:
    """Where the lock of a directory is."""
    return os.path.join(path, LOCK_NAME)


def slot_start(run: str) -> bytes:
    """How a slot of a run begins."""
    return _signature(run).ljust(PAGE, b"\0")


def is_slot(descriptor: int, run: str) -> bool:
    """Whether a file says that it is a slot of a run."""
    start = _signature(run)
    return os.pread(descriptor, len(start), 0) == start


def _signature(run: str) -> bytes:
    return MAGIC + f"run {run}\n".encode()


def _is_ours(file: Owned) -> bool:
    try:
        descriptor = files.open_file(file.path, os.O_RDONLY)
    except (FileNotFoundError, StoreError):
        return False
    except PermissionError:
        if files.is_owned(file.path):
            raise
        return False
    try:
        files.check(descriptor, file.path, writing=True)
        return _signed(descriptor, file)
    except StoreError:
        return False
    finally:
        files.system.close(descriptor)


def _signed(descriptor: int, file: Owned) -> bool:
    """Whether a file says that it is ours: an empty one, or one of zeros, may be anybody's."""
    if file.number is None:
        return is_journal(descriptor)
    return is_slot(descriptor, file.run) or os.pread(descriptor, len(_OLD_MAGIC), 0) == _OLD_MAGIC


def _upwards(path: str) -> list[str]:
    """A path and the directories that it is in, from the innermost."""
    paths = [path]
    while os.path.dirname(paths[-1]) != paths[-1]:
        paths.append(os.path.dirname(paths[-1]))
    return paths


def _number(path: str) -> Made:
    found = os.stat(path, follow_symlinks=False)
    return (found.st_dev, found.st_ino)
