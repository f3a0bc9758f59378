"""What is committed, in the order in which it was: each change with its own check, and each written twice.

A snapshot exists once its record is in the journal. Records follow each other in blocks of 64 bytes, every one of
them two times over: a bit that was flipped later in one copy leaves the other. A record that a crash cut short ends
the journal, and what it would have said did not happen; one that is unreadable with good ones behind it was damaged
later, and is an error. A journal that is closed in an orderly way says at its start how many records it has
("sealed"), so that none can be missing at its end.

The journal is written anew now and then, under another name first, so that its length follows what is held and not
how often it changed. Room is taken on the disk ahead: to drop a snapshot never needs more of it.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ..errors import CorruptSnapshot, StoreError
from ..units import format_bytes
from . import files

Record = dict[str, Any]
FORMAT = 2
MAGIC = b"pebbling journal 2".ljust(63) + b"\n"
_BLOCK = 64
_ENOUGH = 1000
_SYNTAX = "utf-8"
_AHEAD = 1 << 14
_LONGEST = 1 << 15
"""Bytes that a record may take."""
_LARGEST = 1 << 28
"""Bytes that a journal may have; no run gets near."""


class CommitLog:
    """The commit log of one run; ``head`` is its first record."""

    def __init__(self, path: str, head: Record, durable: bool) -> None:
        self.path = path
        self.head = {"pebbling": FORMAT, "durable": durable, **head}
        self.durable = durable
        self._descriptor = -1
        self._end = self._count = self._room = 0
        self._limit = _ENOUGH
        self._named = False
        self._broken: OSError | None = None

    def rewrite(self, records: Iterable[Record], seal: bool = False) -> None:
        """Replace the journal by one of just these records, at one instant; sealed, it takes no more."""
        records = list(records)
        head = {**self.head, "sealed": len(records) + 1} if seal else self.head
        content = MAGIC + b"".join(encode(number, record) for number, record in enumerate([head, *records]))
        room = len(content) if seal else len(content) + _AHEAD
        draft = f"{self.path}.{uuid.uuid4().hex[:8]}.new"
        # It gets its name only when it has its start; the rest may be cut short, since the name is not the journal's.
        descriptor = files.create(draft, MAGIC)
        try:
            files.write_at(descriptor, [content], 0)
            if not seal:
                files.allocate(descriptor, len(content), room - len(content))
            if self.durable:
                files.sync(descriptor)
            files.system.replace(draft, self.path)
        except BaseException:
            files.system.close(descriptor)
            with suppress(OSError):
                files.remove(draft)
            raise
        old, self._descriptor = self._descriptor, descriptor
        self._end, self._count, self._room = len(content), len(records) + 1, room
        self._named, self._broken = False, None
        if old >= 0:
            files.system.close(old)
        self._settle()

    def append(self, record: Record, spare: int = 0) -> None:
        """Commit one change: it has happened when this returns, and has not if this raises.

        ``spare`` bytes are left behind it for what must not fail for want of room.
        """
        if self._broken is not None:
            raise StoreError(f"an earlier write to {self.path} could not be undone: {self._broken}") from self._broken
        self._settle()
        copies = encode(self._count, record)
        needed = self._end + len(copies) + spare
        if needed > self._room:
            files.allocate(self._descriptor, self._room, needed + _AHEAD - self._room)
            self._room = needed + _AHEAD
        try:
            end = files.write_at(self._descriptor, [copies], self._end)
            if self.durable:
                files.sync(self._descriptor)
        except BaseException:
            try:
                files.write_at(self._descriptor, [bytes(len(copies))], self._end)
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
        except (OSError, StoreError):
            self._limit = 2 * self._count

    def seal(self, records: Iterable[Record]) -> None:
        """Close it for good, if there is room for that; an open one is as good but for a lost end."""
        if self._descriptor >= 0:
            with suppress(OSError, StoreError):
                self.rewrite(records, seal=True)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            files.system.close(descriptor)

    def _settle(self) -> None:
        # Records behind a name that a power failure takes back would be lost with it.
        if self.durable and not self._named:
            files.sync_directory(os.path.dirname(self.path))
        self._named = True


def length(record: Record) -> int:
    """The bytes that a record takes, whatever its number."""
    return len(encode(10**9, record))


def encode(number: int, record: Record) -> bytes:
    """One record, two times: its check, its number, what it says, blanks up to whole blocks."""
    body = f"{number} {json.dumps(record)}".encode(_SYNTAX)
    body += b" " * (-(len(body) + 10) % _BLOCK)
    if len(body) > _LONGEST:
        raise StoreError(f"a record of {len(body)} bytes is too long for a journal: give shorter keys")
    return 2 * (b"%08x %s\n" % (zlib.crc32(body), body))


def decode(line: bytes) -> tuple[int, Record] | None:
    """The number of one copy of a record, without its end, and what it says; ``None`` if it is not whole."""
    check, _, body = line.partition(b" ")
    if len(line) > _LONGEST + 10 or b"%08x" % zlib.crc32(body) != check:
        return None
    number, _, text = body.partition(b" ")
    try:
        record = json.loads(text)
        return (int(number), record) if isinstance(record, dict) else None
    except (ValueError, RecursionError):
        return None


def head(path: str) -> Record | None:
    """The first record of a journal; ``None`` if the file is not one."""
    try:
        descriptor = files.open_file(path, os.O_RDONLY)
    except (OSError, StoreError):
        return None
    try:
        return head_of(descriptor)
    finally:
        files.system.close(descriptor)


def head_of(descriptor: int) -> Record | None:
    """The same of a file that is open; of journals of the first format, too, so that they can be removed."""
    start = os.pread(descriptor, len(MAGIC) + 2 * (_LONGEST + 10), 0)
    if start.startswith(MAGIC):
        found = _record(start, len(MAGIC), 0)
        return None if found is None else found[0]
    old = decode(start.partition(b"\n")[0])
    return old[1] if old is not None and old[1].get("pebbling") == 1 else None


def is_journal(descriptor: int) -> bool:
    """Whether a file says that it is a journal of ours, or the draft of one."""
    return os.pread(descriptor, len(MAGIC), 0) == MAGIC or head_of(descriptor) is not None


def read(path: str) -> list[Record]:
    """The records of a journal, its head first."""
    descriptor = files.open_file(path, os.O_RDONLY)
    try:
        # It is about to be replaced by a new one.
        size = files.check(descriptor, path, writing=True).st_size
        if size > _LARGEST:
            raise CorruptSnapshot(f"{path} has {format_bytes(size)}, and no journal is that long")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(size).rstrip(b"\0")
    finally:
        files.system.close(descriptor)
    return _parsed(path, content)


def _parsed(path: str, content: bytes) -> list[Record]:
    if not content.startswith(MAGIC):
        old = decode(content[: 2 * _LONGEST].partition(b"\n")[0])
        if old is not None and old[1].get("pebbling") == 1:
            raise StoreError(
                f"{path} was written by an older version of pebbling, in a format that kept pickles: finish that run "
                "with the version that began it, or remove it with pebbling.store.clean"
            )
        raise files.NotOurs(
            f"{path} is not a journal: a crash of the machine blanked it, which a store survives with durable=True "
            "alone, or it was put there. No store touches it: remove it yourself, and the rest with `pebbling clean`"
        )
    records: list[Record] = []
    at = len(MAGIC)
    while (found := _record(content, at, len(records))) is not None:
        record, at = found
        records.append(record)
    durable = bool(records and records[0].get("durable"))
    if _is_damaged(content, at, len(records), records[0].get("sealed") if records else 1, durable):
        raise CorruptSnapshot(
            f"record {len(records) + 1} of {path} was damaged after it was written, or lost in a crash of the machine, "
            "which a store survives only with durable=True: what came behind it is unknown, so nothing in this store "
            "can be trusted. Remove it with pebbling.store.clean and begin anew"
        )
    return records


def _record(content: bytes, at: int, number: int) -> tuple[Record, int] | None:
    """The record of that number, from either of its copies, and where the next one begins."""
    end = content.find(b"\n", at, at + _LONGEST + 10)
    found = decode(content[at:end]) if end >= 0 else None
    if found is not None and found[0] == number:
        return found[1], at + 2 * (end + 1 - at)
    for size in range(_BLOCK, min(_LONGEST + 10, (len(content) - at) // 2) + 1, _BLOCK):
        if content[at + 2 * size - 1] == 0x0A:
            found = decode(content[at + size : at + 2 * size - 1])
            if found is not None and found[0] == number:
                return found[1], at + 2 * size
    return None


def _is_damaged(content: bytes, at: int, count: int, sealed: Any, durable: bool) -> bool:
    """Whether what is behind the last good record is more than one that was being written when the process died."""
    if sealed is not None:
        return bool(sealed != count)
    for line in content[at:].split(b"\n"):
        found = decode(line)
        if found is not None and found[0] >= count:
            return True
    # What a process was writing when it died is cut short; only a machine that dies leaves the end without the rest.
    rest = content[at:]
    return not durable and rest.endswith(b"\n") and len(rest) % (2 * _BLOCK) == 0
