"""What is committed, in the order in which it was: one line a change, each with its own check.

A snapshot exists once its line is in the journal. A line that a crash cut short ends the journal,
and what it would have said did not happen. A line that fails its check with good lines behind it
was damaged later, and is an error. The journal is written anew now and then, under another name
first, so that its length follows what is held and not how often it changed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable
from typing import Any

from ..errors import CorruptSnapshot, StoreError
from . import files

Record = dict[str, Any]
_FORMAT = 1
_ENOUGH = 1000
_SYNTAX = "utf-8"


class Journal:
    """The commit log of one run; ``head`` is its first line."""

    def __init__(self, path: str, head: Record, durable: bool) -> None:
        self.path = path
        self.head = {"pebbling": _FORMAT, **head}
        self.durable = durable
        self._descriptor = -1
        self._end = self._count = 0
        self._limit = _ENOUGH
        self._named = False
        self._broken: OSError | None = None

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace the journal by one of just these records, at one instant."""
        draft = self.path + ".new"
        lines = [encode(number, record) for number, record in enumerate([self.head, *records])]
        descriptor = files.open_file(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            end = files.write_at(descriptor, [b"".join(lines)], 0)
            if self.durable:
                files.sync(descriptor)
            files.system.replace(draft, self.path)
        except BaseException:
            files.system.close(descriptor)
            files.remove(draft)
            raise
        self.close()
        self._descriptor, self._end, self._count = descriptor, end, len(lines)
        self._named, self._broken = False, None
        self._settle()

    def append(self, record: Record) -> None:
        """Commit one change: it has happened when this returns, and has not if this raises."""
        if self._broken is not None:
            raise StoreError(f"an earlier write to {self.path} could not be undone: {self._broken}") from self._broken
        self._settle()
        line = encode(self._count, record)
        try:
            end = files.write_at(self._descriptor, [line], self._end)
            if self.durable:
                files.sync(self._descriptor)
        except BaseException:
            try:
                files.system.ftruncate(self._descriptor, self._end)
            except OSError as error:
                self._broken = error
            raise
        self._end, self._count = end, self._count + 1

    def overgrown(self, held: int) -> bool:
        """Whether it is worth writing anew when ``held`` records would do."""
        return self._count > self._limit and self._count > 4 * held

    def tidy(self, records: Iterable[Record]) -> None:
        """Write it anew; if that fails the old one stays good, and the next try comes when it has doubled."""
        try:
            self.rewrite(records)
            self._limit = _ENOUGH
        except OSError:
            self._limit = 2 * self._count

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            files.system.close(self._descriptor)
            self._descriptor = -1

    def _settle(self) -> None:
        # Lines behind a name that a power failure takes back would be lost with it.
        if self.durable and not self._named:
            files.sync_directory(os.path.dirname(self.path))
        self._named = True


def encode(number: int, record: Record) -> bytes:
    """One line: its check, its number, what it says."""
    body = f"{number} {json.dumps(record)}".encode(_SYNTAX)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode(number: int, line: bytes) -> Record | None:
    """What the line of that number says; ``None`` if it is not a whole line or not that one."""
    check, _, body = line.partition(b" ")
    if b"%08x" % zlib.crc32(body) != check:
        return None
    found, _, text = body.partition(b" ")
    record = json.loads(text)
    return record if int(found) == number and isinstance(record, dict) else None


def head(path: str) -> Record | None:
    """The first record of a journal; ``None`` if the file is not one."""
    with open(path, "rb") as file:
        return decode(0, file.readline().rstrip(b"\n"))


def read(path: str) -> list[Record]:
    """The records of a journal, its head first; none if it was cut short before its first line was whole."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines):
        record = decode(number, line)
        if record is None:
            if any(decode(later, lines[later]) is not None for later in range(number + 1, len(lines))):
                raise CorruptSnapshot(f"line {number + 1} of {path} was damaged after it was written")
            break
        records.append(record)
    return records
