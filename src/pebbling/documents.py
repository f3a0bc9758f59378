"""JSON that was saved and may have been changed since: plans, graphs, reports. Whatever is wrong, it is one error.

Files are plain ones of bounded size, opened without waiting; what is compressed is unpacked up to a bound.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from typing import Any

from .errors import DamagedFile
from .units import format_bytes

_GZIP = b"\x1f\x8b"
_LARGEST = 1 << 28
"""Bytes of a document, once it is unpacked; a graph of a million operations has fewer."""


def parsed(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds, compressed or not; ``DamagedFile`` if it is none."""
    name = os.fsdecode(path)
    content = read(name)
    try:
        return json.loads(_unpacked(content) if content[:2] == _GZIP else content)
    except (ValueError, EOFError, RecursionError, zlib.error, OSError) as error:
        raise DamagedFile(f"{name} is not JSON, so it is nothing that pebbling saved: {error}") from None


def read(name: str) -> bytes:
    """The bytes of a plain file."""
    descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DamagedFile(f"{name} is no plain file, so it is nothing that pebbling saved")
        if found.st_size > _LARGEST:
            raise DamagedFile(f"{name} has {format_bytes(found.st_size)}; at most {format_bytes(_LARGEST)} are read")
        return file.read(found.st_size)


def check_of(document: dict[str, Any]) -> int:
    """A number that stands for all of a document but the number itself."""
    rest = {key: value for key, value in document.items() if key != "check"}
    return zlib.crc32(json.dumps(rest, separators=(",", ":")).encode())


def _unpacked(content: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=31)
    unpacked = unpacking.decompress(content, _LARGEST)
    if unpacking.unconsumed_tail:
        raise ValueError(f"unpacked, it has more than {format_bytes(_LARGEST)}")
    if not unpacking.eof:
        raise EOFError("the compressed file ends too early")
    if unpacking.unused_data.strip(b"\0"):
        raise gzip.BadGzipFile("there is something behind the compressed file")
    return unpacked
