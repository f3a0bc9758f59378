"""Tapes in host memory: what autograd saves goes to the host as the sweep goes on, and comes back just in time.

Where the link is fast enough for a step's tape to cross it while a step is computed, keeping all tapes on the
host takes no more time than keeping them on the device, and no step runs twice. Each storage crosses once in
each direction, however many operators save it; constants stay where they are. The way back asks for a block's
tensors while the block after it is being reversed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import torch
from torch.autograd.graph import saved_tensors_hooks

from ...errors import StoreError
from ...store import Host

_SMALL = 32 * 1024


class Moved:
    """A storage in host memory."""

    def __init__(self, key: str) -> None:
        self.key, self.users = key, 0
        self.storage: Any = None


class TapeOffload:
    """Moves what tapes hold to the host, block by block."""

    def __init__(self, host: Host, stays: list[torch.Tensor]) -> None:
        self._host, self._prefix, self._count = host, uuid4().hex[:12], 0
        self._stays = {tensor.untyped_storage()._cdata for tensor in stays}
        self._here: dict[int, tuple[Any, Moved]] = {}
        self._moved: dict[str, Moved] = {}
        self._block: list[Moved] = []

    @contextmanager
    def taping(self, moved: list[Moved]) -> Iterator[None]:
        """Where a block is taped; ``moved`` becomes the list of what it holds."""
        self._block = moved
        with saved_tensors_hooks(self._pack, self._unpack):
            yield

    def expect(self, moved: list[Moved]) -> None:
        """Start to bring back what a block holds."""
        for one in {id(one): one for one in moved}.values():
            if one.storage is None:
                self._host.prefetch(one.key)

    def release(self, moved: list[Moved]) -> None:
        """A block has been reversed."""
        for one in moved:
            one.users -= 1
            if one.users == 0:
                self._forget(one)
        moved.clear()

    def clear(self) -> None:
        """Let go of everything."""
        for one in list(self._moved.values()):
            with suppress(StoreError):
                self._forget(one)

    def __del__(self) -> None:
        self.clear()

    def _forget(self, one: Moved) -> None:
        one.storage = None
        del self._moved[one.key]
        self._host.drop(one.key)

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata in self._stays or storage.nbytes() < _SMALL:
            return tensor.detach()
        moved = self._move(storage, tensor.device)
        moved.users += 1
        self._block.append(moved)
        return moved, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()

    def _move(self, storage: Any, device: torch.device) -> Moved:
        number = storage._cdata
        if number in self._here:
            return self._here[number][1]
        self._count += 1
        moved = Moved(f"{self._prefix} {self._count}")
        self._moved[moved.key] = moved
        whole = torch.empty(0, dtype=torch.uint8, device=device)
        self._host.put(moved.key, whole.set_(storage))
        here = self._here
        self._here[number] = weakref.ref(storage, lambda _: here.pop(number, None)), moved
        return moved

    def _unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        moved, dtype, size, stride, offset = packed
        if moved.storage is None:
            moved.storage = self._host.get(moved.key)
        whole = moved.storage.untyped_storage()
        tensor = torch.empty(0, dtype=dtype, device=moved.storage.device)
        return tensor.set_(whole, offset, size, stride)
