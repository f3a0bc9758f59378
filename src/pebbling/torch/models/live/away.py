"""Saved values moved away while there is no plan: to pinned memory of the host, or from the host to a file.

What autograd saved first it needs last, so the oldest go first. Bits come back as they were; it costs the time of the
copies, in a step that is recorded and in one that is like no step before.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import deque
from typing import Any

import torch
from torch import Tensor

_uses: Any = torch._C._storage_Use_Count
SMALL = 4096
"""Bytes up to which a value is neither moved nor dropped."""


class Package:
    """A saved storage: here, or away."""

    __slots__ = ("__weakref__", "_away", "bytes", "device", "moves", "number", "storage")

    def __init__(self, storage: Any, number: int | None, moves: Away) -> None:
        self.storage, self.number, self.moves = storage, number, moves
        self.bytes, self.device = storage.nbytes(), storage.device
        self._away: Any = None

    @property
    def held(self) -> bool:
        """Whether anybody else holds the storage, so that moving it would free nothing."""
        return self.storage is not None and _uses(self.storage._cdata) > 1

    def move(self) -> None:
        """Move it away."""
        if self._away is None:
            self._away = self.moves.put(self.storage)
        self.storage = None

    def get(self) -> Any:
        """The storage, brought back if it was away."""
        if self.storage is None:
            self.storage = self.moves.fetch(self._away, self.bytes, self.device)
        return self.storage


class Away:
    """Where storages are moved to, and which are to go first."""

    def __init__(self) -> None:
        self.moved = 0
        """Bytes that were moved away."""
        self._packages: deque[Any] = deque()
        self._file: Any = None

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self._file.close()

    def keep(self, storage: Any, number: int | None = None) -> Package:
        """Take charge of a saved storage."""
        package = Package(storage, number, self)
        if package.bytes > SMALL:
            self._packages.append(weakref.ref(package))
        return package

    def free(self, bytes: int) -> int:
        """Move the oldest away until so many bytes are free, or none is left that can be; what was freed."""
        freed, stay = 0, []
        while self._packages and freed < bytes:
            reference = self._packages.popleft()
            package = reference()
            if package is None or package.storage is None:
                continue
            if package.held:
                stay.append(reference)
                continue
            package.move()
            freed += package.bytes
        self._packages.extendleft(reversed(stay))
        return freed

    def put(self, storage: Any) -> Any:
        """Copy a storage away; where it is."""
        self.moved += storage.nbytes()
        if storage.device.type != "cpu":
            copy = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=True)
            copy.copy_(_bytes(storage))
            return copy
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="pebbling-")  # noqa: SIM115, closed when this is gone
        self._file.seek(0, 2)
        place = self._file.tell()
        self._file.write(_bytes(storage).numpy().data)
        return place

    def fetch(self, place: Any, bytes: int, device: Any) -> Any:
        """A storage with what was copied away."""
        here = torch.empty(bytes, dtype=torch.uint8, device=device)
        if isinstance(place, Tensor):
            here.copy_(place)
        else:
            assert self._file is not None
            self._file.seek(place)
            if self._file.readinto(here.numpy().data) != bytes:
                raise OSError(f"a saved value of {bytes} bytes could not be read back from the temporary file")
        return here.untyped_storage()


def _bytes(storage: Any) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
