"""States and adjoints written out on the way back, for inspection."""

from __future__ import annotations

import os
import re
import struct
import zlib
from os import PathLike
from typing import Any

from ..chain.validate import whole
from ..errors import CorruptSnapshot, StoreError
from ..store import files
from ..tree import Layout, pack
from ..tree.data import Unreadable

_MAGIC = b"pebbling dump 2\n"
_HEAD = struct.Struct("<QII")
_NAME = re.compile(r"step-(0|-?[1-9][0-9]{0,18})\.dump")


class Dump:
    """Writes the state before every ``every``-th step, and the adjoint of it, to a directory.

    Objects that are not data need ``pickle=True``, as for the store ``Disk``: open no directory with it that others
    can write to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     dump = Dump(path, every=5)
    ...     dump(state=1.0, adjoint=2.0, step=10)
    ...     dump(state=3.0, adjoint=4.0, step=11)
    ...     dump.steps(), dump.read(10)
    ([10], (1.0, 2.0))
    """

    def __init__(self, path: str | PathLike[str], every: int = 1, *, pickle: bool = False) -> None:
        self.path, self.every, self.pickle = os.fspath(path), whole(every, "every", 1), pickle
        os.makedirs(self.path, exist_ok=True)

    def __call__(self, state: Any, adjoint: Any, step: int) -> None:
        """Write one step, if it is one of those wanted."""
        if step % self.every:
            return
        meta, buffers = pack((state, adjoint), self.pickle)
        check = 0
        for buffer in buffers:
            check = zlib.crc32(buffer.data, check)
        head = _MAGIC + _HEAD.pack(len(meta), zlib.crc32(meta), check) + meta
        path = self._file(step)
        with files.translated("writing a dump", path):
            if os.path.lexists(path):
                files.remove_own(path, _is_dump)
            descriptor = files.create(path, head)
            try:
                end = len(head)
                for buffer in buffers:
                    end = files.write_at(descriptor, [buffer], end)
            finally:
                files.system.close(descriptor)

    def steps(self) -> list[int]:
        """The steps that were written."""
        found = (_NAME.fullmatch(name) for name in os.listdir(self.path))
        return sorted(int(match[1]) for match in found if match)

    def read(self, step: int) -> tuple[Any, Any]:
        """The state before ``step`` and its adjoint."""
        path = self._file(step)
        with files.translated("reading a dump", path):
            descriptor = files.open_file(path, os.O_RDONLY)
            with os.fdopen(descriptor, "rb") as file:
                return self._parsed(file, path)

    def _parsed(self, file: Any, path: str) -> tuple[Any, Any]:
        size = os.fstat(file.fileno()).st_size
        head = file.read(len(_MAGIC) + _HEAD.size)
        if len(head) < len(_MAGIC) + _HEAD.size or not head.startswith(_MAGIC):
            raise StoreError(f"{path} is no dump of this version of pebbling")
        length, meta_check, check = _HEAD.unpack(head[len(_MAGIC) :])
        if length > size - len(head):
            raise _damaged(path, f"the file ends at byte {size}")
        meta = file.read(length)
        if zlib.crc32(meta) != meta_check:
            raise _damaged(path, "its description fails the check")
        try:
            layout = Layout(meta, self.pickle)
            if layout.nbytes != size - len(head) - length:
                raise _damaged(path, f"it describes {layout.nbytes} bytes, not {size - len(head) - length}")
            buffers, finish = layout.allocate()
        except Unreadable as error:
            raise _damaged(path, str(error)) from error
        found = 0
        for buffer in buffers:
            if buffer.size:
                file.readinto(buffer.data)
            found = zlib.crc32(buffer.data, found)
        if found != check:
            raise _damaged(path, "its bytes fail the check")
        state, adjoint = finish()
        return state, adjoint

    def _file(self, step: int) -> str:
        return os.path.join(self.path, f"step-{step}.dump")


def _is_dump(descriptor: int) -> bool:
    return os.pread(descriptor, len(_MAGIC), 0) == _MAGIC


def _damaged(path: str, found: str) -> CorruptSnapshot:
    return CorruptSnapshot(f"{path} is not what was written: {found}")
