"""Snapshots in files of a directory: raw bytes at the speed of the disk, checked on every read.

A put writes into a free slot file, then commits with one record in the journal, and only then is the
slot of the snapshot it replaces free: whatever happens in between, a key has its old snapshot or
its new one. With ``durable=True`` each of the two is on the disk before the next begins, and this
holds through a power failure; without, it holds through the death of the process.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Any, Self

from ..errors import CorruptSnapshot, StoreError
from ..tree import pack
from . import files, journal
from .catalogue import Catalogue
from .checksum import LARGEST
from .contract import Key, Store
from .directory import MOST_SLOTS, Directory, remove
from .journal import CommitLog, Record, length
from .slots import SlotEntry, Slots


class Disk(Store):
    """Keeps snapshots in ``path``, a directory that is made if it is missing.

    One live store has the directory to itself. Everything it wrote is removed by ``close``, and at
    the latest when the interpreter ends; what a killed process leaves behind is listed by
    ``orphans`` and removed by ``clean``.

    With ``keep=True`` the snapshots stay after ``close``, and ``Disk(path, run=…, keep=True)`` with
    the same ``run`` finds them again, also after a crash; set ``store.keep = False`` before ``close``
    to remove them after all.

    Snapshots are written as data, and what is read is taken for data of a stranger. Objects that have
    no such form are refused, unless ``pickle=True`` lets them be written and read as pickles: reading
    a pickle runs code, so open no directory with it that others can write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path, Disk(path) as store:
    ...     store.put(0, {"u": [1.0, 2.0]})
    ...     store.get(0)
    {'u': [1.0, 2.0]}
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        run: str | None = None,
        keep: bool = False,
        durable: bool = False,
        pickle: bool = False,
    ) -> None:
        self._durable, self._may_pickle = durable, pickle
        self._open(Directory(path, run, keep, durable))

    @classmethod
    def beside(cls, other: Disk, run: str, *, keep: bool, durable: bool, pickle: bool) -> Self:
        """A store in the directory of ``other``, for the files of another run; they share its lock."""
        store = object.__new__(cls)
        store._durable, store._may_pickle = durable, pickle
        store._open(Directory(other.path, run, keep, durable, other._directory.lock))
        return store

    @property
    def is_named(self) -> bool:
        """Whether the user said what its name is."""
        return self._directory.named

    def rename(self, run: str, keep: bool) -> None:
        """Go on under a name that is not the user's, with what an earlier process left; only an empty store can."""
        self._check("")
        if run == self.run:
            self.keep = keep
            return
        if self._held.entries:
            raise StoreError(
                f"{self._held.owner} holds {len(self._held.entries)} snapshots under the name {self.run!r}"
            )
        with files.translated("renaming an empty store", self.path):
            new = Directory(self.path, run, keep, self._durable, self._directory.lock)
        new.made, new.named = self._directory.made, False
        self._finalize.detach()
        self._journal.close()
        left = self._directory.remove_files()
        self._directory.lock.runs.remove(self.run)
        if left:
            raise StoreError(f"could not remove {', '.join(left)}")
        self._open(new)
        with files.translated("cleaning up after processes that died", self.path):
            new.sweep_out()

    def _open(self, directory: Directory) -> None:
        self._directory = directory
        self._held: Catalogue[SlotEntry] = Catalogue(f"the Disk store in {directory.path}")
        self._slots = Slots(directory, self._durable, self._may_pickle)
        self._nbytes = self._owed = 0
        head = {"run": self.run, "keep": self.keep, "made": directory.made}
        self._journal = CommitLog(directory.journal, head, self._durable)
        self._finalize = weakref.finalize(self, _leave, directory, self._journal, self._held)
        found = True
        try:
            with files.translated("opening a snapshot directory", self.path):
                found = bool(directory.own())
                self._recover()
        except BaseException:
            # What was there before is not this store's to remove.
            directory.keep = found
            with suppress(StoreError):
                self._finalize()
            raise

    @property
    def pickle(self) -> bool:  # type: ignore[override]
        return self._may_pickle

    @property
    def path(self) -> str:
        """The directory."""
        return self._directory.path

    @property
    def run(self) -> str:
        """The name under which the files can be found again."""
        return self._directory.run

    @property
    def keep(self) -> bool:
        """Whether ``close`` leaves the snapshots."""
        return self._directory.keep

    @keep.setter
    def keep(self, keep: bool) -> None:
        self._directory.keep = keep

    def put(self, key: Key, tree: Any) -> None:
        self._check(key)
        meta, buffers = pack(tree, self._may_pickle)
        entry = self._slots.write(meta, buffers)
        # Whatever is held can be dropped again, even on a full disk.
        old = self._held.entries.get(key)
        entry.owed = length({"drop": key}) if old is None else old.owed
        try:
            self._commit(_put_record(key, entry), "committing a snapshot", self._owed + entry.owed)
        except StoreError:
            self._slots.free(entry.slot)
            raise
        self._held.entries[key] = entry
        self._nbytes += entry.nbytes
        self._owed += entry.owed
        if old is not None:
            self._forget(old)

    def get(self, key: Key) -> Any:
        return self._slots.read(key, self._held.find(key))

    def drop(self, key: Key) -> None:
        self._check(key)
        entry = self._held.find(key)
        self._commit({"drop": key}, "dropping a snapshot")
        del self._held.entries[key]
        self._forget(entry)

    def keys(self) -> list[Key]:
        return self._held.keys()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def reserve(self, count: int, nbytes: int) -> None:
        """Set the disk space of ``count`` snapshots aside before the run starts."""
        self._check("")
        self._slots.reserve(count, nbytes)

    def close(self) -> None:
        if not self._held.closed:
            self._nbytes = self._owed = 0
            try:
                self._finalize()
            finally:
                self._held.close()

    def _check(self, key: Key) -> None:
        self._held.check(key)
        if self._directory.process != os.getpid():
            raise StoreError(f"this store belongs to process {self._directory.process}, which this one was forked from")

    def _commit(self, record: Record, doing: str, spare: int = 0) -> None:
        with files.translated(doing, self._journal.path):
            self._journal.append(record, spare)

    def _forget(self, entry: SlotEntry) -> None:
        self._nbytes -= entry.nbytes
        self._owed -= entry.owed
        self._slots.free(entry.slot)
        if self._journal.overgrown(len(self._held.entries)):
            self._journal.tidy(_records(self._held))

    def _recover(self) -> None:
        own = self._directory.own()
        if own and not self.keep:
            raise StoreError(
                f"run {self.run!r} left {len(own)} files in {self.path}: open it with keep=True to go on with them, "
                "or remove them with pebbling.store.clean"
            )
        records = journal.read(self._journal.path) if os.path.lexists(self._journal.path) else []
        if not records and any(file.number is not None for file in own):
            raise StoreError(
                f"run {self.run!r} left snapshots in {self.path} without a journal: they can't be trusted. Remove them "
                f"with pebbling.store.clean({self.path!r}, {self.run!r})"
            )
        if records:
            self._check_head(records[0])
            for number, record in enumerate(records[1:], 2):
                self._replay(record, number)
            self._directory.found_made(records[0].get("made"))
            self._journal.head["made"] = self._directory.made
        self._slots.adopt({entry.slot for entry in self._held.entries.values()})
        self._nbytes = sum(entry.nbytes for entry in self._held.entries.values())
        for key, entry in self._held.entries.items():
            entry.owed = length({"drop": key})
            self._owed += entry.owed
        self._journal.rewrite(_records(self._held))
        for file in own:
            if file.draft:
                remove(file)

    def _check_head(self, head: Record) -> None:
        if head.get("pebbling") != journal.FORMAT or head.get("run") != self.run:
            raise CorruptSnapshot(f"{self._journal.path} is the journal of another run or version")

    def _replay(self, record: Record, number: int) -> None:
        """Do what a record of the journal says, if it says something that can be."""
        try:
            if "drop" in record:
                del self._held.entries[record["drop"]]
                return
            key, entry = _entry(record)
            self._held.check(key)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptSnapshot(
                f"record {number} of {self._journal.path} makes no sense: {type(error).__name__}: {error}"
            ) from None
        self._held.entries[key] = entry


def _records(held: Catalogue[SlotEntry]) -> list[Record]:
    return [_put_record(key, entry) for key, entry in held.entries.items()]


def _entry(record: Record) -> tuple[Key, SlotEntry]:
    """What a record says of a snapshot: each number within what a file can have."""
    key = record["put"]
    limits = {
        "slot": MOST_SLOTS, "data": 1 << 62, "check": LARGEST + 1, "meta": 1 << 62, "meta_check": 1 << 32
    }  # fmt: skip
    if record.keys() != {"put", *limits}:
        raise ValueError("it has other parts than it should")
    for name, limit in limits.items():
        if type(record[name]) is not int or not 0 <= record[name] < limit:
            raise ValueError(f"{name} is {str(record[name])[:40]}")
    return key, SlotEntry(*(record[name] for name in limits))


def _put_record(key: Key, entry: SlotEntry) -> Record:
    return {
        "put": key,
        "slot": entry.slot,
        "data": entry.data,
        "check": entry.check,
        "meta": entry.meta,
        "meta_check": entry.meta_check,
    }


def _leave(directory: Directory, lines: CommitLog, held: Catalogue[SlotEntry]) -> None:
    """Leave the directory; all of it is done, whatever goes wrong on the way."""
    if directory.process != os.getpid():
        return
    with files.translated("closing a store", directory.path):
        try:
            if directory.keep:
                lines.seal(_records(held))
            lines.close()
        finally:
            directory.release()
