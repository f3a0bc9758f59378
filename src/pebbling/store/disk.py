"""Snapshots in files of a directory: raw bytes at the speed of the disk, checked on every read.

A put writes into a free slot file, then commits with one line of the journal, and only then is the
slot of the snapshot it replaces free: whatever happens in between, a key has its old snapshot or
its new one. With ``durable=True`` each of the two is on the disk before the next begins, and this
holds through a power failure; without, it holds through the death of the process.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from ..errors import StoreError
from ..tree import pack
from . import files, journal
from .catalogue import Catalogue
from .contract import Key, Store
from .directory import Directory
from .journal import Journal, Record
from .slots import Entry, Slots


class Disk(Store):
    """Keeps snapshots in ``path``, a directory that is made if it is missing.

    One live store has the directory to itself. Everything it wrote is removed by ``close``, and at
    the latest when the interpreter ends; what a killed process leaves behind is listed by
    ``orphans`` and removed by ``clean``.

    With ``keep=True`` the snapshots stay after ``close``, and ``Disk(path, run=…, keep=True)`` with
    the same ``run`` finds them again, also after a crash; set ``store.keep = False`` before ``close``
    to remove them after all. Snapshots that are found again are unpickled: open no directory that
    others can write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path, Disk(path) as store:
    ...     store.put(0, {"u": [1.0, 2.0]})
    ...     store.get(0)
    {'u': [1.0, 2.0]}
    """

    def __init__(
        self, path: str | os.PathLike[str], *, run: str | None = None, keep: bool = False, durable: bool = False
    ) -> None:
        self._directory = Directory(path, run, keep, durable)
        self._held: Catalogue[Entry] = Catalogue(f"the Disk store in {self._directory.path}")
        self._slots = Slots(self._directory, durable)
        self._nbytes = 0
        head = {"run": self.run, "keep": keep, "made": self._directory.made}
        self._journal = Journal(self._directory.journal, head, durable)
        self._finalize = weakref.finalize(self, _leave, self._directory, self._journal)
        found = True
        try:
            found = bool(self._directory.own())
            self._recover()
        except BaseException as error:
            # What was there before is not this store's to remove.
            self.keep = found
            self._finalize()
            if isinstance(error, OSError):
                raise files.failure(error, "opening a snapshot directory", self._directory.path) from error
            raise

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
        meta, buffers = pack(tree)
        entry = self._slots.write(meta, buffers)
        try:
            self._commit(_put_record(key, entry), "committing a snapshot")
        except StoreError:
            self._slots.free(entry.slot)
            raise
        old = self._held.entries.get(key)
        self._held.entries[key] = entry
        self._nbytes += entry.nbytes
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
        if self._held.close():
            self._nbytes = 0
            self._finalize()

    def _check(self, key: Key) -> None:
        self._held.check(key)
        if self._directory.process != os.getpid():
            raise StoreError(f"this store belongs to process {self._directory.process}, which this one was forked from")

    def _commit(self, record: Record, doing: str) -> None:
        try:
            self._journal.append(record)
        except OSError as error:
            raise files.failure(error, doing, self._journal.path) from error

    def _forget(self, entry: Entry) -> None:
        self._nbytes -= entry.nbytes
        self._slots.free(entry.slot)
        if self._journal.overgrown(len(self._held.entries)):
            self._journal.tidy(self._records())

    def _records(self) -> list[Record]:
        return [_put_record(key, entry) for key, entry in self._held.entries.items()]

    def _recover(self) -> None:
        own = self._directory.own()
        if own and not self.keep:
            raise StoreError(
                f"run {self.run!r} left {len(own)} files in {self.path}: open it with keep=True to go on with them, "
                "or remove them with pebbling.store.clean"
            )
        records = journal.read(self._journal.path) if os.path.exists(self._journal.path) else []
        if own and not records and any(file.number is not None for file in own):
            raise StoreError(f"run {self.run!r} left snapshots in {self.path} without a journal: they can't be trusted")
        for record in records[1:]:
            self._replay(record)
        if records:
            self._directory.made = [*records[0].get("made", ()), *self._directory.made]
            self._journal.head["made"] = self._directory.made
        self._slots.adopt({entry.slot for entry in self._held.entries.values()})
        self._nbytes = sum(entry.nbytes for entry in self._held.entries.values())
        self._journal.rewrite(self._records())

    def _replay(self, record: Record) -> None:
        if "drop" in record:
            del self._held.entries[record["drop"]]
        else:
            self._held.entries[record["put"]] = Entry(
                record["slot"], record["data"], record["check"], record["meta"], record["meta_check"]
            )


def _put_record(key: Key, entry: Entry) -> Record:
    return {
        "put": key,
        "slot": entry.slot,
        "data": entry.data,
        "check": entry.check,
        "meta": entry.meta,
        "meta_check": entry.meta_check,
    }


def _leave(directory: Directory, lines: Journal) -> None:
    lines.close()
    directory.release()
